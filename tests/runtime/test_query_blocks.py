"""Blocks of queries: every query sees the keys at or before its position, and no more memory than it takes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.runtime.attention.mixer import QUERY_BLOCK, query_blocks
from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.pack import pack
from hypic_agents.runtime.state import RowState, SegmentPayload

PAYLOAD = SegmentPayload((), 40, False)


@given(
    st.integers(0, 200),
    st.lists(st.one_of(st.integers(1, 3 * QUERY_BLOCK), st.just("reused")), min_size=1, max_size=6).filter(
        lambda parts: parts[-1] != "reused"
    ),
    st.data(),
)
def test_every_query_sees_the_keys_up_to_its_position(begin: int, parts: list[int | str], data: st.DataObject) -> None:
    elements: list[LiveRun | ReusedRun] = []
    at = begin
    for part in parts:
        elements.append(LiveRun(at, (0,) * part) if isinstance(part, int) else ReusedRun(at, PAYLOAD.length, PAYLOAD))
        at += elements[-1].length
    row = Row(tuple(elements), past=RowState(length=begin) if begin else None, start=begin)
    batch = pack([row], 4)
    batch.blocks = ()
    positions = batch.positions
    count = data.draw(st.sampled_from([len(positions), min(len(positions), 2)]))
    blocks = query_blocks(batch, 0, at, count)
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == count
    for block in blocks:
        mine = positions[len(positions) - count :][block.start : block.stop]
        allowed = mine[:, None] >= torch.arange(at)
        if block.mask is None:
            assert len(mine) in (1, at)
            continue
        seen = block.mask if block.mask.dtype == torch.bool else block.mask == 0
        assert torch.equal(seen, allowed[:, : block.num_keys])
        assert not allowed[:, block.num_keys :].any()
        assert block.mask.dtype == torch.bool or (seen | block.mask.isneginf()).all()


def test_neighbours_share_one_mask() -> None:
    row = Row((LiveRun(500, (0,) * 1000),), past=RowState(length=500), start=500)
    blocks = query_blocks(pack([row], 4), 0, 1500, 1000)
    assert len(blocks) == -(-1000 // QUERY_BLOCK)
    assert len({block.mask.untyped_storage().data_ptr() for block in blocks if block.mask is not None}) == 1
