"""Jobs and payloads as checksummed bytes: what travels to workers and back, whatever carries it.

The format is that of the disk tier's files (:mod:`hypic_agents.runtime.cache.container`): damage cannot pass unnoticed,
and reading executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import torch

from hypic_agents.runtime.cache.container import DamagedFile, Layout, of_sequence, parse, to_sequence
from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.payload_codec import SegmentCodec
from hypic_agents.runtime.state import SegmentPayload
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload
from hypic_agents.runtime.workers.memory_file import MemoryFile

# Less is copied: a process may have 65,530 mappings, and there may be many small files.
_MAPPED_BYTES: Final = 1 << 20


def encode_payload(payload: Payload, *, shared: bool = False) -> Layout:
    """A payload as it is: nothing is rounded.

    Args:
        payload: The payload.
        shared: Its bytes will be mapped, not moved: zeros are written too, so that nothing has to be put together.
    """
    described, tensors = SegmentCodec(keep_zeros=shared).encode(payload)
    return Layout.of({"payload": json.dumps(described)}, tensors)


def decode_payload(raw: bytearray | memoryview, device: torch.device | str = "cpu") -> SegmentPayload:
    """The payload, its tensors on ``device``; on the CPU they are views of ``raw``.

    Raises:
        DamagedPayload: the bytes are not what :func:`encode_payload` made.
    """
    try:
        metadata, tensors = parse(raw)
        return SegmentCodec(device).decode(json.loads(metadata["payload"]), tensors)
    except (DamagedFile, KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedPayload(f"a damaged payload: {error}") from error


def load_payload(file: MemoryFile, device: torch.device | str = "cpu") -> SegmentPayload:
    """The payload in a file, which is closed. Large ones are mapped where nobody can change them any more.

    A copy would touch as much fresh memory again, which takes longer than everything else on the way.

    Raises:
        DamagedPayload: as :func:`decode_payload`, or the file cannot be read.
    """
    mapped = _mapped(file)
    return decode_payload(file.read() if mapped is None else mapped, device)


def _mapped(file: MemoryFile) -> memoryview | None:
    """A private mapping of a file's contents, which needs no descriptor; None where it is to be copied."""
    try:
        if not file.is_sealed or file.size < _MAPPED_BYTES:
            return None
        whole = torch.from_file(file.path, shared=False, size=file.size, dtype=torch.uint8)
    except (OSError, RuntimeError):  # no /proc, or too many mappings
        return None
    file.close()
    return whole.numpy().data


def encode_job(job: BuildJob) -> Layout:
    """A job without its prefix's payload, which is encoded once for many jobs."""
    numbers = {"id": job.id, "head": job.head, "map_from": job.map_from}
    metadata = numbers | {"is_prefix": job.is_prefix, "prefix_live": job.prefix_live}
    tensors = {"token_ids": of_sequence(job.token_ids), "prefix_ids": of_sequence(job.prefix_ids)}
    return Layout.of({"job": json.dumps(metadata)}, tensors)


def decode_job(raw: bytearray, prefix: Payload | None) -> BuildJob:
    """The job, behind its prefix's payload.

    Raises:
        DamagedPayload: the bytes are not what :func:`encode_job` made, or the prefix is missing.
    """
    try:
        metadata, tensors = parse(raw)
        job = json.loads(metadata["job"])
        found = BuildJob(
            id=int(job["id"]),
            token_ids=to_sequence(tensors["token_ids"]),
            head=int(job["head"]),
            map_from=int(job["map_from"]),
            is_prefix=bool(job["is_prefix"]),
            prefix_ids=to_sequence(tensors["prefix_ids"]),
            prefix=prefix,
            prefix_live=bool(job["prefix_live"]),
        )
    except (DamagedFile, KeyError, TypeError, ValueError) as error:
        raise DamagedPayload(f"a damaged job: {error}") from error
    if bool(found.prefix_ids) != (prefix is not None or found.prefix_live):
        raise DamagedPayload("a job without its prefix, or with one that is not its own")
    return found


def to_bytes(layout: Layout) -> bytearray:
    """The whole file in memory, for carriers that take bytes."""
    return _joined(layout.pieces(), layout.num_bytes)


def _joined(pieces: Iterable[bytes | bytearray | memoryview], num_bytes: int) -> bytearray:
    raw = bytearray(num_bytes)
    at = 0
    for piece in pieces:
        raw[at : at + len(piece)] = piece
        at += len(piece)
    return raw
