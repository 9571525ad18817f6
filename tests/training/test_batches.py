from __future__ import annotations

import random

import pytest
import torch
import toy

from training.batches import Sampler, held_out
from training.config import Level, TrainConfig
from training.encode import Encoder
from training.plain_forward import attention_mask


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(toy.make_tokenizer())


def test_masks_cover_answers_and_spans_cover_documents(encoder: Encoder) -> None:
    episode = toy.make_episode(random.Random(1), num_documents=3, facts_per_document=4, split="train", num_questions=5)
    example = encoder.encode(episode)
    s, decode = example.sequence, encoder.tokenizer.decode
    assert decode(s.token_ids) == encoder.render(episode)
    answers = decode([i for i, wanted in zip(s.token_ids, s.answer_mask, strict=True) if wanted])
    assert answers == "".join(q.answer + "<|im_end|>" for q in episode.questions)
    assert len(s.spans) == 3
    for (start, end), document in zip(s.spans, episode.documents, strict=True):
        text = decode(s.token_ids[start:end])
        assert text in document.text
        assert len(text) >= len(document.text) - 3
    assert episode.system in decode(s.token_ids[: s.prefix_end])
    assert "Note 1" not in decode(s.token_ids[: s.prefix_end])
    assert not any(s.answer_mask[: s.spans[-1][1]])
    assert example.tasks == tuple(q.task for q in episode.questions)
    assert len(example.question_of_target) == sum(s.answer_mask)


def test_blind_questions_see_no_document_and_others_do(encoder: Encoder) -> None:
    episode = toy.make_episode(random.Random(1), num_documents=2, facts_per_document=4, split="train", num_questions=5)
    tasks = {question.task for question in episode.questions}
    assert len(tasks) > 1
    chosen = min(tasks)
    example = encoder.encode(episode, is_blind=lambda question: question.task == chosen)
    s = example.sequence
    assert len(s.blind) == sum(task == chosen for task in example.tasks)
    for (start, end), question in zip(s.blind, [q for q in episode.questions if q.task == chosen], strict=True):
        text = encoder.tokenizer.decode(s.token_ids[start:end])
        assert question.text in text
        assert text.endswith(question.answer + "<|im_end|>")
    mask = attention_mask([s], len(s.token_ids))[0, 0]
    blind = torch.zeros(len(s.token_ids), dtype=torch.bool)
    for start, end in s.blind:
        blind[start:end] = True
    first, stop = s.spans[0]
    later = torch.arange(len(s.token_ids)) >= s.spans[-1][1]
    assert not mask[blind][:, first:stop].any()
    assert mask[later & ~blind][:, first:stop].all()


def test_masks_survive_text_beyond_ascii(encoder: Encoder) -> None:
    document = toy.Document("  Žofia’s code is „müße“ 🎈.")
    episode = toy.Episode("Réponds.", (), (document,), (toy.Question("single", "What?", "„müße“ 🎈"),))
    s = encoder.encode(episode).sequence
    answer = [i for i, wanted in zip(s.token_ids, s.answer_mask, strict=True) if wanted]
    assert encoder.tokenizer.decode(answer) == "„müße“ 🎈<|im_end|>"


def test_an_answer_missing_from_the_chat_is_an_error(encoder: Encoder) -> None:
    class Dropping(Encoder):
        def render(self, episode: object) -> str:
            return super().render(episode).replace("It is", "It was")

    episode = toy.make_episode(
        random.Random(1), num_documents=1, facts_per_document=2, split="train", tasks=("single",)
    )
    with pytest.raises(ValueError, match="is not in the rendered chat"):
        Dropping(encoder.tokenizer).encode(episode)


def test_steps_fill_the_budget_with_the_mix_of_the_recipe(encoder: Encoder) -> None:
    config = TrainConfig()
    sampler = Sampler(config, encoder, toy.make_episode, toy.TASKS)
    rng = random.Random(0)
    early = [e for _ in range(10) for e in sampler.batch(0, rng, 2000).examples]
    assert "running" not in {task for e in early for task in e.tasks}
    assert not any(e.sequence.blind for e in early)
    batches = [sampler.batch(3, rng, 3000) for _ in range(30)]
    assert sum(b.num_tokens for b in batches) / len(batches) == pytest.approx(3000, rel=0.1)
    examples = [e for b in batches for e in b.examples]
    assert sum(len(e.tasks) == 1 for e in examples) / len(examples) == pytest.approx(config.single_share, abs=0.1)
    state = [task == "running" for e in examples for task in e.tasks]
    assert 0.25 < sum(state) / len(state) < 0.6
    blind = sum(len(e.sequence.blind) for e in examples)
    assert blind / sum(state) == pytest.approx(config.blind_share, abs=0.1)


def test_a_step_follows_from_its_rng(encoder: Encoder) -> None:
    sampler = Sampler(TrainConfig(), encoder, toy.make_episode, toy.TASKS)
    first, again, other = (sampler.batch(2, random.Random(seed), 900) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_held_out_has_enough_questions_of_each_task(encoder: Encoder) -> None:
    examples = held_out(encoder, toy.make_episode, toy.TASKS, Level(2, 3), questions_per_task=6)
    tasks = [task for e in examples for task in e.tasks]
    assert all(tasks.count(task) >= 6 for task in toy.TASKS)
