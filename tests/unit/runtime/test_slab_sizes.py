"""Sizes of slabs follow the records that earlier launches made."""

from __future__ import annotations

import numpy as np
import pytest

from kscope.capture import wire
from kscope.instrument.recording import AUTO_RECORDS
from kscope_runtime.slab_sizes import SlabSizes

RING = 4 << 20


class Kernel:
    """A kernel of one device, launch after launch."""

    def __init__(self, sizes: SlabSizes, number: int = 7) -> None:
        self.sizes, self.number = sizes, number

    @property
    def records(self) -> int:
        """How many records its next slabs have room for."""
        return int(self.sizes.words[self.number % wire.SIZES]) + 1

    def launched(self, *counts: int, ring: int = RING) -> list[int]:
        """One launch of warps that make so many records. Returns the words that changed."""
        launches = np.zeros(3, wire.LAUNCH)
        launches["kernel"] = self.number
        room = np.full(len(counts), self.records, np.uint32)
        entry = np.full(len(counts), 2, np.int32)
        return self.sizes.seen(launches, entry, np.array(counts, np.uint32), room, ring).tolist()


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(SlabSizes(np.full(wire.SIZES, AUTO_RECORDS - 1, np.uint32)))


def test_a_size_shrinks_once_after_four_launches_to_what_they_need_and_a_quarter_more(kernel: Kernel) -> None:
    assert [kernel.launched(66, 20) for _ in range(3)] == [[], [], []] and kernel.records == 256
    assert kernel.launched(40) == [7] and kernel.records == 128
    for _ in range(8):
        assert kernel.launched(1) == []
    assert kernel.records == 128


def test_a_size_grows_as_soon_as_a_warp_had_more_records_than_room(kernel: Kernel) -> None:
    assert kernel.launched(10, 300, 257) == [7] and kernel.records == 512
    assert kernel.launched(300) == []
    assert kernel.launched(513) == [7] and kernel.records == 1024


def test_a_size_that_shrank_grows_again(kernel: Kernel) -> None:
    for _ in range(4):
        kernel.launched(3)
    assert kernel.records == 4
    assert kernel.launched(5) == [7] and kernel.records == 8


def test_all_warps_of_an_sm_find_room_in_its_ring_however_many_records_they_make(kernel: Kernel) -> None:
    kernel.launched(1 << 20)
    assert kernel.records == 2048 and 64 * wire.slab_units(11) * wire.UNIT <= RING + 64 * wire.UNIT
    small = Kernel(kernel.sizes, 8)
    small.launched(1 << 20, ring=1 << 20)
    assert small.records == 512 and 64 * wire.slab_units(9) * wire.UNIT <= 1 << 20
    tiny = Kernel(kernel.sizes, 9)
    tiny.launched(1 << 20, ring=2048)
    assert tiny.records == AUTO_RECORDS


def test_kernels_that_share_a_word_share_a_size_that_holds_the_records_of_both(kernel: Kernel) -> None:
    other = Kernel(kernel.sizes, kernel.number + wire.SIZES)
    for _ in range(2):
        kernel.launched(10)
        other.launched(100)
    assert kernel.records == other.records == 128


def test_kernels_have_different_sizes(kernel: Kernel) -> None:
    other = Kernel(kernel.sizes, 8)
    for _ in range(4):
        kernel.launched(10)
        other.launched(50)
    assert (kernel.records, other.records) == (16, 64)
