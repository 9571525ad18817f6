"""Policies: plain data that can be hashed, written and read back, and that refuses what makes no sense."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import SegmentKind
from hypic_agents.errors import InvalidPolicy
from hypic_agents.runtime.policy import LEAD_MAX, PRESETS, ReusePolicy, parse_policy

kinds = st.sampled_from(get_args(SegmentKind))
shares = st.floats(0, 1, allow_nan=False)
any_policy = st.builds(
    ReusePolicy,
    head_seam=st.integers(0, 40),
    head_seam_by_kind=st.dictionaries(kinds, st.integers(0, 40), max_size=3),
    live_kinds=st.lists(kinds, max_size=3),
    head_seam_share=shares,
    head_seam_max=st.integers(0, 80),
    first_seam=st.integers(0, 80),
    tail_seam=st.integers(0, 6),
    condition_on_system=st.booleans(),
    lead_max=st.integers(0, 40),
    min_segment_len=st.integers(0, 40),
    piece_len=st.sampled_from([0, 8, 13, 32]),
    recompute_pointed=shares,
    recompute_max_len=st.integers(0, 300),
)


@given(any_policy)
def test_json_gives_the_same_policy_back(policy: ReusePolicy) -> None:
    again = ReusePolicy.from_dict(json.loads(json.dumps(policy.to_dict())))
    assert again == policy
    assert hash(again) == hash(policy)


@given(any_policy)
def test_every_field_can_be_written_as_a_change_of_a_preset(policy: ReusePolicy) -> None:
    special = ("name", "compose", "head_seam_by_kind", "live_kinds")
    given_fields = {name: value for name, value in policy.to_dict().items() if name not in special}
    changes = [f"{name}={str(value).lower()}" for name, value in given_fields.items()]
    changes.append("live_kinds=" + "+".join(policy.live_kinds))
    if policy.head_seam_by_kind:
        changes.append("head_seam_by_kind=" + "+".join(f"{kind}={width}" for kind, width in policy.head_seam_by_kind))
    assert parse_policy("hypic:" + ",".join(changes)).with_(name="hypic") == policy


@given(st.dictionaries(kinds, st.integers(0, 40), min_size=2))
def test_the_order_of_kinds_does_not_matter(widths: dict[SegmentKind, int]) -> None:
    backwards = dict(reversed(widths.items()))
    assert ReusePolicy().with_(head_seam_by_kind=widths) == ReusePolicy().with_(head_seam_by_kind=backwards)


def test_the_presets_use_no_repair_but_leads() -> None:
    for name, policy in PRESETS.items():
        assert not policy.head_seam_by_kind
        assert (policy.head_seam_share, policy.first_seam) == (0, 0)
        assert policy.lead_max == (LEAD_MAX if name in ("hypic", "zero_state") else 0)
        assert (policy.piece_len, policy.recompute_pointed) == (0, 0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hypic:head_seam_by_kind=tool", "head_seam_by_kind: tool=''"),
        ("hypic:head_seam_by_kind=tol=4", "unknown kind 'tol'; the kinds are system, tool"),
        ("hypic:head_seam_by_kind=tool=4+tool=5", "names a kind twice"),
        ("hypic:live_kinds=tern", "live_kinds: unknown kind 'tern'; the kinds are system, tool"),
        ("hypic:head_seam_by_kind=tool=-4", "tool=-4: use a whole number"),
        ("hypic:head_seam_share=1.5", "head_seam_share=1.5: use a share between 0 and 1"),
        ("hypic:recompute_pointed=nan", "recompute_pointed=nan"),
        ("hypic:recompute_pointed=true", "recompute_pointed=True: use a share"),
        ("hypic:head_seam=2.5", "head_seam=2.5: use a whole number"),
        ("hypic:exact=1", "exact=1: use true or false"),
        ("hypic:piece_len=4", "piece_len=4: use 0 for whole segments, or 8 tokens or more"),
        ("paper_code:piece_len=32", "leave out piece_len"),
    ],
)
def test_bad_changes_are_refused_with_the_value_and_the_remedy(spec: str, message: str) -> None:
    with pytest.raises(InvalidPolicy, match=message):
        parse_policy(spec)


@pytest.mark.parametrize(
    "values",
    [
        {"head_seam_by_kind": 3},
        {"head_seam_by_kind": ["tool"]},
        {"live_kinds": 3},
        {"live_kinds": "turn"},
        {"name": 3},
        {"sea": 1},
    ],
)
def test_bad_data_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        ReusePolicy.from_dict(values)
