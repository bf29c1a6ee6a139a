"""The runtime drains the pool while the emitted text runs: its own passes, on simulated memory.

Between any two of the host's copies the kernel's threads move on by some steps. No record is lost, doubled or
changed, and memory that is given back is never written by its old owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptxvm.cases import Case, cases, prepared
from ptxvm.host import Host, Pool, Slab
from ptxvm.judge import records_are_the_marks_in_order, require
from ptxvm.machine import steps
from ptxvm.profile import examples

from kscope.capture import layout, wire
from kscope.capture.clock_rows import Layouts
from kscope.capture.expand import Lines
from kscope.decoding.slabs import find
from kscope.instrument.recording import log2_records
from kscope_runtime import drain_pass
from kscope_runtime import staging as staging_memory
from kscope_runtime.memory_ranges import Ranges, read_each
from kscope_runtime.slab_sizes import SlabSizes


class Metal:
    """The device and driver of Passes, on a Host's memory. `between` runs before each copy."""

    def __init__(self, host: Host, between: Callable[[], None]) -> None:
        self.host, self.between, self.driver = host, between, self
        self.control, self.stripes = host.control.base, len(host.rings)
        self.launches = host.launches.start
        self.launch_tables = (self.launches,)
        self.facts, self.layouts = SimpleNamespace(max_clock_khz=0), Layouts()
        self.file = self.mapped = None
        self.sizes = SlabSizes(host.sizes())
        self.table = self.words()

    def clear_launches(self) -> None:
        self._bytes(self.launches, wire.SLOTS * wire.LAUNCH_BYTES)[:] = bytes(wire.SLOTS * wire.LAUNCH_BYTES)

    def words(self) -> Any:
        return np.array([self.host.stripe(n) for n in range(self.stripes)], wire.STRIPE)

    def stream(self) -> int:
        return 0

    def surely_past(self) -> int:
        return 0

    def entry_points(self) -> None:
        return None

    def synchronize(self, stream: int) -> None:
        self.between()

    def pinned(self, size: int) -> Any:
        return np.zeros(size, np.uint8)

    def _bytes(self, address: int, size: int) -> memoryview:
        found, at = self.host.memory.find(address, 1, "", 0, "the host's access")
        require(at + size <= len(found.data), "the host leaves an allocation")
        return memoryview(found.data)[at : at + size]

    def read(self, into: Any, address: int, stream: int) -> None:
        self.between()
        into[:] = np.frombuffer(self._bytes(address, len(into)), np.uint8)

    def read_ranges(self, into: Any, ranges: Ranges, stream: int) -> None:
        read_each(self, into, ranges, stream)

    def write(self, address: int, source: Any, stream: int) -> None:
        self.between()
        self._bytes(address, len(source))[:] = source.tobytes()

    def write_column(self, address: int, pitch: int, source: Any, width: int, stream: int) -> None:
        self.between()
        for n in range(len(source) // width):
            self._bytes(address + n * pitch, width)[:] = source[n * width : (n + 1) * width].tobytes()

    def clear_ranges(self, ranges: Ranges, stream: int, calls: object) -> None:
        for address, size in zip(ranges.address.tolist(), ranges.size.tolist(), strict=True):
            self.between()
            self._bytes(address, size)[:] = bytes(size)


gaps = st.lists(st.integers(0, 30), min_size=3, max_size=40)


@examples(60)
@given(cases(threads=8), gaps, st.sampled_from([16, 64, 4096]))
def test_draining_while_kernels_run_loses_and_doubles_nothing(case: Case, waits: list[int], staging: int) -> None:
    rings = tuple(replace(ring, free=None) for ring in case.pool.rings)
    case = replace(case, pool=Pool(rings), order="random" if case.order == "turns" else case.order)
    host, threads, ideals, _ = prepared(case)
    moving, wait = steps(threads, case.order, case.seed), cycle([*waits, 1])
    with pytest.MonkeyPatch.context() as patch:
        # a copy holds the largest slab at least
        records = case.size if case.recording.records == "auto" else case.recording.records
        least = wire.slab_units(log2_records(records))
        patch.setattr(staging_memory, "BATCH", max(staging, least) * wire.UNIT)
        metal = Metal(host, lambda: None)
        drained = drain_pass.Passes(metal)  # type: ignore[arg-type]  # it plays a Device
        drained.begin(case.epoch)
        metal.between = lambda: advance(moving, next(wait))
        for n in range(200):
            if n % 2:
                drained.once(1 << 30)
            else:
                drained.everything(closed=True)
        for _ in moving:
            pass
        drained.everything(closed=False)
    assert not any(any(ring.data) for ring in host.rings), "something is left in the pool"
    found = taken(drained.arena.lines(), host)
    assert len({slab.key for slab in found}) == len(found), "a lane was drained twice"
    records_are_the_marks_in_order(found, ideals, case.recording)
    lanes = {claim.thread.key for claim in host.claims()}
    assert "unidentified" not in {problem.kind for problem in drained.problems()}
    assert len(found) + drained.lost() == len(lanes), f"{drained.lost()} lost"


def taken(lines: Lines, host: Host) -> list[Slab]:
    """The slabs of a capture."""
    found, problems = find(lines, host.epoch)
    assert not problems
    rows, slabs = lines.reshape(-1, 4), []
    for n in range(len(found)):
        head, entry = np.zeros(1, wire.HEAD), np.zeros(1, wire.LAUNCH)
        head["count"], entry["layout"] = found.header["count"][n], found.header["place"][n]
        block = host.blocks[int(found.linear_block[n]) % (1 << wire.BLOCK_BITS)]
        key = *block, int(found.warp[n]) * 32 + int(found.lane[n])
        first = (int(found.line[n]) + layout.HEADER_LINES) * layout.RECORDS_PER_LINE
        ring = rows[first : first + (1 << int(found.log2[n]))].reshape(-1).view(layout.RECORD)
        slabs.append(Slab(0, 0, 0, key, head[0], entry[0], ring))
    return slabs


def advance(moving: Iterator[Any], count: int) -> None:
    """Let the kernel take some steps."""
    for _ in range(count):
        next(moving, None)
