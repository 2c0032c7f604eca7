"""How vectors are cut into blocks and datagrams."""

from __future__ import annotations

import pytest

from wanbench.workloads.comm.blocks import MTU, PAYLOAD_BYTES, WIRE_HEADER_BYTES, Blocks

ELEMENTS = PAYLOAD_BYTES // 4


def test_a_datagram_fills_a_packet_and_does_not_exceed_it():
    assert PAYLOAD_BYTES + WIRE_HEADER_BYTES == MTU
    assert PAYLOAD_BYTES % 8 == 0


@pytest.mark.parametrize("block_bytes", [4, 400, PAYLOAD_BYTES, 2 * PAYLOAD_BYTES, 64 << 10, 1 << 30])
@pytest.mark.parametrize("numel", [0, 1, ELEMENTS - 1, ELEMENTS, ELEMENTS + 1, 5000])
def test_datagrams_cover_a_vector_once_and_blocks_consist_of_whole_datagrams(numel, block_bytes):
    cut = Blocks(numel, 4, block_bytes)
    parts = [cut.part(index) for index in range(cut.datagrams)]
    assert [element for begin, end in parts for element in range(begin, end)] == list(range(numel))
    assert all(0 < end - begin <= ELEMENTS for begin, end in parts)
    assert cut.count == -(-numel // (block_bytes // 4))
    assert len(cut.arrived([1] * cut.datagrams)) == cut.count
    assert cut.runs([True] * cut.count) == ([slice(0, numel)] if numel else [])


def test_a_block_of_several_datagrams_is_lost_with_any_of_them():
    cut = Blocks(5 * ELEMENTS, 4, 2 * PAYLOAD_BYTES)
    assert (cut.count, cut.datagrams) == (3, 5)
    assert cut.arrived([1, 1, 1, 0, 1]) == [True, False, True]
    assert cut.runs([True, False, True]) == [slice(0, 2 * ELEMENTS), slice(4 * ELEMENTS, 5 * ELEMENTS)]


def test_neighbouring_blocks_make_one_run():
    cut = Blocks(10, 4, 8)
    assert cut.runs([False, True, True, False, True]) == [slice(2, 6), slice(8, 10)]
    assert cut.runs([False] * 5) == []
