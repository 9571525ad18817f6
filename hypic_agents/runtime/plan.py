"""From a prompt to what is live and what is reused. A pure function of prompt and policy: no torch, no store.

A plan never depends on what is cached, so a cold request and a warm one run the same plan and answer the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypic_agents.core import Prompt, Scope, SegmentSpan
from hypic_agents.runtime.cache.key import RunningDigest, SegmentKey, build_recipe, digest_ids, narrowest
from hypic_agents.runtime.lead import Lead, find_leads
from hypic_agents.runtime.pointed import find_pointed
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.seam import Interior, find_pieces

MIN_PREFIX = 8
MAX_HEADER = 8


@dataclass(frozen=True, slots=True)
class Build:
    """How one entry is made: everything but the model.

    Attributes:
        token_ids: Standalone tokens up to the interior's end (the tail seam is never computed), behind the lead if the
            policy has one.
        head: Where the interior, and with it keys and values, begins in ``token_ids``.
        map_from: Where the affine map begins: ``head``, or the segment's first token for the published code's rule.
        prefix_ids: Tokens the segment is built behind; empty if it is built alone.
        scope: Who may see all that shapes the entry.
        depends_on: Sources of what else shapes it.
        is_prefix: An exact prefix checkpoint: the state itself is kept, no map.
        prefix_digest: Of ``prefix_ids``; computed if it is not given.
    """

    token_ids: tuple[int, ...]
    head: int
    map_from: int
    prefix_ids: tuple[int, ...]
    scope: Scope
    source_id: str = ""
    version: str = ""
    depends_on: tuple[tuple[str, str], ...] = ()
    is_prefix: bool = False
    prefix_digest: str = field(default="", compare=False, repr=False)
    recipe: str = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        # Hashed once, when the plan is made: every later look at the key is cheap.
        kind = "prefix" if self.is_prefix else "segment"
        if self.prefix_ids and not self.prefix_digest:
            object.__setattr__(self, "prefix_digest", digest_ids(self.prefix_ids))
        recipe = build_recipe(prefix=self.prefix_digest, kind=kind, head=self.head, map_from=self.map_from)
        object.__setattr__(self, "recipe", recipe)
        object.__setattr__(self, "digest", digest_ids(self.token_ids))

    @property
    def num_reused(self) -> int:
        return len(self.token_ids) - self.head

    def key(self, model: str) -> SegmentKey:
        return SegmentKey(model, self.recipe, self.scope, self.digest, len(self.token_ids))


@dataclass(frozen=True, slots=True)
class LiveSpan:
    """Prompt positions ``[start, end)`` computed for this request."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReusedSpan:
    """Prompt positions ``[start, end)`` taken from the entry that ``build`` makes."""

    start: int
    end: int
    build: Build


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """What the plan decided for one segment span; ``reason`` is empty where any of it is reused.

    ``reused`` is all that is, unless the policy cuts interiors into pieces: then the first piece, and ``further`` holds
    the others.
    """

    span: SegmentSpan
    reused: ReusedSpan | None
    reason: str = ""
    further: tuple[ReusedSpan, ...] = ()

    @property
    def pieces(self) -> tuple[ReusedSpan, ...]:
        """All that is reused of the segment, in order."""
        return () if self.reused is None else (self.reused, *self.further)


@dataclass(frozen=True, slots=True)
class Plan:
    """Live and reused spans in prompt order, covering each position exactly once."""

    spans: tuple[LiveSpan | ReusedSpan, ...]
    notes: tuple[SegmentNote, ...]
    policy: ReusePolicy

    @property
    def builds(self) -> tuple[Build, ...]:
        return tuple(span.build for span in self.spans if isinstance(span, ReusedSpan))

    @property
    def num_live(self) -> int:
        return sum(span.end - span.start for span in self.spans if isinstance(span, LiveSpan))


def make_plan(prompt: Prompt, policy: ReusePolicy) -> Plan:
    """Decide which positions are live and which are reused. The last position is always live."""
    if policy.exact:
        exact = tuple(SegmentNote(span, None, "policy is exact") for span in prompt.spans)
        return Plan((LiveSpan(0, len(prompt)),), exact, policy)
    if policy.prefix:
        return _prefix_plan(prompt, policy)
    spans = list(prompt.spans)
    prefix = _first_system(prompt)
    notes = [] if prefix is None else [SegmentNote(spans.pop(0), prefix)]
    condition = prefix.build if prefix is not None and policy.condition_on_system else None
    # What stays live whatever it is must not lead to anything else: a question becomes an earlier turn later on, and
    # the plan of what stood before stays as it was.
    said = [
        SegmentNote(span, None, "its kind is live under this policy")
        for span in spans
        if span.segment.kind in policy.live_kinds
    ]
    spans = [span for span in spans if span.segment.kind not in policy.live_kinds]
    pieces = [find_pieces(span, policy, len(prompt), first=i == 0) for i, span in enumerate(spans)]
    pointed = find_pointed(prompt, policy, spans, pieces)
    live = [note.span for note in said]
    leads = find_leads(prompt, spans, prefix.end if prefix is not None else 0, policy.lead_max, live)
    notes += said
    for span, one, lead in zip(spans, pieces, leads, strict=True):
        if isinstance(one, str):
            notes.append(SegmentNote(span, None, one))
            continue
        kept = [_reused(span, piece, policy, condition, lead) for piece in one if piece not in pointed]
        if kept:
            notes.append(SegmentNote(span, kept[0], further=tuple(kept[1:])))
        else:
            notes.append(SegmentNote(span, None, "the question points at it"))
    notes.sort(key=lambda note: note.span.start)
    return Plan(_fill([one for note in notes for one in note.pieces], len(prompt)), tuple(notes), policy)


def _reused(
    span: SegmentSpan, interior: Interior, policy: ReusePolicy, condition: Build | None, lead: Lead
) -> ReusedSpan:
    segment, scope = span.segment, span.segment.scope
    # What is built behind a text is for those who may see both; where it is not known who does, it is built alone.
    if condition is not None:
        joint = narrowest([scope, condition.scope])
        scope, condition = (joint, condition) if joint is not None else (scope, None)
    joint = narrowest([scope, *lead.scopes])
    scope, lead = (joint, lead) if joint is not None else (scope, Lead())
    head = len(lead.token_ids) + interior.head
    build = Build(
        token_ids=lead.token_ids + span.token_ids[: interior.stop],
        head=head,
        map_from=len(lead.token_ids) if policy.count_seam_twice else head,
        prefix_ids=condition.token_ids if condition else (),
        scope=scope,
        source_id=segment.source_id,
        version=segment.version,
        depends_on=((condition.source_id, condition.version), *lead.sources) if condition else lead.sources,
        prefix_digest=condition.digest if condition else "",
    )
    return ReusedSpan(interior.start, interior.end, build)


def _first_system(prompt: Prompt) -> ReusedSpan | None:
    """The prompt's beginning up to the end of a leading system segment: an exact prefix.

    None where more than a role header stands before the segment: the builder leaves clocks and ids live, and a prefix
    that took them in would be another one for every request. A role header is the chat template's, and nobody's text.
    """
    if not prompt.spans or prompt.spans[0].segment.kind != "system" or prompt.spans[0].start > MAX_HEADER:
        return None
    end = prompt.spans[0].end
    if end < MIN_PREFIX or end >= len(prompt):
        return None
    return _prefix_span(prompt, 0, end, prompt.spans[0], prompt.spans[0].segment.scope)


def _prefix_span(
    prompt: Prompt, start: int, end: int, span: SegmentSpan, scope: Scope, before_digest: str = ""
) -> ReusedSpan:
    segment = span.segment
    build = Build(
        token_ids=prompt.token_ids[start:end],
        head=0,
        map_from=0,
        prefix_ids=prompt.token_ids[:start],
        scope=scope,
        source_id=segment.source_id,
        version=segment.version,
        depends_on=tuple((s.segment.source_id, s.segment.version) for s in prompt.spans if s.end < end),
        is_prefix=True,
        prefix_digest=before_digest,
    )
    return ReusedSpan(start, end, build)


def _prefix_plan(prompt: Prompt, policy: ReusePolicy) -> Plan:
    """One checkpoint at the end of every segment span: each is reusable only behind all before it."""
    notes: list[SegmentNote] = []
    at = 0
    scopes = set() if prompt.scope is None else {prompt.scope}
    before, before_digest = RunningDigest(), ""
    for span in prompt.spans:
        scopes.add(span.segment.scope)
        scope = narrowest(scopes)
        if span.end >= len(prompt):
            notes.append(SegmentNote(span, None, "nothing stands behind it"))
        elif span.end - at < MIN_PREFIX:
            notes.append(SegmentNote(span, None, "too short"))
        elif scope is None:
            notes.append(SegmentNote(span, None, "it stands behind texts of another scope"))
        else:
            notes.append(SegmentNote(span, _prefix_span(prompt, at, span.end, span, scope, before_digest)))
            before_digest = before.extend(prompt.token_ids[at : span.end])
            at = span.end
    return Plan(_fill([one for note in notes for one in note.pieces], len(prompt)), tuple(notes), policy)


def _fill(reused: list[ReusedSpan], length: int) -> tuple[LiveSpan | ReusedSpan, ...]:
    spans: list[LiveSpan | ReusedSpan] = []
    at = 0
    for one in reused:
        if one.start > at:
            spans.append(LiveSpan(at, one.start))
        spans.append(one)
        at = one.end
    if at < length:
        spans.append(LiveSpan(at, length))
    return tuple(spans)
