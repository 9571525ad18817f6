"""Reasons for misses, most specific first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.explain import explain_miss
from hypic_agents.runtime.cache.invalidation import Invalidation
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.record import entry_name
from hypic_agents.runtime.compact import Compaction
from tests.runtime.cache.blobs import Blob, open_tier

SCOPE = Scope("t")
IDS = (1, 2, 3)
KEY = SegmentKey.of(IDS, model="m", recipe="head=8,prefix=aa", scope=SCOPE)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (KEY, ""),
        (replace(KEY, scope=Scope("u")), "it is stored in another scope only"),
        (replace(KEY, model="n"), "it was built by another model, or in another precision"),
        (replace(KEY, recipe="head=8,prefix=bb"), "it was built behind another system prompt"),
        (
            replace(KEY, recipe=KEY.recipe + Compaction("int8").recipe),
            "it was stored under another state_numbers, drop_transition_below or transition_low_rank_within",
        ),
        (replace(KEY, recipe="head=9,prefix=aa"), "it was built under a policy with other seams"),
        (
            SegmentKey.of((1, 2), model="m", recipe=KEY.recipe, scope=SCOPE),
            (
                "its text, or what leads to it in the prompt, changed: its source is stored with other tokens "
                "(version '1'), 3 of them instead of 2"
            ),
        ),
        (
            SegmentKey.of((1, 2), model="m", recipe="head=8,prefix=bb", scope=SCOPE),
            "its source was built behind another system prompt",
        ),
        (SegmentKey.of((1, 2), model="m", recipe="", scope=Scope("u")), "its source is stored in another scope only"),
        (
            SegmentKey.of((1, 2), model="n", recipe="", scope=SCOPE),
            "its source was built by another model, or in another precision",
        ),
    ],
)
def test_what_differs_is_named(tmp_path: Path, key: SegmentKey, reason: str) -> None:
    tier = open_tier(tmp_path)
    tier.write(SegmentEntry(KEY, IDS, Blob(b"x"), "a", "1"), tier.position)
    assert explain_miss(key, "a", tier.rows(), tier.departures()) == reason
    other = replace(key, digest="0" * 64)
    assert explain_miss(other, "b", tier.rows(), tier.departures()) == "it was never stored"
    tier.close()


@pytest.mark.parametrize("how", ["evicted", "invalidated", "damaged", "missing", "swept out"])
def test_why_it_left_is_remembered(tmp_path: Path, how: str) -> None:
    tier = open_tier(tmp_path)
    tier.write(SegmentEntry(KEY, IDS, Blob(b"x"), "a"), tier.position)
    path = tmp_path / "segments" / f"{entry_name(KEY)}.safetensors"
    match how:
        case "evicted":
            tier.evict(1)
        case "invalidated":
            tier.invalidate(Invalidation(source_id="a"))
        case "damaged":
            path.write_bytes(b"x")
            tier.read(KEY, IDS)
        case "missing":
            path.unlink()
            tier.read(KEY, IDS)
        case _:
            tier.remove({entry_name(KEY)}, how)
    words = {"missing": "taken away"}.get(how, how)
    assert words in explain_miss(KEY, "a", tier.rows(), tier.departures())
    tier.close()
