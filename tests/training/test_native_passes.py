from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from native_models import FAMILIES, examples_of, make_rows, write_checkpoint, write_rows

from hypic_agents.runtime.config import EngineConfig, ReusePolicy, parse_policy
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.plan import make_plan
from training.native.config import NativeConfig
from training.native.examples import Example
from training.native.losses import losses_of
from training.native.model import Trainable, load_trainable
from training.native.passes import Predictions, isolated_pass, ordinary_pass
from training.native.targets import ANSWER, Wanted, count_targets, in_passes

POLICIES = (
    "hypic",
    "hypic:condition_on_system=false",
    "hypic:head_seam=0,tail_seam=0",
    "hypic:head_seam=16,tail_seam=5",
    "zero_state",
    "addition",
    "hypic:piece_len=16,lead_max=8",
    "paper_code",
)
ALL = Wanted(document=True, distilled=False)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("native")
    return {family: write_checkpoint(base / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def examples(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    path = write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", make_rows(3))
    return examples_of(path, checkpoints["qwen3_5"])


def loaded(path: Path, **changes: Any) -> Trainable:
    return load_trainable(str(path), NativeConfig(steps=1, **changes), dtype="float32", device="cpu")


def at_answers(made: Predictions) -> torch.Tensor:
    return made.logits[made.kinds == ANSWER].detach()


@pytest.mark.parametrize("family", FAMILIES)
def test_passes_are_those_of_the_engine(family: str, checkpoints: dict[str, Path], examples: list[Example]) -> None:
    trainable = loaded(checkpoints[family])
    with Engine.load(str(checkpoints[family]), EngineConfig(model_dtype="float32", device="cpu")) as engine:
        for spec in ("exact", *(POLICIES if family == "qwen3_5" else POLICIES[:2])):
            policy = parse_policy(spec)
            plans = [make_plan(example.prompt, policy) for example in examples]
            asked = ([e.prompt for e in examples], [e.answer_ids for e in examples])
            expected = torch.cat(engine.score(*asked, policy))
            forward = ordinary_pass if policy.exact else isolated_pass
            for wanted in (ALL, Wanted(document=False, distilled=False)):
                made = forward(trainable.model, examples, plans, wanted)
                torch.testing.assert_close(at_answers(made), expected, rtol=1e-3, atol=1e-3)
            assert made.owners == tuple(i for i, e in enumerate(examples) for _ in e.answer_ids)


def test_predictions_meet_their_targets(checkpoints: dict[str, Path], examples: list[Example]) -> None:
    trainable = loaded(checkpoints["qwen3_5"])
    plans = [make_plan(example.prompt, parse_policy("hypic")) for example in examples]
    made = ordinary_pass(trainable.model, examples, plans, ALL)
    for owner, example in enumerate(examples):
        ids = [*example.prompt.token_ids, *example.answer_ids]
        documents = [p for s in example.prompt.spans[1:] for p in range(s.start, s.end)]
        mine = [t for t, o in zip(made.tokens.tolist(), made.owners, strict=True) if o == owner]
        assert mine == [ids[p] for p in documents] + list(example.answer_ids)


def shares(trainable: Trainable, examples: Sequence[Example], policy: ReusePolicy, tokens: int) -> list[torch.Tensor]:
    """Gradients of one isolated step cut into passes of ``tokens``."""
    plans = [make_plan(example.prompt, policy) for example in examples]
    counts = count_targets(examples, plans, ALL, isolated=True)
    trainable.hf.zero_grad()
    total = 0.0
    for group in in_passes(examples, tokens):
        made = isolated_pass(trainable.model, [examples[i] for i in group], [plans[i] for i in group], ALL)
        loss, _ = losses_of(made, None, counts, NativeConfig(steps=1))
        loss.backward()
        total += loss.item()
    return [torch.tensor(total), *(p.grad.clone() for p in trainable.parameters().values() if p.grad is not None)]


def test_gradients_do_not_depend_on_the_passes_or_on_kept_activations(
    checkpoints: dict[str, Path], examples: list[Example]
) -> None:
    trainable = loaded(checkpoints["qwen3_5"])
    again = [*examples, examples[0]]  # equal builds of one pass are made once, and count for both
    policy = parse_policy("hypic")
    together = shares(trainable, again, policy, 10_000)
    lean = loaded(checkpoints["qwen3_5"], recompute_layers=True)
    for other in (shares(trainable, again, policy, 1), shares(lean, again, policy, 10_000)):
        assert len(other) == len(together)
        for a, b in zip(together, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(a.abs().max()) + 1e-7)


def test_gradients_of_an_isolated_pass_follow_its_loss(checkpoints: dict[str, Path], examples: list[Example]) -> None:
    """A loss on answers alone, moved through the documents' affine maps, keys and values, against differences."""
    trainable = loaded(checkpoints["qwen3_5"])
    plans = [make_plan(example.prompt, parse_policy("hypic")) for example in examples]
    wanted = Wanted(document=False, distilled=False)
    counts = count_targets(examples, plans, wanted, isolated=True)

    def loss() -> torch.Tensor:
        made = isolated_pass(trainable.model, examples, plans, wanted)
        return losses_of(made, None, counts, NativeConfig(steps=1))[0]

    for name in ("layers.0.linear_attn.in_proj_qkv.weight", "layers.1.self_attn.k_proj.weight"):
        parameter = next(p for n, p in trainable.parameters().items() if n.endswith(name))
        trainable.hf.zero_grad()
        loss().backward()
        assert parameter.grad is not None
        direction = parameter.grad / parameter.grad.norm()
        slope = float((parameter.grad * direction).sum())
        with torch.no_grad():
            values = []
            for step in (0.01, -0.02):
                parameter += step * direction
                values.append(loss().item())
            parameter += 0.01 * direction
        assert (values[0] - values[1]) / 0.02 == pytest.approx(slope, rel=0.03)
