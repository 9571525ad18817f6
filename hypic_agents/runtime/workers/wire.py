"""Jobs and payloads as checksummed bytes: what travels to workers and back, whatever carries it.

The format is that of the disk tier's files (:mod:`hypic_agents.runtime.cache.container`): damage cannot pass unnoticed,
and reading executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import torch

from hypic_agents.runtime.cache.container import DamagedFile, Layout, of_sequence, parse, to_sequence
from hypic_agents.runtime.cache.entry import Payload
from hypic_agents.runtime.payload_codec import SegmentCodec
from hypic_agents.runtime.state import SegmentPayload
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload


def encode_payload(payload: Payload) -> Layout:
    """A payload as it is: nothing is rounded."""
    described, tensors = SegmentCodec().encode(payload)
    return Layout.of({"payload": json.dumps(described)}, tensors)


def decode_payload(raw: bytearray, device: torch.device | str = "cpu") -> SegmentPayload:
    """The payload, its tensors on ``device``; on the CPU they are views of ``raw``.

    Raises:
        DamagedPayload: the bytes are not what :func:`encode_payload` made.
    """
    try:
        metadata, tensors = parse(raw)
        return SegmentCodec(device).decode(json.loads(metadata["payload"]), tensors)
    except (DamagedFile, KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedPayload(f"a damaged payload: {error}") from error


def encode_job(job: BuildJob) -> Layout:
    """A job without its prefix's payload, which is encoded once for many jobs."""
    metadata = {"id": job.id, "head": job.head, "map_from": job.map_from, "is_prefix": job.is_prefix}
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
        )
    except (DamagedFile, KeyError, TypeError, ValueError) as error:
        raise DamagedPayload(f"a damaged job: {error}") from error
    if bool(found.prefix_ids) != (prefix is not None):
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
