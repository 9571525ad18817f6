from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from native_models import FAMILIES, examples_of, make_rows, write_checkpoint, write_rows
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM

from hypic_agents.core import SamplingParams
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from training.native.__main__ import main
from training.native.config import NativeConfig
from training.native.gap import engine_of
from training.native.model import load_trainable, save_adapters, save_model
from training.native.optimiser import Optimiser
from training.native.run import Run, settings_of
from training.native.stage import Inputs, train
from training.native.trainer import Trainer

# peft asks an untouched model by a name that transformers has renamed.
PEFT_ASKS = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
ON_CPU = {"dtype": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("native") / "model")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", make_rows(2))


def trainer_of(checkpoint: Path, data: Path, out: Path, **changes: Any) -> Trainer:
    settings: dict[str, Any] = {"steps": 100, "lr": 2e-3, "warmup_steps": 0, "tokens_per_step": 1, **changes}
    config = NativeConfig(**settings)
    trainable = load_trainable(str(checkpoint), config, **ON_CPU)
    run = Run(Optimiser(trainable.parameters(), config), settings_of(config))
    return Trainer(config, trainable, run, examples_of(data, checkpoint), out, tell=lambda _: None)


@pytest.mark.parametrize("lora", [0, 8])
def test_a_batch_is_learnt_in_both_modes(checkpoint: Path, tmp_path: Path, lora: int) -> None:
    data = write_rows(tmp_path / "one.jsonl", make_rows(1))
    trainer = trainer_of(checkpoint, data, tmp_path, lora=lora, steps=20, lr=1e-2 if lora else 2e-3, log_every_steps=2)
    assert trainer.loop()
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    for mode in ("ordinary", "isolated"):
        seen = [record[mode]["answer_loss"] for record in logged]
        assert len(seen) == 10
        assert seen[-1] < 0.3 * seen[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_adapter_learns_and_no_weight_moves(family: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", family)
    data = write_rows(tmp_path / "rows.jsonl", make_rows(2))
    trainer = trainer_of(checkpoint, data, tmp_path, lora=4, isolate_share=1.0, document_loss=0.0, distill=1.0)
    trainable = trainer.trainable
    before = {n: p.detach().clone() for n, p in trainable.hf.named_parameters() if not p.requires_grad}
    adapters = trainable.parameters()
    wrapped = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in adapters}
    fused = {"in_proj_qkvz", "in_proj_ba"}
    apart = {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"}
    assert wrapped == {
        *(fused if family == "qwen3_next" else apart),
        *("out_proj", "q_proj", "k_proj", "v_proj", "o_proj"),
        *(("gate_proj", "up_proj", "down_proj") if family == "qwen3_5" else ()),
    }
    seen: dict[str, float] = dict.fromkeys(adapters, 0.0)
    update = trainer.run.optimiser.step

    def watched(share: float) -> bool:
        for name, parameter in adapters.items():
            assert parameter.grad is not None, name
            seen[name] += float(parameter.grad.abs().sum())
        return update(share)

    trainer.run.optimiser.step = watched  # type: ignore[method-assign]
    for _ in range(3):  # the second matrix of a new adapter is zero, so the first learns from the second step on
        trainer.step(0.0)
    assert all(total > 0 for total in seen.values())
    for name, parameter in trainable.hf.named_parameters():
        if name in before:
            assert parameter.grad is None
            assert torch.equal(parameter, before[name]), name


@PEFT_ASKS
def test_adapters_and_the_merged_checkpoint_answer_alike(checkpoint: Path, rows: Path, tmp_path: Path) -> None:
    inputs = Inputs(str(checkpoint), rows, tmp_path / "out", merge=True, **ON_CPU)
    config = NativeConfig(steps=6, lr=1e-2, lora=4, warmup_steps=0, tokens_per_step=400)
    result = train(inputs, config, tell=lambda _: None)
    example = examples_of(rows, checkpoint)[0]
    ids = torch.tensor([[*example.prompt.token_ids, *example.answer_ids]])
    base = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    asked, at = ids[:, : len(example.prompt)], len(example.prompt) - 1
    with torch.no_grad():
        untouched = base(ids).logits
        adapters = PeftModel.from_pretrained(base, result["adapters"]).eval()
        adapted = adapters(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(result["model"]).eval()(ids).logits
        written = adapters.generate(input_ids=asked, max_new_tokens=4, do_sample=False, pad_token_id=0)[0, at + 1 :]
    torch.testing.assert_close(merged, adapted, rtol=1e-3, atol=1e-3)
    assert (merged - untouched).abs().max() > 0.1
    with Engine.load(result["model"], EngineConfig(model_dtype="float32", device="cpu")) as engine:
        (scored,) = engine.score([example.prompt], [example.answer_ids], "exact")
        torch.testing.assert_close(scored, adapted[0, at:-1], rtol=1e-3, atol=1e-3)
        answer = engine.generate(example.prompt, SamplingParams(max_tokens=4), "exact").token_ids
        ends = engine.tokenizer.eos_token_ids
    assert list(answer) == [token for token in written.tolist() if token not in ends]


@PEFT_ASKS
@pytest.mark.parametrize("family", FAMILIES[1:])
def test_adapters_and_merged_weights_of_experts_load_again(family: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", family)
    data = write_rows(tmp_path / "rows.jsonl", make_rows(1))
    trainer = trainer_of(checkpoint, data, tmp_path, lora=2, lr=1e-2)
    for _ in range(2):
        trainer.step(0.0)
    (example,) = trainer.examples
    asked = [example.prompt], [example.answer_ids]
    (here,) = engine_of(trainer.trainable, trainer.config.base_policy).score(*asked, "exact")
    save_adapters(trainer.trainable, tmp_path / "adapters")
    save_model(trainer.trainable, tmp_path / "merged")
    with Engine.load(str(tmp_path / "merged"), EngineConfig(model_dtype="float32", device="cpu")) as engine:
        (merged,) = engine.score(*asked, "exact")
    base = AutoModelForCausalLM.from_pretrained(checkpoint)
    ids = torch.tensor([[*example.prompt.token_ids, *example.answer_ids]])
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(base, tmp_path / "adapters").eval()(ids).logits[0]
    for there in (merged, adapted[len(example.prompt) - 1 : -1]):
        torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-3)


def test_a_resumed_run_ends_like_one_that_never_stopped(checkpoint: Path, rows: Path, tmp_path: Path) -> None:
    config = NativeConfig(steps=4, lr=1e-3, warmup_steps=2, tokens_per_step=300, log_every_steps=1, distill=0.5)

    def run(name: str, tell: Any, *, resume: bool = False) -> dict[str, Any]:
        return train(Inputs(str(checkpoint), rows, tmp_path / name, resume=resume, **ON_CPU), config, tell)

    def stop_at_two(line: str) -> None:
        if "event step | step 2" in line:
            os.kill(os.getpid(), signal.SIGTERM)

    whole = run("whole", lambda _: None)
    stopped = run("parts", stop_at_two)
    assert (stopped["finished"], stopped["steps"]) == (False, 2)
    assert "model" not in stopped
    with pytest.raises(InvalidInput, match="pass --resume"):
        run("parts", lambda _: None)
    resumed = run("parts", lambda _: None, resume=True)
    assert (resumed["finished"], resumed["steps"], resumed["tokens"]) == (True, 4, whole["tokens"])
    assert resumed["minutes"] >= stopped["minutes"]
    first, second = (AutoModelForCausalLM.from_pretrained(r["model"]).state_dict() for r in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    logged = [json.loads(line) for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in logged if record["event"] == "step"] == [1, 2, 3, 4]

    other = NativeConfig(steps=4, lr=2e-3, warmup_steps=2, tokens_per_step=300, distill=0.5)
    with pytest.raises(InvalidInput, match=r"lr=0.001, not 0.002"):
        train(Inputs(str(checkpoint), rows, tmp_path / "parts", resume=True, **ON_CPU), other, lambda _: None)
    with pytest.raises(InvalidInput, match="nothing to resume"):
        run("new", lambda _: None, resume=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"teacher": "base"}, {"teacher": "base", "lora": 8, "lr": 1e-2}, {"continue_len": 6}],
    ids=["own", "base", "adapters", "continued"],
)
def test_distillation_needs_no_answers(checkpoint: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    data = write_rows(tmp_path / "rows.jsonl", make_rows(2, answers=False))
    settings: dict[str, Any] = {"lr": 1e-3, "distill": 1.0, "isolate_share": 0.8, "document_loss": 0.05} | options
    config = NativeConfig(steps=10, warmup_steps=0, tokens_per_step=400, log_every_steps=1, head_seams=(8,), **settings)
    inputs = Inputs(str(checkpoint), data, tmp_path / "out", held_out=data, **ON_CPU)
    result = train(inputs, config, tell=lambda _: None)
    assert result["after"]["kl"] < 0.8 * result["before"]["kl"]
    assert result["before"]["full"] == 100.0  # what full recompute itself wrote
    logged = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    steps = [record for record in logged if record["event"] == "step"]
    assert not any("answer_loss" in record["isolated"] for record in steps)
    assert any("kl" in record["ordinary"] for record in steps) == ("teacher" in options)


def test_small_updates_of_bfloat16_weights_add_up() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimiser = Optimiser({"weight": weight}, NativeConfig(steps=1, lr=1e-4, weight_decay=0.0))
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        assert optimiser.step(1.0)
    assert weight.tolist() == pytest.approx([0.99] * 4, abs=0.004)
    weight.grad = torch.full_like(weight, float("nan"))
    assert not optimiser.step(1.0)
    assert weight.tolist() == pytest.approx([0.99] * 4, abs=0.004)


def test_schedules_and_the_mix_of_steps() -> None:
    linear = NativeConfig(steps=10, decay="linear", warmup_steps=4, final_lr_share=0.1)
    cosine = NativeConfig(steps=10, warmup_steps=0, final_lr_share=0.1)
    assert [linear.lr_share(step, 0.0) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert linear.lr_share(9, 0.5) == cosine.lr_share(9, 0.5) == pytest.approx(0.55)
    assert linear.lr_share(9, 1.5) == cosine.lr_share(9, 1.0) == pytest.approx(0.1)
    assert cosine.lr_share(0, 0.25) > linear.lr_share(9, 0.25)
    assert sum(NativeConfig(steps=1, isolate_share=0.3).is_isolated(step) for step in range(100)) == 30
    assert [NativeConfig(steps=1).is_isolated(step) for step in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"minutes": 2.0}, "either steps or minutes"),
        ({"lr": 0.0}, "lr=0.0: use a number above 0"),
        ({"isolate_share": 1.5}, "isolate_share=1.5: use a share"),
        ({"distill": -1.0}, "distill=-1.0: use 0 or more"),
        ({"head_seams": ()}, "head_seams is empty"),
        ({"policy": "exact"}, "composes nothing"),
        ({"policy": "hypicc"}, "unknown policy"),
    ],
)
def test_settings_that_no_run_could_use(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        NativeConfig(**({"steps": 1} | changes))


@pytest.mark.parametrize(
    ("rows", "changes", "complaint"),
    [
        (make_rows(1, answers=False), {}, "line 1 has no answer"),
        (make_rows(1, answers=False), {"distill": 1.0, "document_loss": 0.0}, "ordinary steps have nothing"),
        ([{"question": "Who?", "documents": ["Mira."], "answer": "Mira"}], {}, "shorter than min_segment_len"),
    ],
)
def test_data_that_a_run_could_not_learn_from(
    checkpoint: Path, tmp_path: Path, rows: list[dict[str, Any]], changes: dict[str, Any], complaint: str
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InvalidInput, match=complaint):
        trainer_of(checkpoint, data, tmp_path, **changes)


@pytest.fixture
def sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "sample.jsonl"
    assert main(["--write-sample", "3", "--data", str(path)]) == 0
    assert "3 rows" in capsys.readouterr().out
    return path


def test_command_line(sample: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["--model", str(checkpoint), "--data", str(sample), "--out", str(out), "--tokens-per-step", "1"]
    assert main([*command, "--steps", "2", "--eval", str(sample), "--lora", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["finished"]
    assert result["steps"] == 2
    assert {"full", "reuse", "gap", "zero_state", "kl"} <= result["after"].keys()
    assert (Path(result["adapters"]) / "adapter_model.safetensors").exists()
    # The run is at its end: more minutes are already spent, so nothing is trained and the table is shown again.
    assert main([*command, "--steps", "2", "--eval", str(sample), "--lora", "2", "--resume"]) == 0
    assert "before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "o", "--steps", "1"], "--model is missing"),
        (["--model", "tiny", "--steps", "1"], "--out is missing"),
        (["--model", "tiny", "--out", "o"], "--steps or --minutes"),
        (["--model", "tiny", "--out", "o", "--steps", "1", "--merge"], "nothing to merge"),
        (["--model", "tiny", "--out", "o", "--steps", "0"], "steps=0"),
        (["--model", "tiny", "--out", "{tmp}", "--steps", "1", "--device", "abacus"], "device='abacus' cannot be used"),
        (["--write-sample", "0"], "use 1 or more"),
    ],
)
def test_bad_commands_exit_with_2(
    arguments: list[str], complaint: str, sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*(word.format(tmp=tmp_path / "o") for word in arguments), "--data", str(sample)]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_model_that_does_not_exist(sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model", str(tmp_path / "none"), "--data", str(sample), "--out", str(tmp_path / "o"), "--steps", "1"]
    assert main(command) == 2
    assert "no model at" in capsys.readouterr().err
