"""Every way of repair on a model: the same answer from any store, exact where it must be, reports that add up."""

from __future__ import annotations

import random

import pytest
import torch

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime.policy import parse_policy
from tests.runtime.models import FAMILIES, engine, make_prompt, segment_ids

REPAIRS = (
    "hypic:head_seam_by_kind=document=16",
    "hypic:head_seam_share=0.25,head_seam_max=20",
    "hypic:first_seam=24",
    "hypic:head_seam=0,tail_seam=0,lead_max=8",
    "hypic:lead_max=8,condition_on_system=false",
    "paper_code:lead_max=8",
    "hypic:recompute_pointed=0.3",
    "hypic:piece_len=16",
    "hypic:head_seam=3,tail_seam=0,lead_max=8,piece_len=16,recompute_pointed=0.2",
)
SYSTEM = segment_ids(random.Random(20), 20)
PARTS = [segment_ids(random.Random(n), n) for n in (40, 57, 90, 33)]
SAMPLING = SamplingParams(max_tokens=8)


def prompt_of(parts: list[tuple[int, ...]]) -> Prompt:
    """The question holds tokens of the second and the third part."""
    question = (7, 8, *PARTS[1][20:24], 9, *PARTS[2][50:53], 10, 11)
    return make_prompt(parts, system=SYSTEM, question=question)


@pytest.mark.parametrize("spec", REPAIRS)
def test_cold_equals_warm_and_any_mix(spec: str) -> None:
    prompt = prompt_of(PARTS)
    one = engine()
    cold = one.generate(prompt, SAMPLING, spec)
    warm = one.generate(prompt, SAMPLING, spec)
    assert warm.token_ids == cold.token_ids
    assert warm.report.cold_tokens == 0
    for known in ([PARTS[2], PARTS[0]], [PARTS[3]]):
        other = engine()
        other.generate(prompt_of(known), SAMPLING, spec)
        mixed = other.generate(prompt, SAMPLING, spec)
        assert mixed.token_ids == cold.token_ids
        assert mixed.report.live_tokens == cold.report.live_tokens
    one.store.check_integrity()


@pytest.mark.parametrize("spec", REPAIRS)
def test_reports_add_up(spec: str) -> None:
    prompt = prompt_of(PARTS)
    one = engine()
    for state in ("cold_tokens", "reused_tokens"):
        report = one.generate(prompt, SAMPLING, spec).report
        assert report.live_tokens == one.plan(prompt, spec).num_live
        assert report.live_tokens + getattr(report, state) == len(prompt)
        assert sum(span.composed_tokens for span in report.spans) == getattr(report, state)
        for span in report.spans:
            assert (span.state == "live") == bool(span.reason) == (span.composed_tokens == 0)


@pytest.mark.parametrize("spec", REPAIRS)
def test_reordering_keeps_every_hit(spec: str) -> None:
    if parse_policy(spec).first_seam:
        spec += ",first_seam=0"
    one = engine()
    one.generate(prompt_of(PARTS), SAMPLING, spec + ",recompute_pointed=0")
    for order in (PARTS[::-1], PARTS[2:] + PARTS[:2]):
        report = one.generate(prompt_of(order), SAMPLING, spec).report
        assert report.cold_tokens == 0
        assert report.reused_tokens > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("changes", ["", ",piece_len=32"])
def test_a_first_segment_behind_its_lead_is_exact_at_any_seam(family: str, changes: str) -> None:
    """It is built in its true context then, whatever stands between it and the system prompt."""
    one = engine(family)
    rng = random.Random(21)
    prompt = make_prompt([segment_ids(rng, 150)], system=segment_ids(rng, 30), glue=(5, 6, 12, 13))
    answer = segment_ids(rng, 6)
    exact = one.score([prompt], [answer], "exact")[0]
    for seam in (0, 8):
        spec = f"hypic:head_seam={seam},tail_seam=0,lead_max=4{changes}"
        assert (exact - one.score([prompt], [answer], spec)[0]).abs().max() < 1e-4
        assert one.plan(prompt, spec).num_live < 30
    without = one.score([prompt], [answer], f"hypic:head_seam=8,tail_seam=0,lead_max=0{changes}")[0]
    assert (exact - without).abs().max() > 1e-3


def test_pieces_compose_to_the_whole() -> None:
    """Cutting an interior changes what can be live, never what reuse computes."""
    one = engine()
    prompt, answer = prompt_of(PARTS), segment_ids(random.Random(22), 6)
    whole, cut = (one.score([prompt], [answer], spec)[0] for spec in ("hypic", "hypic:piece_len=16"))
    torch.testing.assert_close(whole, cut, rtol=1e-3, atol=1e-4)
    assert len(one.plan(prompt, "hypic:piece_len=16").builds) > len(one.plan(prompt, "hypic").builds)


def test_a_segment_at_which_the_question_points_says_so() -> None:
    report = engine().generate(prompt_of(PARTS), SAMPLING, "hypic:recompute_pointed=0.25").report
    assert [(span.state, span.reason) for span in report.spans] == [
        ("cold", ""),
        ("cold", ""),
        ("live", "the question points at it"),
        ("cold", ""),
        ("cold", ""),
    ]
