"""One pass over a device's stripes while it records: copy, account, expand, clear, raise limits."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from kscope.capture import layout, wire
from kscope.capture.capture_data import BegunLaunch
from kscope.capture.expand import Expander, Lines
from kscope.capture.model import Problem

from .accounting import MASK, TURN, Share, Stripes, account, slabs_end, uncut
from .arena import Arena
from .claim_wait import Watch
from .compiled_pass import CompiledPass
from .device import Device
from .driver import Memory
from .driver_calls import DriverCalls
from .forecast import Forecast
from .launch_table import UNKNOWN, WINDOW, Found, LaunchTable, identified
from .memory_ranges import in_rings
from .overrun_slabs import SETTLED_S, OverrunSlabs
from .pool_in_file import InFile
from .pool_room import has_room
from .slab_search import Ints, Pieces, Slabs, U32s, Units, find
from .slab_writer import Taken, Writer, claims_of
from .staging import Batches, Staging
from .stripe_walk import walk

_LEAST_DELAY_S, _MOST_DELAY_S = 0.001, 0.032


class Passes:
    """A device's stripes, and the slabs taken from them so far. Not thread-safe.

    A pass uses none of the user's streams and launches no kernel; docs/design/pool.md has its stages. Threads
    (kscope/native/threads.c) do the work on slabs without the interpreter's lock.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.arena = Arena()
        self.epoch = 0
        self._driver = device.driver
        self._writes = device.driver.stream()
        self._calls = DriverCalls(device.driver)
        lines = device.stripes * wire.STRIPE_BYTES
        self._before, self._control = (device.driver.pinned(lines).view(wire.STRIPE) for _ in range(2))
        self._watch, self.watches = Watch(device, WINDOW), True
        self.room = threading.Event()  # wakes launches that wait; `seen` is True if there is room
        self.room.set()
        self.seen = time.monotonic(), True  # (start of the last reading, True if there was room), replaced as one
        self._limits, self._written = (device.driver.pinned(4 * device.stripes).view("<u4") for _ in range(2))
        self._staging = Staging(device)
        self._writer = Writer()
        self._compiled: CompiledPass | None = None
        if self._calls.entry_points is not None:
            limits = device.driver.pinned(4 * device.stripes).view("<u4")
            pinned = {"before": self._before, "control": self._control, "limits": limits}
            self._compiled = CompiledPass(device, self._staging, self._calls, self._writes, pinned)
        self._stuck: list[int] = []  # stripes larger than a copy of which the last pass freed nothing
        self._lost = np.zeros(device.stripes, np.uint32)
        self._launches = LaunchTable(device)
        self.begun: tuple[BegunLaunch, ...] = ()  # after salvage()
        self._expander = self._new_expander()
        self.adopt()

    def adopt(self) -> None:
        """Start over with stripes without claims, after the pool was replaced."""
        file = self.device.mapped
        self._memory: Memory = self._calls if file is None else InFile(file, self._calls)
        self._staging.memory = self._memory
        words = self.device.words()
        self.state = Stripes.at(words)
        self.forecast = Forecast(words["head"], int(self.state.ring.sum(dtype=np.int64)), time.monotonic())
        self._overrun = OverrunSlabs(self.device.stripes)
        self._again = np.zeros(self.device.stripes)  # each stripe waits until this time
        self._delay = np.full(self.device.stripes, _LEAST_DELAY_S)

    def begin(self, epoch: int, folder: Path | None = None) -> None:
        """Keep slabs of this epoch from now on, and no others. folder: for data that does not fit into memory."""
        self.arena, self.epoch = Arena(folder), epoch
        self.device.clear_launches()
        self._launches.begin(epoch)
        self.begun = ()
        self._expander = self._new_expander()
        self.forecast.reset()
        self._read_stripes()
        self._lost = self._control["lost"].copy()

    def _new_expander(self) -> Expander:
        return Expander(self.epoch, self.device.facts.max_clock_khz / 1e6, layouts=self.device.layouts)

    def problems(self) -> list[Problem]:
        """Problems for readers of the slabs."""
        return self._expander.problems()

    def lost(self) -> int:
        """Warps that found no room, from begin() to the last reading."""
        return int((self._control["lost"] - self._lost).astype(np.int64).sum())

    def once(self, share: int, *, at_once: bool = False) -> int:
        """Take closed slabs of the stripes of which at least 1/share is claimed. Returns bytes freed.

        at_once: the previous pass ended just now, so its last reading of the stripes is still valid.
        """
        self._stuck = []
        skipped, head = self._last if at_once else self._read_stripes()
        enough = (self.state.claimed(head) * share >= self.state.ring) & ~self.state.turned
        worth = np.flatnonzero(enough & (time.monotonic() >= self._again))
        freed = self._pass(worth, skipped, head, closed=True) if len(worth) else 0
        if self._stuck:  # one per pass, because it reads a whole ring
            freed += self._prove(self._stuck[0])
        return freed

    def watch(self, share: int, wake: int, pauses: tuple[float, float], most: float) -> bool:
        """Wait until once() may find something to take. Returns False at once if it must be called as often as the
        pauses say: where other readers depend on passes, or little room is left. Arguments: as for Watch.wait().
        """
        if not self.watches or self.device.mapped is not None or not self.forecast.is_quiet():
            return False
        head, entries = self._control["head"], self._launches.ahead()
        return self._watch.wait(self.state, share, head, entries, wake, pauses, most)

    def everything(self, *, closed: bool) -> None:
        """Take everything claimed; closed=False also takes unfinished slabs, once the device is idle."""
        skipped, head = self._read_stripes()
        while True:
            some = np.where(self.state.turned, not closed, head != self.state.tail)
            freed = self._pass(np.flatnonzero(some), skipped, head, closed)
            if closed or not freed:
                break

    def peek(self) -> Lines:
        """A copy of everything claimed and not freed, including slabs still being written; (n, 16) uint32."""
        return self._expanded(self._expander.copy())

    def _expanded(self, expander: Expander) -> Lines:
        skipped, head = self._read_stripes()
        found = [np.zeros((0, layout.LINE // 4), np.uint32)]
        for stripe in np.flatnonzero((head != self.state.tail) | self.state.turned).tolist():
            for units, pieces, slabs in walk(self._staging, self.state, stripe, skipped, head):
                launches = self._launches.find(units, slabs.at, self._staging.memory)
                every = Share(pieces.units, slabs.at, launches.entry, slabs.opens)
                taken = self._taken(units, pieces, every, launches, expander)
                found.append(np.empty((taken.plan.lines, layout.LINE // 4), np.uint32))
                taken.write(found[-1])
        return np.concatenate(found)

    def salvage(self, memory: Memory) -> None:
        """Keep everything that remains of a broken context, unfinished slabs and the newest launches included, read
        through `memory`. No pass of this epoch may follow.
        """
        self._staging.memory = memory
        try:
            lines = self._expanded(self._expander)
            self.begun = self._launches.newest(memory)
        finally:
            self._staging.memory = self._memory
        self.arena.take(len(lines))[:] = lines

    def _prove(self, stripe: int) -> int:
        """Try to free a stripe of which more is claimed than a copy holds, and nothing could be freed.

        If no open slab holds it up, read all of it: if the sums agree, units outside slabs were skipped. Returns bytes
        freed, for a stripe without any slab.
        """
        skipped, head = self._read_stripes()
        at = reach = units = 0
        for copied, _, slabs in walk(self._staging, self.state, stripe, skipped, head):
            if not at and len(slabs.at) and not slabs.at[0]:
                return 0  # an open slab
            if len(slabs.at):
                reach = at + slabs_end(slabs, 0, 0)
            at, units = at + len(copied), units + int(slabs.units(slice(None)).sum())
        tail, end = int(self.state.tail[stripe]), int(head[stripe])
        if end - int(skipped[stripe]) - int(self.state.found[stripe]) - units & MASK:
            return 0
        self._again[stripe] = 0
        self.state.proven[stripe] = tail + reach & MASK
        if units:
            return 0
        none = Batches.of(np.array([stripe]), np.zeros_like(head, np.int64), self.state.tail, skipped, head, 0)
        freed = self._free(none[0], np.array([end - tail & MASK]))
        self._calls.synchronize(self._writes)
        return freed * wire.UNIT

    def _read_stripes(self) -> tuple[U32s, U32s]:
        """Read (skipped, head) of every stripe.

        Two copies, one after the other: a warp adds to `head` first, so `head` of the second one counts all of the
        first one's `skipped`.
        """
        began = self._request_stripes()
        if self._staging.memory is self._memory:
            self._calls.flush()
        return self._stripes_arrived(began)

    def _request_stripes(self) -> float:
        """Begin a reading of the stripes, which _stripes_arrived() takes in. Returns when it was requested."""
        began, memory, stream = time.monotonic(), self._staging.memory, self._staging.stream
        wait = self._calls.wait if memory is self._memory else memory.synchronize
        if (ahead := self._launches.request()) is not None:
            memory.read(*ahead, stream)
        for words in (self._before, self._control):
            memory.read(words.view(np.uint8), self.device.control + wire.STRIPES_AT, stream)
            wait(stream)
        return began

    def _stripes_arrived(self, began: float) -> tuple[U32s, U32s]:
        self._launches.requested()
        head = self._control["head"].copy()
        self.state.saw(head)
        if self.state.turned.any() and self._staging.memory is self._memory:
            self._calls.wait(self._writes)
            self._limit(head)
            self._calls.flush()
        return self._seen(began)

    def _seen(self, began: float) -> tuple[U32s, U32s]:
        """Publish a reading of the stripes that was requested at `began`."""
        skipped, head = self._before["skipped"].copy(), self._control["head"].copy()
        claimed = self.state.claimed(head)
        self.forecast.read(head, int(claimed.sum()), began)
        room = has_room(claimed, self.state.ring)
        self.seen = began, room
        (self.room.set if room else self.room.clear)()
        self._last = skipped, head  # no tail is beyond
        return self._last

    def _pass(self, stripes: Ints, skipped: U32s, head: U32s, closed: bool) -> int:
        granted, requested, past = self.state.granted(head), time.monotonic(), self.device.surely_past()
        batches = Batches.of(stripes, granted, self.state.tail, skipped, head, self._staging.units)
        settled = max(0, past - int(SETTLED_S * 1e9))
        if closed and self.device.mapped is None and self._compiled is not None:
            return self._in_one_call(self._compiled, batches, requested, past, settled) * wire.UNIT
        freed, reading = 0, 0.0
        try:
            for pieces, units in self._staging.copies(batches, self._calls):
                if reading:  # remaining room
                    self._stripes_arrived(reading)
                freed += self._batch(pieces, units, requested if closed else None, past, settled)
                reading = self._request_stripes()  # will wait for the next batch's copy, too
        finally:  # data that a fault keeps from being cleared is kept as well
            self._writer.wait()
        if reading:
            self._calls.synchronize(self._writes)
            self._stripes_arrived(reading)
        return freed * wire.UNIT

    def _in_one_call(self, compiled: CompiledPass, batches: Batches, requested: float, past: int, settled: int) -> int:
        """Take batches, the unusual ones among them one by one. Returns units freed."""

        def unusual(index: int) -> int:
            pieces = batches[index]
            freed = self._batch(pieces, self._staging.copied(pieces, index), requested, past, settled)
            self._calls.flush()
            self._writer.wait()
            return freed

        compiled.begin(batches, self.state, self._launches, self._expander, (self._again, self._delay), settled)
        try:
            freed = compiled.run(self.arena, self.seen[1], unusual, self._seen)
        finally:  # as in a pass step by step
            compiled.finish()
            self._writer.wait()
        self._stuck += np.flatnonzero(compiled.stuck).tolist()
        return freed

    def _batch(self, pieces: Pieces, units: Units, requested: float | None, past: int, settled: int) -> int:
        """Take a batch, whose copy was requested after `requested`; None: nothing runs. Returns units freed."""
        slabs = find(units, pieces, settled)
        needed = None if requested is None else slabs.closed
        found = self._launches.find(units, slabs.at, self._staging.memory, needed)
        if requested is not None:
            slabs = identified(units, slabs, found, past)
        share = self._account(units, pieces, slabs, found, requested)
        taken = self._taken(units, pieces, share, found, self._expander)
        self._writer.begin(taken, lines := self.arena.take(taken.plan.lines))
        if self.device.file is not None:  # data that is cleared next is still there if the program dies
            self._writer.wait()
            self.device.file.keep(lines)
        freed = self._free(pieces, share.free)
        self._resize(units, taken, slabs.overrun > 0)
        self._stuck += pieces.stripe[~pieces.whole & (share.free == 0)].tolist()
        return freed

    # staging to host memory

    def _account(self, units: Units, pieces: Pieces, slabs: Slabs, found: Found, requested: float | None) -> Share:
        """Account for the slabs of a batch. requested: when its copy was requested; None if nothing runs."""
        if requested is not None:
            return account(self.state, units, pieces, self._overrun.settled(slabs, pieces, requested), found)
        # nothing runs: units outside slabs were skipped
        free = uncut(units, pieces, slabs)
        free += np.where(pieces.whole & self.state.turned[pieces.stripe], TURN, 0)
        self.state.found[pieces.stripe] = pieces.tail + free.astype(np.uint32) - pieces.skipped
        return account(self.state, units, pieces, slabs, found, free)

    def _taken(self, units: Units, pieces: Pieces, share: Share, found: Found, expander: Expander) -> Taken:
        """The slabs to expand, without those of other sessions or without a launch.

        A slab of another session was claimed late, or before a reset.
        """
        if found.unknown:
            expander.unidentified += int(np.count_nonzero(share.entry == UNKNOWN))
        plan = expander.plan(units, share.at, found.launches, share.entry)
        return Taken(units, found.launches, plan, claims_of(pieces, share.opens), self.epoch)

    def _resize(self, units: Units, taken: Taken, over: bool) -> None:
        """Adapt the sizes of the next slabs to the records of the warps that were taken. over: some had too many."""
        sizes, ring = self.device.sizes, int(self.state.ring[0]) * wire.UNIT
        for word in sizes.taken(units, taken.launches, taken.plan.at, taken.plan.entry, over, ring).tolist():
            value = sizes.words[word : word + 1].view(np.uint8)
            self._driver.write(self.device.control + wire.size_offset(word), value, self._writes)

    # and back

    def _free(self, batch: Pieces, free: Ints) -> int:
        """Clear the slabs that were kept and allow new claims there. Returns units freed.

        All tails move before the first call that may fail: nothing is kept twice, should the rest be salvaged.
        """
        stripe, units, total = batch.stripe, batch.units, int(free.sum())
        # an open slab blocks later ones: read less often
        late = free * 4 < units
        delay = np.where(late, np.minimum(2 * self._delay[stripe], _MOST_DELAY_S), _LEAST_DELAY_S)
        self._delay[stripe], self._again[stripe] = delay, time.monotonic() + delay * late
        self.state.freed(stripe, batch.tail + free.astype(np.uint32), batch.whole & (free >= units))
        self._calls.wait(self._writes)  # the limits of the previous batch
        kept = in_rings(self.device.table[stripe], batch.tail, np.minimum(free, units))
        self.device.clear_ranges(kept, self._writes, self._calls)
        if total:
            self._limit(self._control["head"])
        return total

    def _limit(self, head: U32s) -> None:
        """Write the limits after the earlier clears, once the earlier limits have been written."""
        self._limits, self._written = self._written, self._limits  # these wait for their call
        self._limits[:] = self.state.closing(head)
        column = self.device.control + wire.STRIPES_AT + wire.STRIPE.offset("limit")
        self._calls.write_column(column, wire.STRIPE_BYTES, self._limits.view(np.uint8), 4, self._writes)
