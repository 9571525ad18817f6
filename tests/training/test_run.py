from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.config import Level, TrainConfig
from training.curriculum import Curriculum, StepPlan
from training.encode import Encoder
from training.export import export
from training.plain_forward import forward
from training.scoring import loss_of, outcomes
from training.train import Trainer, build

CONFIG = replace(
    TrainConfig(),
    hidden_size=32,
    mlp_size=48,
    num_heads=2,
    num_kv_heads=2,
    head_dim=16,
    memories=(20.0, 1500.0),
    write_gates=(0.0, -2.0),
    tokens_per_step=400,
    log_every_steps=2,
    eval_questions=2,
    eval_level=Level(2, 2),
)


def make_trainer(out: Path) -> Trainer:
    return build(CONFIG, out, 0, forward, toy.make_tokenizer(), toy.make_episode, toy.TASKS)


def test_learning_rate_warms_up_holds_and_decays() -> None:
    config = TrainConfig()
    assert config.lr_share(0, 0.0) == pytest.approx(1 / 50)
    assert config.lr_share(500, 0.25) == 1.0
    assert config.lr_share(500, 0.65) == pytest.approx(0.51)
    assert config.lr_share(500, 1.2) == pytest.approx(config.final_lr_share)


def test_curriculum_rises_on_ordinary_copying_and_then_isolates() -> None:
    curriculum = Curriculum(replace(CONFIG, min_level_steps=3))
    right = [("single", True)] * 30
    ordinary, isolated = StepPlan(0, False, 8, True), StepPlan(0, True, 8, True)
    assert not any(curriculum.update(isolated, right, 0.0) for _ in range(5))
    assert not any(curriculum.plan(random.Random(i), can_isolate=True).isolated for i in range(20))
    assert [curriculum.update(ordinary, right, 0.0) for _ in range(2)] == [False, True]
    plans = [curriculum.plan(random.Random(i), can_isolate=True) for i in range(400)]
    assert sum(p.isolated for p in plans) / 400 == pytest.approx(CONFIG.isolate_share, abs=0.1)
    assert sum(p.level == 0 for p in plans) / 400 == pytest.approx(CONFIG.earlier_share, abs=0.08)
    assert not any(curriculum.plan(random.Random(i), can_isolate=False).isolated for i in range(20))


def test_plain_pass_scores_each_question() -> None:
    tokenizer = toy.make_tokenizer()
    trainer_model = build(CONFIG, Path("unused"), 0, forward, tokenizer, toy.make_episode, toy.TASKS).run.model
    encoder = Encoder(tokenizer)
    examples = []
    for i in (1, 2):
        episode = toy.make_episode(random.Random(i), num_documents=i, facts_per_document=2, split="train")
        examples.append(encoder.encode(episode, is_blind=lambda _, blind=i == 2: blind))
    output = forward(trainer_model, [e.sequence for e in examples])
    alone = forward(trainer_model, [examples[1].sequence])
    torch.testing.assert_close(output.logits[-len(alone.targets) :], alone.logits, rtol=1e-4, atol=1e-4)
    assert [task for task, _ in outcomes(output, examples)] == [t for e in examples for t in e.tasks]
    loss, answer, document = loss_of(output, 0.2)
    assert loss.item() == pytest.approx(answer + 0.2 * document, rel=1e-5)
    # Whatever the documents say, tokens after them see it through the recurrent state only.
    free = forward(trainer_model, [replace(examples[1].sequence, blind=())])
    last = examples[1].sequence.spans[-1][1]
    torch.testing.assert_close(free.logits[: last - 1], alone.logits[: last - 1])
    assert not torch.allclose(free.logits[last:], alone.logits[last:], atol=1e-3)


def test_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    first = make_trainer(tmp_path)
    first.step(0.0)
    first.run.save(tmp_path / "checkpoint.pt")
    first.step(0.1)
    second = make_trainer(tmp_path)
    second.run.load(tmp_path / "checkpoint.pt")
    assert second.run.step == 1
    second.step(0.1)
    for a, b in zip(first.run.model.parameters(), second.run.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_short_run_logs_and_exports(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.loop(3.0)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"step", "eval"} <= {event["event"] for event in events}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_export_round_trip(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    tokenizer = trainer.sampler.encoder.tokenizer
    export(trainer.run.model, tokenizer, tmp_path / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert loaded.dtype == torch.float32
    chat = [{"role": "user", "content": "What is the code of Bado?"}]
    again = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = again.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    assert ids.tolist()[0] == tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, trainer.run.model.eval()(ids).logits)
