"""What must hold at any size: exact at layer 0, drift below it, composing closer than adding, the head worst."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hypic_agents.bench.paper import latency, run
from hypic_agents.bench.paper.deviation import POLICIES
from hypic_agents.bench.paper.findings import Experiment, finding, tables, tally
from hypic_agents.bench.paper.probe import attention_scores, first_attention_layer
from hypic_agents.bench.paper.seam_sweep import ALONE, BOTH_ENDS, CONDITIONED, _beyond
from hypic_agents.bench.paper.states import prefill
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.core import SamplingParams
from hypic_agents.errors import HypicError, InvalidInput
from hypic_agents.runtime.state import KVBuffer
from tests.bench.paper.conftest import SETUP, SMALL, load

Run = Callable[[str], Experiment]


def rows_where(made: Experiment, table: int = 0, **wanted: Any) -> list[dict[str, Any]]:
    rows = list(made["details"].values())[table]
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize("name", run.NAMES)
def test_an_experiment_is_plain_data(run_once: Run, name: str) -> None:
    made = run_once(name)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["findings"]
    for one in made["findings"]:
        assert list(one) == ["what", "theirs", "ours", "holds", "rule"]
        assert one["holds"] is None or one["theirs"] is not None
        assert one["rule"] or one["holds"] is None
    for rows in made["details"].values():
        assert len({tuple(row) for row in rows}) == 1
    assert all(0 <= error <= 0.05 for error in made["agreement"].values())
    assert made["source"] and made["setting"] and tables(made)


@pytest.mark.parametrize(("model", "chunk"), [("tiny", None), (SMALL, 64)])
def test_layer_0_is_exact_and_drift_grows(run_once: Run, model: str, chunk: int | None) -> None:
    rows = rows_where(run_once("fidelity"), model=model, chunk=chunk, dtype="float32", compose="transition")
    exact = [row for row in rows if row["seam"] >= 3]
    assert len(exact) == 8
    for row in exact:
        assert row["layer_0"] < 1e-5
        assert row["last_layer"] > 10 * row["layer_0"]
    # Without the conv's history the very first layer is off, whatever the transition.
    assert all(row["layer_0"] > 1e-3 for row in rows if row["seam"] == 0)


@pytest.mark.parametrize(("model", "chunk"), [("tiny", None), (SMALL, 32), (SMALL, 64)])
def test_composing_beats_adding(run_once: Run, model: str, chunk: int | None) -> None:
    made = run_once("fidelity")
    shared = {"model": model, "chunk": chunk, "dtype": "float32", "attention": "on", "built": "alone", "seam": 3}
    (added,), (composed,) = (rows_where(made, **shared, compose=rule) for rule in ("addition", "transition"))
    assert added["layer_0"] > 1000 * composed["layer_0"]
    assert added["all_layers"] > 2 * composed["all_layers"]


def test_attention_carries_drift_of_its_own(run_once: Run) -> None:
    made = run_once("fidelity")
    with_it, without = (
        rows_where(made, model="tiny", dtype="float32", attention=on, built="alone", seam=3, compose="transition")[0]
        for on in ("on", "off")
    )
    assert with_it["layer_0"] == pytest.approx(without["layer_0"], rel=0.05)  # rounding, of float32
    assert with_it["last_layer"] != without["last_layer"]


def test_the_sweep_comes_closer_with_the_seam(run_once: Run) -> None:
    made = run_once("seam-sweep")
    (full,) = rows_where(made, built="full recompute")
    assert full["kl"] == 0
    assert full["top1_agreement"] == full["live"] == 1
    for built in (ALONE, BOTH_ENDS, CONDITIONED):
        swept = rows_where(made, built=built)
        assert [row["width"] for row in swept] == [0, 8, 32]
        assert [row["live"] for row in swept] == sorted(row["live"] for row in swept)
        assert swept[-1]["kl"] < swept[0]["kl"]
    (added,) = rows_where(made, built="naive addition")
    (composed,) = rows_where(made, built=ALONE, width=0)
    assert added["kl"] > composed["kl"] > 0
    assert added["live"] == composed["live"]


def test_deviation_sits_at_the_head_and_the_seam_mends_it(run_once: Run) -> None:
    made = run_once("deviation")
    zones = {row["policy"]: row for row in rows_where(made)}
    assert list(zones) == [policy.name for policy in POLICIES]
    bare, repaired = zones["alone, no seam"], zones["alone, seam 8"]
    for kind in ("key", "score", "probability"):
        assert bare[f"{kind}_head"] > bare[f"{kind}_middle"] > 0
        assert repaired[f"{kind}_head"] < bare[f"{kind}_head"]
    curve = rows_where(made, 1)
    assert [row["position"] for row in curve] == list(range(64))
    assert all(row["alone, seam 8"] < row["alone, no seam"] for row in curve[:8])


def test_probed_scores_are_those_of_attention() -> None:
    """The values mixed by the probed probabilities give what the layer itself hands on."""
    with load("tiny", "float32") as engine:
        prompt = SETUP.ask(engine, 1, 0)[0].prompt
        mixer = first_attention_layer(engine)
        kept: list[torch.Tensor] = []
        attend = mixer._attend

        def keep(*args: Any) -> torch.Tensor:
            kept.append(attend(*args))
            return kept[-1]

        mixer._attend = keep  # type: ignore[method-assign]
        scores = attention_scores(engine, mixer, prompt, "exact", rows=5)
        buffer = prefill(engine, prompt, "exact").layers[mixer.layer_idx]
        assert isinstance(buffer, KVBuffer)
        values = buffer.values[: buffer.length]
        groups = scores.raw.shape[0] // values.shape[1]
        mixed = torch.einsum("hqk,khd->qhd", scores.probabilities, values.repeat_interleave(groups, dim=1))
        torch.testing.assert_close(mixed, kept[0][-5:], rtol=1e-4, atol=1e-5)
        assert not mixer._forward_pre_hooks


def test_latency_rows_say_what_was_timed(run_once: Run) -> None:
    made = run_once("latency")
    sizes = SETUP.sizes
    by_length, by_count = made["details"].values()
    assert [row["segment_tokens"] for row in by_length] == list(sizes.lengths)
    assert [row["segments"] for row in by_count] == list(sizes.counts)
    for row in (*by_length, *by_count):
        assert row["prompt_tokens"] == 32 + row["segments"] * (row["segment_tokens"] + 1) + 64
        assert row["live_tokens"] < row["prompt_tokens"]
        assert 0 < row["warm_fastest_s"] <= row["warm_s"] <= row["warm_slowest_s"]
        assert row["warm_speedup"] == pytest.approx(row["full_s"] / row["warm_s"])
    assert made["agreement"]["warm_and_cold"] <= 1e-4


def test_latency_refuses_segments_in_another_state() -> None:
    with load(SMALL, "float32") as engine:
        prompt = Prompts(Shape(2, 48), engine.model.vocab_size, 0).shuffled()
        first, second = (engine.generate(prompt, SamplingParams(max_tokens=1), "hypic") for _ in range(2))
    latency.require_states([first], "cold")
    latency.require_states([second], "hit")
    with pytest.raises(HypicError, match="of 3 segments 0 were 'hit'"):
        latency.require_states([second, first], "hit")


def test_a_model_that_disagrees_with_itself_is_not_measured() -> None:
    """A model whose second pass differs from its first stops every experiment that times or compares it."""

    def broken(name: str, dtype: str) -> Any:
        engine = load(name, dtype)
        mixer = engine.model.mixers[0]
        mixer.register_forward_hook(lambda _, __, out: out + 0.1 * torch.randn_like(out))
        return engine

    for name in ("fidelity", "deviation", "seam-sweep", "latency"):
        with pytest.raises(HypicError, match="differ by"):
            run.run(replace(SETUP, load=broken), [name])


def test_a_transition_costs_what_table_3_says(run_once: Run) -> None:
    sizes = run_once("building")["findings"][:3]
    assert [(one["theirs"], one["ours"], one["holds"]) for one in sizes] == [
        (4, 4, True),
        (256, 256, True),
        (32768, 32768, True),
    ]


def test_choosing_experiments() -> None:
    assert run.choose(None) == run.NAMES
    assert run.choose(["seam-sweep", "fixed-decay"]) == ("fixed-decay", "seam-sweep")
    with pytest.raises(InvalidInput, match="unknown experiment 'speed'; the experiments are fixed-decay"):
        run.choose(["speed"])


@pytest.mark.parametrize(
    ("margin", "changed", "verdict"), [(10.0, 0, True), (-10.0, 4, False), (3.0, 4, None), (0.0, 0, None)]
)
def test_points_within_the_noise_decide_nothing(margin: float, changed: int, verdict: bool | None) -> None:
    right = [True] * 100
    assert _beyond(margin, right, [False] * changed + right[changed:]) is verdict


def test_tally_counts_the_statements() -> None:
    made = {"findings": [finding("a", 1, 1, True, "r"), finding("b", 1, 2, False, "r"), finding("c", None, 1, None)]}
    assert tally({"x": made, "y": made}) == {
        "statements_that_hold": 2,
        "statements_that_do_not": 2,
        "findings_without_verdict": 2,
    }
