"""Train the tokenizer of the bundled model on generated text and save it as a transformers tokenizer.

    python -m training.tokenizer --out DIR

Byte-level BPE of 1,024 tokens without a normaliser: every text round-trips exactly.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hypic_agents.quality.worlds import make_episode, render_messages

VOCAB_SIZE = 1024
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ROLES = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
MARKS = ("<tool_call>", "</tool_call>", "<tools>", "</tools>", "<tool_response>", "</tool_response>")
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")

# Capitalised words and digits never take the space before them (the word or sign in front does): a name has the same
# tokens in a sentence, after a quote or a newline, and at the start of an answer, so copying it is copying tokens.
# Newlines stand alone: text after a document never changes the document's tokens.
_SPACE_AFTER = r"(?: (?=[\p{Lu}\p{N}]))?"
SPLIT = "|".join(
    (
        r" ?\p{Ll}+" + _SPACE_AFTER,
        r"\p{Lu}+\p{Ll}*" + _SPACE_AFTER,
        r"\p{N}",
        r" ?[^\s\p{Lu}\p{Ll}\p{N}]+" + _SPACE_AFTER,
        r"\n+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_PLAIN_ENGLISH = (
    "This is a short note about what an agent may read and write. It can call a tool, read a file, and answer. "
    "There is no answer in the text, so the answer is: not stated. We were not there when they came back. "
    "What do you know about it? Which one of them would you like to see? He said that she had been here before. "
    "import json\nclass Store:\n    def __init__(self, path):\n        self.path = path\n"
    "    if x == 1:\n        return None\n"
)


def texts(num_episodes: int, seed: int) -> Iterator[str]:
    """Chat turns, documents, answers and tool specs of ``num_episodes`` episodes, and a little plain English."""
    rng = random.Random(seed)
    template = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    template.chat_template = CHAT_TEMPLATE.read_text()
    for index in range(num_episodes):
        episode = make_episode(
            rng,
            num_documents=rng.randint(1, 5),
            facts_per_document=rng.randint(3, 6),
            split="train",
            num_questions=1 if index % 8 == 0 else None,
        )
        first, *others = episode.questions
        messages = [*render_messages(episode, first), {"role": "assistant", "content": first.answer}]
        for question in others:
            messages += [
                {"role": "user", "content": question.text},
                {"role": "assistant", "content": question.answer},
            ]
        # A tool spec costs many tokens in an episode; one spec in three keeps the words of documents in the lead.
        yield render(template, messages, episode.tools[: 1 if index % 3 else None])
        if index % 50 == 0:
            yield _PLAIN_ENGLISH


def render(template: PreTrainedTokenizerFast, messages: list[dict[str, Any]], tools: Sequence[Any]) -> str:
    """The chat as text."""
    return str(template.apply_chat_template(messages, tools=list(tools) or None, tokenize=False))


def train(num_episodes: int = 4000, seed: int = 0) -> PreTrainedTokenizerFast:
    """A tokenizer trained on ``num_episodes`` generated episodes; deterministic given ``seed``."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[*SPECIAL, *MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The trainer would count the marks' letters as words; the finished tokenizer never sees them as text.
    marks = (*SPECIAL, *MARKS)
    tokenizer.train_from_iterator((_without(text, marks) for text in texts(num_episodes, seed)), trainer)
    plain = [AddedToken(mark, special=False, normalized=False) for mark in MARKS]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_respecialised(tokenizer, plain),
        **ROLES,
        clean_up_tokenization_spaces=False,
        model_max_length=32768,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE.read_text()
    return fast


def _without(text: str, marks: tuple[str, ...]) -> str:
    for mark in marks:
        text = text.replace(mark, "\n")
    return text


def _respecialised(tokenizer: Tokenizer, plain: list[AddedToken]) -> Tokenizer:
    """The same tokenizer with ``plain`` tokens no longer special, so that decoding keeps them."""
    bare = Tokenizer(tokenizer.model)
    bare.pre_tokenizer, bare.decoder = tokenizer.pre_tokenizer, tokenizer.decoder
    bare.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIAL])
    bare.add_tokens(plain)
    return bare


def save(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer's files in the form that transformers 4 and 5 and other engines read."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    config.pop("backend", None)
    config_file.write_text(json.dumps(config, indent=2) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(ROLES, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the tokenizer's files to")
    parser.add_argument("--episodes", type=int, default=4000, help="generated episodes to train on")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tokenizer = train(args.episodes, args.seed)
    save(tokenizer, args.out)
    print(f"{len(tokenizer)} tokens written to {args.out}")


if __name__ == "__main__":
    main()
