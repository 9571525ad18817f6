"""A tiny world and tokenizer, so that these tests depend on no other part."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TASKS = ("single", "override", "running")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Document:
    text: str


@dataclass(frozen=True)
class Question:
    task: str
    text: str
    answer: str
    history: tuple[Any, ...] = ()
    evidence: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Episode:
    system: str
    tools: tuple[Any, ...]
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


def make_episode(
    rng: random.Random,
    *,
    num_documents: int,
    facts_per_document: int,
    split: str,
    tasks: Sequence[str] | None = None,
    num_questions: int | None = None,
    num_tools: int | None = None,
) -> Episode:
    """Key-value facts; the later one wins; counts of all facts."""
    names = [_word(rng) for _ in range(num_documents * facts_per_document)]
    values = {name: _word(rng) for name in names}
    lines = [f"The code of {name} is {values[name]}." for name in names]
    documents = tuple(
        Document(f"Note {i + 1}.\n" + " ".join(lines[i * facts_per_document : (i + 1) * facts_per_document]))
        for i in range(num_documents)
    )
    questions = []
    for _ in range(num_questions or 3):
        task = rng.choice(list(tasks or TASKS))
        name = rng.choice(names)
        if task == "running":
            questions.append(Question(task, "How many codes are there?", f"There are {len(names)}."))
        else:
            questions.append(Question(task, f"What is the code of {name}?", f"It is {values[name]}."))
    return Episode("Answer from the notes.", (), documents, tuple(questions))


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE of 512 with ChatML."""
    rng = random.Random(0)
    texts = []
    for _ in range(200):
        episode = make_episode(rng, num_documents=2, facts_per_document=4, split="train")
        texts += [d.text for d in episode.documents] + [q.text + q.answer for q in episode.questions]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
    )


def _word(rng: random.Random) -> str:
    return "".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(3)).capitalize()
