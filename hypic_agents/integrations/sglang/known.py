"""What a client knows of servers' caches: which segments it sent, and which of them were invalidated since."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hypic_agents.core import Scope, Segment
from hypic_agents.errors import InvalidInput

GLUE: Final = Segment("")
"""Stands for text between segments, which belongs to no source."""

_DEFAULT_SCOPE = Scope()


def segment_key(segment: Segment) -> bytes:
    """What names a segment in its scope."""
    return digest(segment.text, _named(segment.scope))


def digest(*texts: str) -> bytes:
    """16 bytes that name a sequence of texts."""
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        hasher.update(len(raw).to_bytes(8, "little") + raw)
    return hasher.digest()


def prefix_digests(ids: Sequence[int], ends: Iterable[int]) -> Iterator[bytes]:
    """Names of ``ids[:end]`` for each of the ``ends``, which go upwards."""
    hasher = hashlib.blake2b(digest_size=16)
    at = 0
    for end in ends:
        hasher.update(array("q", ids[at:end]).tobytes())
        at = end
        yield hasher.digest()


def scoped(segments: Iterable[Segment], scope: Scope) -> Iterator[Segment]:
    """The segments, with the request's scope where they have none of their own."""
    for segment in segments:
        yield replace(segment, scope=scope) if segment.scope == _DEFAULT_SCOPE else segment


@dataclass(frozen=True, slots=True)
class Condition:
    """The conditions of one ``invalidate``; a segment must meet all.

    Raises:
        InvalidInput: No condition, or a version without its source.
    """

    source_id: str | None = None
    version_before: str | None = None
    tenant: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if self.version_before is not None and self.source_id is None:
            raise InvalidInput("version_before compares versions of one source: name it with source_id")
        if self.source_id is None and self.tenant is None and self.group is None:
            raise InvalidInput("invalidate needs a condition: source_id, tenant or group")

    def covers(self, segment: Segment) -> bool:
        """Whether the segment meets every condition; versions are compared as text."""
        return (
            self.covers_scope(segment.scope)
            and self.source_id in (None, segment.source_id)
            and (self.version_before is None or segment.version < self.version_before)
        )

    def covers_scope(self, scope: Scope) -> bool:
        """Whether it may concern anything of this scope."""
        return self.tenant in (None, scope.tenant) and (self.group is None or self.group in scope.groups)


class Salts:
    """Names the part of a stock server's cache that a request may use: ``cache_salt``.

    Scopes never share a salt. An invalidation changes the salt of every prompt it concerns, so that nothing computed
    before it is matched any more; other prompts keep theirs.
    """

    def __init__(self) -> None:
        self._epochs: dict[Condition, int] = {}
        self._num_invalidations = 0

    def invalidate(self, condition: Condition) -> None:
        self._num_invalidations += 1
        self._epochs[condition] = self._num_invalidations

    def salt(self, scope: Scope, segments: Iterable[Segment]) -> str | None:
        """None for the default scope as long as nothing that concerns it was invalidated."""
        held = list(scoped(segments, scope))
        scopes = {_named(one) for one in (scope, *(segment.scope for segment in held))}
        epochs = sorted(
            epoch
            for condition, epoch in self._epochs.items()
            if any(map(condition.covers, held)) or (condition.source_id is None and condition.covers_scope(scope))
        )
        if scopes == {_named(_DEFAULT_SCOPE)} and not epochs:
            return None
        return digest(json.dumps([sorted(scopes), epochs])).hex()


class SentSegments:
    """The segments that a server was sent, the oldest forgotten first."""

    def __init__(self, max_entries: int = 65_536) -> None:
        self._max_entries = max_entries
        self._segments: OrderedDict[bytes, Segment] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._segments

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, key: bytes, segment: Segment) -> None:
        self._segments[key] = segment
        self._segments.move_to_end(key)
        while len(self._segments) > self._max_entries:
            self._segments.popitem(last=False)

    def discard(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._segments.pop(key, None)

    def covered(self, condition: Condition) -> set[bytes]:
        """Keys of those that a condition covers."""
        return {key for key, segment in self._segments.items() if condition.covers(segment)}

    def clear(self) -> None:
        self._segments.clear()


def _named(scope: Scope) -> str:
    return json.dumps([scope.tenant, sorted(scope.groups)])
