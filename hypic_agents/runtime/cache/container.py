"""One safetensors file whose last tensor is a checksum of everything before it. No torch.

The layout is safetensors' own (8 bytes of header length, a JSON header, the tensors without gaps), so any reader of
that format opens these files. The last 16 bytes, a tensor named ``checksum``, are the XXH3 digest (128 bits, canonical
byte order) of all bytes before them, header included: no damage passes unnoticed, and looking for it takes less time
than copying the bytes. It is no signature. Files whose checksum has 32 bytes were written by earlier versions, with
BLAKE2b, and are read as well.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from math import prod
from typing import Any, Protocol

from xxhash import xxh3_128

ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1}
CHECKSUM = "checksum"
_DIGEST_BYTES = 16

Buffer = bytes | bytearray | memoryview


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...

    def digest(self) -> bytes: ...


# By the bytes of the checksum.
_HASHES: Mapping[int, Callable[[], _Hash]] = {_DIGEST_BYTES: xxh3_128, 32: partial(blake2b, digest_size=32)}


class DamagedFile(Exception):
    """The bytes are not what was written; the message says where it shows."""


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as bytes: little-endian, contiguous, ``dtype`` by safetensors' name.

    Raises:
        ValueError: dtype, shape and data do not fit together.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Buffer

    def __post_init__(self) -> None:
        if len(self.data) != ITEM_BYTES[self.dtype] * prod(self.shape):
            raise ValueError(f"{len(self.data)} bytes for a tensor {self.dtype}{list(self.shape)}")


@dataclass(frozen=True, slots=True)
class Layout:
    """A file about to be written: its header, and the tensors in file order."""

    header: bytes
    tensors: tuple[RawTensor, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, str], tensors: Mapping[str, RawTensor]) -> Layout:
        """Lay out tensors by falling item size, so that each is aligned, and the checksum last.

        They begin at a multiple of 64 bytes, as vector instructions like it.
        """
        ordered = sorted(tensors.items(), key=lambda item: -ITEM_BYTES[item[1].dtype])
        fields: dict[str, Any] = {"__metadata__": dict(metadata)}
        at = 0
        for name, tensor in ordered:
            end = at + len(tensor.data)
            fields[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
            at = end
        fields[CHECKSUM] = {"dtype": "U8", "shape": [_DIGEST_BYTES], "data_offsets": [at, at + _DIGEST_BYTES]}
        text = json.dumps(fields, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        return cls(struct.pack("<Q", len(text)) + text, tuple(tensor for _, tensor in ordered))

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return len(self.header) + sum(len(tensor.data) for tensor in self.tensors) + _DIGEST_BYTES

    def pieces(self) -> Iterator[Buffer]:
        """The file's bytes, in order."""
        digest = xxh3_128()
        for piece in (self.header, *(tensor.data for tensor in self.tensors)):
            digest.update(piece)
            yield piece
        yield digest.digest()


def parse(raw: bytearray | memoryview) -> tuple[dict[str, str], dict[str, RawTensor]]:
    """Metadata and tensors of a whole file; the tensors are views of ``raw``.

    Raises:
        DamagedFile: the checksum or the header is wrong.
    """
    view = memoryview(raw)
    fields, start = _header(view)
    _require_intact(view, fields)
    metadata = fields.pop("__metadata__", {})
    fields.pop(CHECKSUM, None)
    tensors: dict[str, RawTensor] = {}
    try:
        for name, field in fields.items():
            begin, end = field["data_offsets"]
            tensors[name] = RawTensor(field["dtype"], tuple(field["shape"]), view[start + begin : start + end])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the header is not of this format: {error}") from error
    return metadata, tensors


def _require_intact(view: memoryview, fields: Mapping[str, Any]) -> None:
    """Compare the checksum. What the header says of its size is covered by it, as everything else is."""
    try:
        size = int(fields[CHECKSUM]["shape"][0])
        digest = _HASHES[size]()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedFile("the header names no known checksum") from error
    digest.update(view[:-size])
    if digest.digest() != view[-size:]:
        raise DamagedFile("the checksum does not match")


def parse_metadata(head: bytes) -> dict[str, str]:
    """Metadata from a file's beginning, which must hold the whole header. The checksum is not looked at.

    Raises:
        DamagedFile: there is no readable header.
    """
    metadata: dict[str, str] = _header(memoryview(head))[0].get("__metadata__", {})
    return metadata


def header_end(first: bytes) -> int:
    """Where the header of a file ends that begins with the 8 bytes ``first``."""
    return 8 + int(struct.unpack("<Q", first)[0]) if len(first) == 8 else 0


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    start = header_end(bytes(view[:8]))
    try:
        fields = json.loads(bytes(view[8:start])) if 8 < start <= len(view) else None
    except (ValueError, RecursionError) as error:
        raise DamagedFile("the header is no JSON") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("__metadata__", {}), dict):
        raise DamagedFile("there is no header")
    return fields, start


def of_sequence(values: Sequence[int]) -> RawTensor:
    """Integers as an ``I64`` tensor."""
    return RawTensor("I64", (len(values),), struct.pack(f"<{len(values)}q", *values))


def to_sequence(tensor: RawTensor) -> tuple[int, ...]:
    """The integers of an ``I64`` tensor."""
    return struct.unpack(f"<{len(tensor.data) // 8}q", tensor.data)
