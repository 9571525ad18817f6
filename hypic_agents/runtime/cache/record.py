"""An entry as a file and back, and what the disk tier knows of it without its payload. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from hypic_agents.core import Scope
from hypic_agents.runtime.cache.container import (
    DamagedFile,
    Layout,
    RawTensor,
    of_sequence,
    parse,
    parse_metadata,
    to_sequence,
)
from hypic_agents.runtime.cache.entry import Payload, SegmentEntry
from hypic_agents.runtime.cache.key import SegmentKey

FORMAT = "hypic-segment-2"
# The first has neither factored transitions nor known calls, and is otherwise the same.
_READABLE = {FORMAT, "hypic-segment-1"}
_IDS = "token_ids"
_CALLS = "known_calls"


class PayloadCodec(Protocol):
    """Turns payloads into named tensors and back. The store below it never looks inside."""

    def encode(self, payload: Payload) -> tuple[dict[str, Any], dict[str, RawTensor]]:
        """What to write: a JSON-ready description, and the tensors by name."""
        ...

    def decode(self, described: Mapping[str, Any], tensors: Mapping[str, RawTensor]) -> Payload:
        """The payload again. The tensors' memory is the caller's to keep.

        Raises:
            KeyError, TypeError, ValueError: this is not what :meth:`encode` wrote.
        """
        ...


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """Everything about an entry but its token ids and payload.

    Attributes:
        nbytes: Size of the payload in memory, in bytes.
        parts: Bytes of the file by what they hold (keys_values, transition, end_state, conv_tail, ...).
    """

    key: SegmentKey
    source_id: str
    version: str
    depends_on: tuple[tuple[str, str], ...]
    build_s: float
    nbytes: int
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        return ((self.source_id, self.version), *self.depends_on)

    def to_json(self) -> str:
        """One line that :meth:`from_json` reads; equal values give equal text."""
        key = self.key
        return json.dumps(
            {
                "model": key.model,
                "recipe": key.recipe,
                "tenant": key.scope.tenant,
                "groups": sorted(key.scope.groups),
                "digest": key.digest,
                "num_tokens": key.num_tokens,
                "source_id": self.source_id,
                "version": self.version,
                "depends_on": self.depends_on,
                "build_s": self.build_s,
                "nbytes": self.nbytes,
                "parts": self.parts,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> EntryInfo:
        """What :meth:`to_json` wrote.

        Raises:
            DamagedFile: something else.
        """
        try:
            raw = json.loads(text)
            key = SegmentKey(
                raw["model"],
                raw["recipe"],
                Scope(raw["tenant"], frozenset(raw["groups"])),
                raw["digest"],
                int(raw["num_tokens"]),
            )
            return cls(
                key,
                raw["source_id"],
                raw["version"],
                tuple((source_id, version) for source_id, version in raw["depends_on"]),
                float(raw["build_s"]),
                int(raw["nbytes"]),
                tuple((name, int(size)) for name, size in raw["parts"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"not the description of an entry: {error}") from error


def entry_name(key: SegmentKey) -> str:
    """The file name of a key, without its ending: 40 hex digits over every field."""
    fields = [key.model, key.recipe, key.scope.tenant, sorted(key.scope.groups), key.digest, key.num_tokens]
    return blake2b(json.dumps(fields).encode(), digest_size=20).hexdigest()


def to_file(entry: SegmentEntry, codec: PayloadCodec, known_calls: Sequence[int] = ()) -> tuple[EntryInfo, Layout]:
    """An entry's description, and the file that holds it.

    Args:
        entry: What to write.
        codec: Turns its payload into tensors.
        known_calls: Numbers of the invalidations that the entry is known to have outlived; only remote files have some.
    """
    described, tensors = codec.encode(entry.payload)
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        part = name.rpartition(".")[2]
        sizes[part] = sizes.get(part, 0) + len(tensor.data)
    info = EntryInfo(
        entry.key,
        entry.source_id,
        entry.version,
        entry.depends_on,
        entry.build_s,
        entry.nbytes,
        tuple(sorted(sizes.items())),
    )
    metadata = {"format": FORMAT, "entry": info.to_json(), "payload": json.dumps(described)}
    extra = {_CALLS: of_sequence(known_calls)} if known_calls else {}
    return info, Layout.of(metadata, {**tensors, _IDS: of_sequence(entry.token_ids), **extra})


def from_file(raw: bytearray, codec: PayloadCodec) -> tuple[SegmentEntry, frozenset[int]]:
    """The entry that a file holds, and its known calls; the payload may keep ``raw`` alive.

    Raises:
        DamagedFile: not a whole, unchanged file of this format.
    """
    metadata, tensors = parse(raw)
    info = _info(metadata)
    try:
        token_ids = to_sequence(tensors.pop(_IDS))
        known = frozenset(to_sequence(tensors.pop(_CALLS)) if _CALLS in tensors else ())
        payload = codec.decode(json.loads(metadata["payload"]), tensors)
        return SegmentEntry(
            info.key, token_ids, payload, info.source_id, info.version, info.depends_on, info.build_s
        ), known
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the payload cannot be read: {type(error).__name__}: {error}") from error


def info_of_file(head: bytes) -> EntryInfo:
    """The description at a file's beginning (its whole header); the checksum is not looked at.

    Raises:
        DamagedFile: no file of this format.
    """
    return _info(parse_metadata(head))


def _info(metadata: Mapping[str, str]) -> EntryInfo:
    if metadata.get("format") not in _READABLE:
        raise DamagedFile(f"format {metadata.get('format')!r} instead of {FORMAT!r}")
    return EntryInfo.from_json(metadata.get("entry", ""))
