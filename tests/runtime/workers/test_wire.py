"""Messages, files and what damage to them does."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.cache.container import Layout, RawTensor
from hypic_agents.runtime.state import AttentionPayload, LinearPayload, SegmentPayload
from hypic_agents.runtime.workers.channel import MOST_BYTES, Channel, ChannelClosed
from hypic_agents.runtime.workers.contract import BuildJob, DamagedPayload
from hypic_agents.runtime.workers.memory_file import MemoryFile, write_file
from hypic_agents.runtime.workers.prefix_shelf import PrefixShelf
from hypic_agents.runtime.workers.wire import decode_job, decode_payload, encode_job, encode_payload, to_bytes
from tests.runtime.workers.conftest import memory_files


def payload(seed: int = 0, *, checkpoint: bool = False) -> SegmentPayload:
    torch.manual_seed(seed)
    linear = LinearPayload(None if checkpoint else torch.randn(2, 4, 4), torch.randn(2, 4, 3), torch.randn(3, 5))
    attention = AttentionPayload(torch.randn(6, 1, 4), torch.randn(6, 1, 4), 2)
    return SegmentPayload((linear, attention), 6, checkpoint)


def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), Channel(theirs)


def test_a_payload_passes_through_a_file_unchanged() -> None:
    made = payload()
    back = decode_payload(MemoryFile(write_file(encode_payload(made))).read())
    for old, new in zip(made.layers, back.layers, strict=True):
        for a, b in zip(old.tensors(), new.tensors(), strict=True):
            assert torch.equal(a, b)
    assert (back.length, back.is_checkpoint) == (6, False)
    assert memory_files() == []


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_passes(at: int, change: int) -> None:
    raw = to_bytes(encode_payload(payload()))
    raw[at % len(raw)] ^= change
    with pytest.raises(DamagedPayload):
        decode_payload(raw)


@given(st.integers(0, 3000))
def test_no_shortened_file_passes(length: int) -> None:
    raw = to_bytes(encode_payload(payload()))
    with pytest.raises(DamagedPayload):
        decode_payload(raw[: length % len(raw)])


def test_another_file_is_no_payload_and_no_job() -> None:
    other = to_bytes(Layout.of({"what": "else"}, {"x": RawTensor("U8", (1,), b"a")}))
    with pytest.raises(DamagedPayload):
        decode_payload(other)
    with pytest.raises(DamagedPayload):
        decode_job(other, None)


def test_jobs_travel_with_their_prefix_or_not_at_all() -> None:
    prefix = payload(checkpoint=True)
    job = BuildJob(9, (5, 6, 7), 2, 1, prefix_ids=(1, 2), prefix=prefix, owner=3)
    back = decode_job(to_bytes(encode_job(job)), prefix)
    assert (back.id, back.token_ids, back.head, back.map_from) == (9, (5, 6, 7), 2, 1)
    assert (back.is_prefix, back.prefix_ids, back.prefix) == (False, (1, 2), prefix)
    with pytest.raises(DamagedPayload, match="without its prefix"):
        decode_job(to_bytes(encode_job(job)), None)
    alone = replace(job, prefix=None, prefix_live=True)
    back = decode_job(to_bytes(encode_job(alone)), None)
    assert (back.prefix_live, back.prefix_ids, back.prefix) == (True, (1, 2), None)
    assert [(one.num_tokens, one.context) for one in (job, alone)] == [(3, 2), (5, 0)]
    with pytest.raises(DamagedPayload):
        decode_job(bytearray(), None)


def test_prefixes_are_encoded_once_and_the_latest_stay() -> None:
    shelf = PrefixShelf(capacity=2)
    prefix = payload(checkpoint=True)
    jobs = [BuildJob(i, (1,), 0, 0, prefix_ids=(i,), prefix=prefix) for i in range(3)]
    first = shelf.name(jobs[0])
    assert first is not None
    fd = shelf.fd(first)
    assert shelf.name(jobs[0]) == first
    assert shelf.fd(first) == fd
    names = [shelf.name(one) for one in jobs]
    assert shelf.names() == names[1:]
    assert shelf.name(BuildJob(9, (1,), 0, 0)) is None
    assert len(memory_files()) == 2
    shelf.close()
    assert memory_files() == []


def test_messages_arrive_whole_in_order_and_with_their_files() -> None:
    ours, theirs = pair()
    file = write_file(Layout.of({}, {"x": RawTensor("U8", (3,), b"abc")}))
    theirs.send({"op": "one"})
    theirs.send({"op": "two"}, file)
    theirs.send({"op": "three"})
    os.close(file)
    got: list[tuple[str, int]] = []
    while len(got) < 3:
        got += [(message["op"], len(found.read()) if found else 0) for message, found in ours.receive()]
    assert [op for op, _ in got] == ["one", "two", "three"]
    assert [size > 0 for _, size in got] == [False, True, False]
    assert ours.receive() == []
    theirs.close()
    with pytest.raises(ChannelClosed, match="has ended"):
        ours.receive()
    with pytest.raises(ChannelClosed):
        ours.send({"op": "late"})
    ours.close()
    assert memory_files() == []


@pytest.mark.parametrize(
    "frame",
    [struct.pack("<I", MOST_BYTES + 1), struct.pack("<I", 3) + b"{a}", struct.pack("<I", 2) + b"[]"],
    ids=["too long", "no JSON", "no object"],
)
def test_what_is_no_message_closes_the_channel(frame: bytes) -> None:
    left, right = socket.socketpair()
    channel = Channel(left)
    right.sendall(frame)
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.close()
    right.close()


def test_a_process_that_reads_nothing_does_not_block_its_pool() -> None:
    ours, theirs = pair()

    def fill() -> None:
        while True:
            ours.send({"op": "build", "filler": "x" * 1000})

    with pytest.raises(ChannelClosed, match="could not be sent"):
        fill()
    ours.close()
    theirs.close()


def test_a_file_that_shrinks_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypic_agents.runtime.workers.memory_file._seal", lambda _: None)
    fd = write_file(encode_payload(payload()))
    os.ftruncate(fd, 100)
    with pytest.raises(DamagedPayload):
        decode_payload(MemoryFile(fd).read())
    assert memory_files() == []
