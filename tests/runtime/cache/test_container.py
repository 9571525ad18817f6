"""Files are safetensors, and no byte of one changes unnoticed."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from hypic_agents.runtime.cache.container import (
    DamagedFile,
    Layout,
    RawTensor,
    header_end,
    of_sequence,
    parse,
    parse_metadata,
    to_sequence,
)

TENSORS = {
    "bytes": RawTensor("U8", (3,), b"abc"),
    "ids": of_sequence((1, -2, 3)),
    "half": RawTensor("BF16", (2, 1), b"\x80\x3f\x00\x40"),
    "none": RawTensor("F32", (0, 4), b""),
}


def whole(metadata: dict[str, str], tensors: dict[str, RawTensor]) -> bytearray:
    layout = Layout.of(metadata, tensors)
    raw = bytearray(b"".join(layout.pieces()))
    assert len(raw) == layout.num_bytes
    return raw


def test_any_reader_of_safetensors_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(whole({"a": "ü"}, TENSORS))
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"a": "ü"}
        assert set(file.keys()) == {*TENSORS, "checksum"}
        assert file.get_tensor("ids").tolist() == [1, -2, 3]
        torch.testing.assert_close(file.get_tensor("half"), torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16))
        assert file.get_tensor("none").shape == (0, 4)


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
    st.dictionaries(st.text("abc.", min_size=1, max_size=4), st.binary(max_size=40), max_size=4),
)
def test_round_trip(metadata: dict[str, str], blobs: dict[str, bytes]) -> None:
    raw = whole(metadata, {name: RawTensor("U8", (len(blob),), blob) for name, blob in blobs.items()})
    found, tensors = parse(raw)
    assert found == metadata
    assert {name: bytes(tensor.data) for name, tensor in tensors.items()} == blobs
    assert parse_metadata(bytes(raw[: header_end(bytes(raw[:8]))])) == metadata


def test_every_flipped_bit_is_noticed() -> None:
    raw = whole({"a": "b"}, TENSORS)
    rng = random.Random(0)
    for at in range(len(raw)):
        broken = bytearray(raw)
        broken[at] ^= 1 << rng.randrange(8)
        with pytest.raises(DamagedFile):
            parse(broken)


def test_every_cut_is_noticed() -> None:
    raw = whole({"a": "b"}, TENSORS)
    for length in range(len(raw)):
        with pytest.raises(DamagedFile):
            parse(raw[:length])


def test_tensors_are_aligned() -> None:
    raw = whole({}, {f"{i}": t for i, t in enumerate([*TENSORS.values(), TENSORS["bytes"], of_sequence((1,))])})
    start = header_end(bytes(raw[:8]))
    assert start % 64 == 0
    with_offsets = parse(raw)[1]
    assert to_sequence(with_offsets["5"]) == (1,)


def test_a_tensor_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 bytes for a tensor F32\[1\]"):
        RawTensor("F32", (1,), b"abc")


@pytest.mark.parametrize("head", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{x"])
def test_a_header_that_is_none_is_noticed(head: bytes) -> None:
    with pytest.raises(DamagedFile):
        parse_metadata(head)


def test_a_file_of_an_earlier_version_is_read_and_its_damage_noticed() -> None:
    raw = with_blake2b(whole({"a": "b"}, TENSORS))
    found, tensors = parse(bytearray(raw))
    assert found == {"a": "b"}
    assert bytes(tensors["bytes"].data) == b"abc"
    for at in range(len(raw)):
        broken = bytearray(raw)
        broken[at] ^= 1
        with pytest.raises(DamagedFile):
            parse(broken)


def with_blake2b(raw: bytearray) -> bytearray:
    """The same file with the checksum that earlier versions wrote."""
    start = header_end(bytes(raw[:8]))
    fields = json.loads(raw[8:start])
    begin = fields["checksum"]["data_offsets"][0]
    fields["checksum"] = {"dtype": "U8", "shape": [32], "data_offsets": [begin, begin + 32]}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    older = struct.pack("<Q", len(text)) + text + raw[start:-16]
    return bytearray(older + hashlib.blake2b(older, digest_size=32).digest())
