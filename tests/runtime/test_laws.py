"""The laws, on random models of every architecture against the untouched transformers forward."""

from __future__ import annotations

import copy
import itertools
import random

import pytest
import torch

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.registry import wrap
from hypic_agents.runtime.policy import PRESETS
from tests.runtime.models import FAMILIES, engine, hybrid, make_prompt, reference, segment_ids

LENGTHS = (1, 2, 5, 63, 64, 65, 200)
LAYOUTS = ("llfl", "lflf", "flll", "lllf", "ll")
UNLIMITED = "hypic:head_seam=100000"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", LENGTHS)
def test_law_1_exact_logits_equal_transformers(family: str, length: int) -> None:
    ids = segment_ids(random.Random(length), length)
    with torch.inference_mode():
        expected = reference(family)(torch.tensor([ids])).logits[0]
        ours = hybrid(family).forward([Row((LiveRun(0, ids),), logits_from=length)]).logits
    assert (ours - expected).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_law_1_greedy_tokens_equal_transformers_over_64_steps(family: str) -> None:
    ids = segment_ids(random.Random(7), 150)
    with torch.inference_mode():
        out = reference(family).generate(
            torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    one = engine(family)
    one.tokenizer = _never_ends(one.tokenizer)
    done = one.generate(Prompt(ids), SamplingParams(max_tokens=64), "exact")
    assert done.token_ids == tuple(out[0, len(ids) :].tolist())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", [(1, 17, 64, 130, 3), (64, 64), (16, 16, 16), (1, 1)], ids=str)
def test_law_1_batched_rows_do_not_touch_each_other(family: str, lengths: tuple[int, ...]) -> None:
    rng = random.Random(3)
    rows = [segment_ids(rng, n) for n in lengths]
    with torch.inference_mode():
        ours = hybrid(family).forward([Row((LiveRun(0, ids),)) for ids in rows]).logits
        for got, ids in zip(ours, rows, strict=True):
            expected = reference(family)(torch.tensor([ids])).logits[0, -1]
            assert (got - expected).abs().max() < 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("condition", [True, False])
def test_law_2_unlimited_seam_equals_full_recompute(layout: str, condition: bool) -> None:
    one = engine("qwen3_5", layout)
    rng = random.Random(11)
    prompt = make_prompt([segment_ids(rng, n) for n in (40, 90, 33)], system=segment_ids(rng, 20))
    answer = segment_ids(rng, 6)
    policy = f"{UNLIMITED},condition_on_system={condition}"
    exact, reused = (one.score([prompt], [answer], p)[0] for p in ("exact", policy))
    assert (exact - reused).abs().max() < 1e-4
    # Here nothing but the exact prefix is left to reuse; the next test leaves interiors.
    assert one.plan(prompt, policy).num_live == len(prompt) - 21


@pytest.mark.parametrize("family", FAMILIES)
def test_law_2_a_first_segment_behind_its_true_prefix_is_exact_at_any_seam(family: str) -> None:
    """The first document behind the system prompt is built in its true context, but for the glue between them."""
    one = engine(family)
    rng = random.Random(12)
    prompt = make_prompt([segment_ids(rng, 150)], system=segment_ids(rng, 30), glue=())
    answer = segment_ids(rng, 6)
    for seam in (0, 3, 8, 64):
        exact, reused = (one.score([prompt], [answer], p)[0] for p in ("exact", f"hypic:head_seam={seam}"))
        assert (exact - reused).abs().max() < 1e-4
        assert one.plan(prompt, f"hypic:head_seam={seam}").num_live < 100


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("policy", [p for p in PRESETS if p != "exact"])
def test_law_3_cold_equals_warm_and_any_mix(family: str, policy: str) -> None:
    rng = random.Random(13)
    system = segment_ids(rng, 20)
    parts = [segment_ids(rng, n) for n in (40, 57, 90, 33)]
    prompt = make_prompt(parts, system=system)
    sampling = SamplingParams(max_tokens=12)
    one = engine(family)
    cold = one.generate(prompt, sampling, policy)
    warm = one.generate(prompt, sampling, policy)
    assert cold.token_ids == warm.token_ids
    for known in ([parts[0]], [parts[2], parts[1]]):
        other = engine(family)
        other.generate(make_prompt(known, system=system), sampling, policy)
        other.generate(make_prompt([parts[3]], system=segment_ids(rng, 25)), sampling, policy)
        assert other.generate(prompt, sampling, policy).token_ids == cold.token_ids


def test_law_4_reordering_keeps_every_hit() -> None:
    one = engine()
    rng = random.Random(14)
    system = segment_ids(rng, 20)
    parts = [segment_ids(rng, n) for n in (40, 57, 90)]
    first = one.generate(make_prompt(parts, system=system))
    for order in itertools.permutations(parts):
        report = one.generate(make_prompt(list(order), system=system)).report
        assert [s.state for s in report.spans] == ["hit"] * 4
        assert (report.cold_tokens, report.reused_tokens) == (0, first.report.cold_tokens)


def test_composition_is_what_full_recompute_is_not() -> None:
    """The controls differ from each other and from full recompute: no test above passes because nothing is reused."""
    one = engine()
    rng = random.Random(15)
    prompt = make_prompt([segment_ids(rng, n) for n in (60, 60, 60)], system=segment_ids(rng, 20))
    answer = segment_ids(rng, 4)
    logits = {name: one.score([prompt], [answer], name)[0] for name in PRESETS if name != "prefix"}
    for a, b in itertools.combinations(logits, 2):
        assert (logits[a] - logits[b]).abs().max() > 1e-4, (a, b)


def test_prefix_policy_is_exact() -> None:
    one = engine()
    rng = random.Random(16)
    system = segment_ids(rng, 20)
    parts = [segment_ids(rng, n) for n in (40, 57, 90)]
    sampling = SamplingParams(max_tokens=12)
    one.generate(make_prompt(parts, system=system), sampling, "prefix")
    prompt = make_prompt([parts[0], parts[2], parts[1]], system=system)
    got = one.generate(prompt, sampling, "prefix")
    assert got.token_ids == one.generate(prompt, sampling, "exact").token_ids
    assert [s.state for s in got.report.spans] == ["hit", "hit", "live", "live"]


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_stays_within_rounding_of_transformers(family: str) -> None:
    plain = copy.deepcopy(reference(family)).to(torch.bfloat16)
    ours = wrap(copy.deepcopy(plain))
    ids = segment_ids(random.Random(17), 120)
    with torch.inference_mode():
        exact = reference(family)(torch.tensor([ids])).logits[0]
        expected = plain(torch.tensor([ids])).logits[0].float()
        got = ours.forward([Row((LiveRun(0, ids),), logits_from=len(ids))]).logits.float()
    # bfloat16 itself is off by this much; ours may not be further from the truth than transformers'.
    assert (got - exact).abs().mean() < 1.2 * (expected - exact).abs().mean()


def _never_ends(tokenizer: ChatTokenizer) -> ChatTokenizer:
    free = copy.copy(tokenizer)
    free.eos_token_ids = frozenset()
    return free
