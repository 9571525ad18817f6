"""Files without a name: sealed ones are mapped, others copied, and no descriptor stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from hypic_agents.runtime.state import LinearPayload, SegmentPayload
from hypic_agents.runtime.workers import memory_file
from hypic_agents.runtime.workers.contract import DamagedPayload
from hypic_agents.runtime.workers.memory_file import MemoryFile, write_file
from hypic_agents.runtime.workers.wire import encode_payload, load_payload
from tests.runtime.workers.conftest import memory_files

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sealed files")


def payload(size: int) -> SegmentPayload:
    """A payload of 8 heads, of which half let nothing through."""
    transition = torch.randn(8, size, size)
    transition[::2] = 0
    return SegmentPayload((LinearPayload(transition, torch.randn(8, size, size), torch.randn(3, size)),), 7, False)


def mappings() -> int:
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:hypic")


def assert_same(ours: SegmentPayload, expected: SegmentPayload) -> None:
    assert ours.length == expected.length
    pairs = zip(ours.layers[0].tensors(), expected.layers[0].tensors(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


@linux_only
def test_large_payloads_are_mapped_without_a_descriptor_until_nobody_needs_them() -> None:
    before, made = mappings(), payload(256)
    loaded = [load_payload(MemoryFile(write_file(encode_payload(made, shared=True)))) for _ in range(3)]
    assert memory_files() == []
    assert mappings() == before + 3
    for one in loaded:
        assert_same(one, made)
    loaded[0].layers[0].end_state[0] = 1.0  # type: ignore[union-attr]
    assert_same(loaded[1], made)
    loaded.clear()
    del one
    assert mappings() == before


@linux_only
def test_nobody_can_change_a_written_file() -> None:
    fd = write_file(encode_payload(payload(4)))
    for change in (lambda: os.pwrite(fd, b"x", 100), lambda: os.ftruncate(fd, 10), lambda: os.ftruncate(fd, 4 << 20)):
        with pytest.raises(PermissionError):
            change()
    os.close(fd)


@pytest.mark.parametrize("why", ["small", "not sealed", "no /proc"])
def test_what_cannot_be_mapped_is_copied(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "not sealed":
        monkeypatch.setattr(memory_file, "_seal", lambda _: None)
    if why == "no /proc":
        monkeypatch.setattr(MemoryFile, "path", "/nowhere")
    made = payload(4 if why == "small" else 256)
    before = mappings() if sys.platform == "linux" else 0
    loaded = load_payload(MemoryFile(write_file(encode_payload(made, shared=True))))
    assert_same(loaded, made)
    assert memory_files() == []
    assert sys.platform != "linux" or mappings() == before


@linux_only
def test_damage_in_a_mapped_file_is_noticed() -> None:
    fd = write_file(encode_payload(payload(256), shared=True))
    raw = bytearray(os.pread(fd, os.fstat(fd).st_size, 0))
    os.close(fd)
    raw[len(raw) // 2] ^= 1
    damaged = memory_file._anonymous()
    os.write(damaged, raw)
    memory_file._seal(damaged)
    before = mappings()
    with pytest.raises(DamagedPayload, match="checksum"):
        load_payload(MemoryFile(damaged))
    assert mappings() == before
    assert memory_files() == []
