"""Why a segment is not in a store's directory. Pure; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.record import EntryInfo, entry_name
from hypic_agents.runtime.cache.rows import Departure, IndexRow

_GONE = {
    "evicted": "it was evicted to make room; raise disk_bytes",
    "invalidated": "it was invalidated",
    "damaged": "its file was damaged and dropped",
    "missing": "its file was taken away",
}


def explain_miss(key: SegmentKey, source_id: str, rows: Sequence[IndexRow], departures: Sequence[Departure]) -> str:
    """The likeliest reason why ``key`` is not found; empty if it is.

    Args:
        key: What a request asks for.
        source_id: Where its text comes from; empty if unknown.
        rows: What the directory holds.
        departures: What left it, latest first.
    """
    name = entry_name(key)
    if any(row.name == name for row in rows):
        return ""
    for gone in departures:
        if gone.name == name:
            return _GONE.get(gone.reason, f"it left: {gone.reason}")
    held = [row.info for row in rows if row.info is not None]
    same_text = [info for info in held if (info.key.digest, info.key.num_tokens) == (key.digest, key.num_tokens)]
    if same_text:
        return _other_build(key, same_text)
    same_source = [info for info in held if source_id and info.source_id == source_id]
    if same_source:
        return _other_text(key, same_source)
    return "it was never stored"


def _other_build(key: SegmentKey, held: Sequence[EntryInfo]) -> str:
    """The same tokens are there, under a key that differs in the first of these."""
    visible = [info for info in held if info.key.scope == key.scope]
    if not visible:
        return "it is stored in another scope only"
    built = [info for info in visible if info.key.model == key.model]
    if not built:
        return "it was built by another model, or in another precision"
    if any(_as_built(info.key.recipe) == _as_built(key.recipe) for info in built):
        return "it was stored under another state_numbers, drop_transition_below or transition_low_rank_within"
    if _prefix(built[0].key.recipe) != _prefix(key.recipe):
        return "it was built behind another system prompt"
    return "it was built under a policy with other seams"


def _other_text(key: SegmentKey, held: Sequence[EntryInfo]) -> str:
    visible = [info for info in held if info.key.scope == key.scope]
    if not visible:
        return "its source is stored in another scope only"
    if all(info.key.model != key.model for info in visible):
        return "its source was built by another model, or in another precision"
    if all(_prefix(info.key.recipe) != _prefix(key.recipe) for info in visible):
        return "its source was built behind another system prompt"
    shown = ", ".join(dict.fromkeys(f"version {info.version!r}" if info.version else "" for info in visible))
    tokens = ", ".join(str(info.key.num_tokens) for info in visible[:3])
    about = f" ({shown.strip(', ')})" if shown.strip(", ") else ""
    return (
        f"its text, or what leads to it in the prompt, changed: its source is stored with other tokens{about}, "
        f"{tokens} of them instead of {key.num_tokens}"
    )


def _prefix(recipe: str) -> str:
    return _as_built(recipe).rpartition("prefix=")[2]


def _as_built(recipe: str) -> str:
    """The recipe without how the payload was rounded."""
    return recipe.partition(",numbers=")[0]
