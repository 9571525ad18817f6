"""How much of a prompt is reused, and how. Policies are data; presets name the useful points of the space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from hypic_agents.core import SegmentKind
from hypic_agents.errors import InvalidPolicy

Compose = Literal["transition", "addition", "last", "zero"]

_KINDS = get_args(SegmentKind)
_MIN_PIECE = 8


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    """One reuse policy. Lengths in tokens.

    Attributes:
        name: Shown in reports.
        compose: How a reused span acts on the incoming state ``S``: "transition" ``T S + S_zero`` (exact given the
            same layer inputs), "addition" ``S + S_zero``, "last" ``S_zero`` alone, "zero" a control in which every
            live span starts from a zero state.
        head_seam: Tokens at a segment's start computed live, with the true state, conv history and keys.
        head_seam_by_kind: Other head seams for some kinds, as sorted pairs; a mapping is taken too.
        head_seam_share: A head seam is at least this share of its segment's length, but for that no wider than
            ``head_seam_max``.
        head_seam_max: See ``head_seam_share``.
        first_seam: Least head seam of the first segment behind the system prompt (of the first of all without one).
            A segment has an entry of its own for that place.
        tail_seam: Tokens at a segment's end computed live.
        place_rope: Give cached keys their absolute positions; off only as an ablation.
        condition_on_system: Build segments behind the prompt's first system segment (its effect on the state is taken
            out again, its hash is part of the key) instead of alone.
        lead_max: Build segments also behind the last so many tokens before their block in the prompt: a role header,
            the words before tool specs. Each different lead makes entries of its own, so it must not hold what
            changes with every request.
        count_seam_twice: Compose the map of the whole segment after its live seam, as the published code of
            arXiv 2607.01299 does.
        min_segment_len: Segments with fewer tokens are computed live.
        live_kinds: Segments of these kinds are computed live, but for a leading system segment. By default what was
            said in a conversation: the answers among it were computed behind all before them when they were generated,
            and the next turn takes them from there. Without "turn", long turns are reused wherever they stand, such as
            behind a history that was cut at its front, and answers are computed a second time, apart.
        piece_len: Cut interiors at every multiple of this many tokens into entries of their own, so that a part of a
            segment can be live; 0 keeps them whole. Each piece stores a map of its own and is built from the
            segment's beginning.
        recompute_pointed: Share of the prompt's tokens that may be spent on interiors, or pieces of them, at which the
            question points: these are computed live. What is reused keeps its entries.
        recompute_max_len: Longer ones (tokens) are never recomputed for that reason.
        exact: Reuse no segment: full recompute.
        prefix: Reuse only what stands behind an identical beginning (exact); no segment is composed.
    """

    name: str = "hypic"
    compose: Compose = "transition"
    head_seam: int = 8
    head_seam_by_kind: tuple[tuple[SegmentKind, int], ...] = ()
    head_seam_share: float = 0.0
    head_seam_max: int = 64
    first_seam: int = 0
    tail_seam: int = 2
    place_rope: bool = True
    condition_on_system: bool = True
    lead_max: int = 0
    count_seam_twice: bool = False
    min_segment_len: int = 24
    live_kinds: tuple[SegmentKind, ...] = ("turn",)
    piece_len: int = 0
    recompute_pointed: float = 0.0
    recompute_max_len: int = 256
    exact: bool = False
    prefix: bool = False

    def __post_init__(self) -> None:
        if self.compose not in get_args(Compose):
            raise InvalidPolicy(f"compose={self.compose!r}: use transition, addition, last or zero")
        object.__setattr__(self, "head_seam_by_kind", _by_kind(self.head_seam_by_kind))
        object.__setattr__(self, "live_kinds", _kinds(self.live_kinds))
        for field in fields(self):
            _check(field.name, getattr(self, field.name), field.default)
        if self.exact and self.prefix:
            raise InvalidPolicy("exact and prefix exclude each other: exact reuses nothing, prefix reuses checkpoints")
        if 0 < self.piece_len < _MIN_PIECE:
            raise InvalidPolicy(f"piece_len={self.piece_len}: use 0 for whole segments, or {_MIN_PIECE} tokens or more")
        if self.piece_len and self.count_seam_twice:
            raise InvalidPolicy("count_seam_twice composes whole segments: leave out piece_len")

    def with_(self, **changes: Any) -> ReusePolicy:
        """A copy with other values; unknown names raise :class:`InvalidPolicy`."""
        known = {f.name for f in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise InvalidPolicy(f"unknown policy field {unknown[0]!r}; the fields are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; :meth:`from_dict` reads it."""
        return asdict(self) | {"head_seam_by_kind": dict(self.head_seam_by_kind)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReusePolicy:
        """A policy from plain data; fields that are left out have their defaults.

        Raises:
            InvalidPolicy: unknown field or bad value.
        """
        return cls().with_(**values)


def _by_kind(pairs: Mapping[str, int] | Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    try:
        given = [(kind, width) for kind, width in items]
    except (TypeError, ValueError):
        raise InvalidPolicy(f"head_seam_by_kind={pairs!r}: use pairs such as tool=16") from None
    for kind, width in given:
        if kind not in _KINDS:
            raise InvalidPolicy(f"head_seam_by_kind: unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
        _check(f"head_seam_by_kind: {kind}", width, 0)
    if len(dict(given)) < len(given):
        raise InvalidPolicy(f"head_seam_by_kind={given!r} names a kind twice")
    return tuple(sorted(given))


def _kinds(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidPolicy(f"live_kinds={given!r}: use a list of kinds")
    kinds = tuple(given)
    for kind in kinds:
        if kind not in _KINDS:
            raise InvalidPolicy(f"live_kinds: unknown kind {kind!r}; the kinds are {', '.join(_KINDS)}")
    return tuple(sorted(set(kinds)))


def _check(name: str, value: object, like: object) -> None:
    """Refuse a value that is not of the kind of ``like``, a field's default."""
    if isinstance(like, bool):
        if not isinstance(value, bool):
            raise InvalidPolicy(f"{name}={value!r}: use true or false")
    elif isinstance(like, int):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidPolicy(f"{name}={value!r}: use a whole number of tokens, 0 or more")
    elif isinstance(like, float):
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise InvalidPolicy(f"{name}={value!r}: use a share between 0 and 1")
    elif isinstance(like, str) and not isinstance(value, str):
        raise InvalidPolicy(f"{name}={value!r}: use text")


# The end of one ChatML message and the header of the next. More would take in what was said before, and entries that
# are built behind changing words are found by no other request.
LEAD_MAX = 5

_UNCONDITIONED = ReusePolicy(condition_on_system=False)

PRESETS: dict[str, ReusePolicy] = {
    "hypic": ReusePolicy(lead_max=LEAD_MAX),
    "exact": ReusePolicy(name="exact", exact=True),
    "prefix": ReusePolicy(name="prefix", prefix=True),
    "addition": _UNCONDITIONED.with_(name="addition", compose="addition", head_seam=0, tail_seam=0),
    "last_state": _UNCONDITIONED.with_(name="last_state", compose="last", head_seam=0, tail_seam=0),
    "transition_no_seam": _UNCONDITIONED.with_(name="transition_no_seam", head_seam=0, tail_seam=0),
    "paper_code": _UNCONDITIONED.with_(name="paper_code", tail_seam=0, count_seam_twice=True),
    "zero_state": ReusePolicy(name="zero_state", compose="zero", lead_max=LEAD_MAX),
}


def parse_policy(spec: str | ReusePolicy) -> ReusePolicy:
    """A preset by name, optionally with changes: ``hypic``, ``hypic:head_seam=4,condition_on_system=false``.

    Several kinds are joined by a plus sign: ``hypic:head_seam_by_kind=tool=16+file=4,live_kinds=turn+trace``.

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
    """The text as what it looks like; the policy itself checks that the field takes it."""
    if key in ("compose", "name"):
        return raw
    if key == "head_seam_by_kind":
        pairs = [part.partition("=") for part in raw.split("+")]
        return [(kind.strip(), _value(f"{key}: {kind.strip()}", width.strip())) for kind, _, width in pairs]
    if key == "live_kinds":
        return [kind.strip() for kind in raw.split("+")] if raw else []
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    for number in (int, float):
        try:
            return number(raw)
        except ValueError:
            continue
    raise InvalidPolicy(f"{key}={raw!r}: use a number, true or false")
