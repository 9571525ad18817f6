"""How much of a prompt is reused, and how. Policies are data; presets name the useful points of the space."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from hypic_agents.errors import InvalidPolicy

Compose = Literal["transition", "addition", "last", "zero"]


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    """One reuse policy. Lengths in tokens.

    Attributes:
        name: Shown in reports.
        compose: How a reused span acts on the incoming state ``S``: "transition" ``T S + S_zero`` (exact given the
            same layer inputs), "addition" ``S + S_zero``, "last" ``S_zero`` alone, "zero" a control in which every
            live span starts from a zero state.
        head_seam: Tokens at a segment's start computed live, with the true state, conv history and keys.
        tail_seam: Tokens at a segment's end computed live.
        place_rope: Give cached keys their absolute positions; off only as an ablation.
        condition_on_system: Build segments behind the prompt's first system segment (its effect on the state is taken
            out again, its hash is part of the key) instead of alone.
        count_seam_twice: Compose the map of the whole segment after its live seam, as the published code of
            arXiv 2607.01299 does.
        min_segment_len: Segments with fewer tokens are computed live.
        exact: Reuse no segment: full recompute.
        prefix: Reuse only what stands behind an identical beginning (exact); no segment is composed.
    """

    name: str = "hypic"
    compose: Compose = "transition"
    head_seam: int = 8
    tail_seam: int = 2
    place_rope: bool = True
    condition_on_system: bool = True
    count_seam_twice: bool = False
    min_segment_len: int = 24
    exact: bool = False
    prefix: bool = False

    def __post_init__(self) -> None:
        if self.compose not in ("transition", "addition", "last", "zero"):
            raise InvalidPolicy(f"compose={self.compose!r}: use transition, addition, last or zero")
        for name in ("head_seam", "tail_seam", "min_segment_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidPolicy(f"{name}={value!r}: use a whole number of tokens, 0 or more")
        if self.exact and self.prefix:
            raise InvalidPolicy("exact and prefix exclude each other: exact reuses nothing, prefix reuses checkpoints")

    def with_(self, **changes: Any) -> ReusePolicy:
        """A copy with other values; unknown names raise :class:`InvalidPolicy`."""
        known = {f.name for f in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise InvalidPolicy(f"unknown policy field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_UNCONDITIONED = ReusePolicy(condition_on_system=False)

PRESETS: dict[str, ReusePolicy] = {
    "hypic": ReusePolicy(),
    "exact": ReusePolicy(name="exact", exact=True),
    "prefix": ReusePolicy(name="prefix", prefix=True),
    "addition": _UNCONDITIONED.with_(name="addition", compose="addition", head_seam=0, tail_seam=0),
    "last_state": _UNCONDITIONED.with_(name="last_state", compose="last", head_seam=0, tail_seam=0),
    "transition_no_seam": _UNCONDITIONED.with_(name="transition_no_seam", head_seam=0, tail_seam=0),
    "paper_code": _UNCONDITIONED.with_(name="paper_code", tail_seam=0, count_seam_twice=True),
    "zero_state": ReusePolicy(name="zero_state", compose="zero"),
}


def parse_policy(spec: str | ReusePolicy) -> ReusePolicy:
    """A preset by name, optionally with changes: ``hypic``, ``hypic:head_seam=4,condition_on_system=false``.

    Raises:
        InvalidPolicy: unknown preset or field, or a value of the wrong type.
    """
    if isinstance(spec, ReusePolicy):
        return spec
    name, _, changes = spec.partition(":")
    if name not in PRESETS:
        raise InvalidPolicy(f"unknown policy {name!r}; the presets are {', '.join(PRESETS)}")
    values: dict[str, Any] = {}
    for part in filter(None, changes.split(",")):
        key, equals, raw = part.partition("=")
        if not equals:
            raise InvalidPolicy(f"policy change {part!r} has no value; write field=value")
        values[key.strip()] = _value(key.strip(), raw.strip())
    return PRESETS[name].with_(**({"name": spec} | values)) if values else PRESETS[name]


def _value(key: str, raw: str) -> Any:
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    if raw.isdigit():
        return int(raw)
    if key in ("compose", "name"):
        return raw
    raise InvalidPolicy(f"{key}={raw!r}: use a whole number, true or false")
