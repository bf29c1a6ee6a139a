"""One pass over a device's stripes while it records: copy, account, keep, clear, raise limits.

What lives here: the copies, and who does what with them. What does not: which units are free
(accounting.py), when passes are made (drain.py).

A pass touches no stream of the user's and launches no kernel: copies go through a stream of their own.
Half of the staging buffer is filled by the device while threads read the other half.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np

from kscope.capture import layout
from kscope.util.parallel import is_shut_down

from .accounting import MASK, TURN, Ints, Lines, Pieces, Slabs, Stripes, U32s, advance, find, uncut
from .arena import Arena
from .device import Device
from .overrun_slabs import Twice
from .room import has_room

HALF = 32 << 20
_GROUP = 4 << 20
"""Bytes that one thread looks at at a time: few enough for its cache, many enough to be worth the switch."""
_LEAST_DELAY_S, _MOST_DELAY_S = 0.001, 0.032
_WORDS = layout.UNIT // 4


@dataclass(frozen=True)
class Part:
    """`units` units from `tail` on of a stripe; `whole`: up to the head that was read."""

    stripe: int
    tail: int
    units: int
    whole: bool


class Passes:
    """A device's stripes and what was taken from them so far. Not thread-safe."""

    def __init__(self, device: Device, workers: Executor) -> None:
        self.device = device
        self.arena = Arena()
        self.epoch = 0
        self._workers = workers
        self._driver, self._stream = device.driver, device.driver.stream()
        lines = device.stripes * layout.STRIPE_BYTES
        self._before, self._control = (device.driver.pinned(lines).view(layout.STRIPE) for _ in range(2))
        self.room = threading.Event()  # wakes who waits for room; whether there is some is in `seen`
        self.room.set()
        self.seen = time.monotonic(), True  # when the last look began, and whether there was room: replaced as one
        self._limits = device.driver.pinned(4 * device.stripes).view("<u4")
        self._staging = device.driver.pinned(2 * HALF).view("<u4").reshape(2, -1, _WORDS)
        self._keep = threading.Lock()
        self._stuck: list[int] = []  # stripes larger than a copy of which the last pass freed nothing
        self._lost = np.zeros(device.stripes, np.uint32)
        self.adopt()

    def adopt(self) -> None:
        """Start over with stripes in which nothing is claimed, as after the pool was replaced."""
        self.state = Stripes.at(self.device.words())
        self._twice = Twice(self.device.stripes)
        self._again = np.zeros(self.device.stripes)  # time before which a stripe is left alone
        self._delay = np.full(self.device.stripes, _LEAST_DELAY_S)

    def begin(self, epoch: int) -> None:
        """Keep what is found from now on under this epoch, and nothing else."""
        self.arena, self.epoch = Arena(), epoch
        self._look()
        self._lost = self._control["lost"].copy()

    def lost(self) -> int:
        """Lanes that found no room, from begin() to the last look."""
        return int((self._control["lost"] - self._lost).astype(np.int64).sum())

    def once(self, share: int) -> int:
        """Take what is closed of the stripes that are claimed to 1/share or more: bytes that were freed."""
        skipped, head = self._look()
        now = time.monotonic()
        enough = (self.state.claimed(head) * share >= self.state.ring) & ~self.state.turned
        worth = np.flatnonzero(enough & (now >= self._again))
        freed = self._pass(worth, skipped, head, closed=True)
        if self._stuck:  # one of them: the others wait for their next pass while this looks at a whole ring
            freed += self._prove(self._stuck[0])
        return freed

    def everything(self, *, closed: bool) -> None:
        """Take all that is claimed; closed=False: unfinished slabs as well, once the device has done all its work."""
        skipped, head = self._look()
        while True:
            some = np.where(self.state.turned, not closed, head != self.state.tail)
            freed = self._pass(np.flatnonzero(some), skipped, head, closed)
            if closed or not freed:
                break

    def peek(self) -> Lines:
        """A copy of what is claimed and not freed, slabs that are still being written included; (n, 16) uint32."""
        skipped, head = self._look()
        found = [np.zeros((0, _WORDS), np.uint32)]
        for stripe in np.flatnonzero((head != self.state.tail) | self.state.turned).tolist():
            for lines, slabs in self._walk(stripe, skipped, head):
                self._hide(lines, slabs)
                found.append(lines.copy())
        return np.concatenate(found)

    def _prove(self, stripe: int) -> int:
        """A stripe of which more is claimed than a copy holds, and of which nothing could be freed: where no slab holds
        it up, look through all of it whether the sums agree, and what is in no slab was skipped. Bytes that were freed:
        of a stripe in which there is none at all."""
        skipped, head = self._look()
        at = reach = units = 0
        for lines, slabs in self._walk(stripe, skipped, head):
            if not at and len(slabs.at) and not slabs.at[0]:
                return 0  # one that is open
            if len(slabs.at):
                reach = at + int(slabs.at[-1] + slabs.units[-1])
            at, units = at + len(lines), units + int(slabs.units.sum())
        tail, end = int(self.state.tail[stripe]), int(head[stripe])
        if end - int(skipped[stripe]) - int(self.state.found[stripe]) - units & MASK:
            return 0
        self._again[stripe] = 0
        self.state.proven[stripe] = tail + reach & MASK
        if units:
            return 0
        return self._free([Part(stripe, tail, 0, True)], np.array([end - tail & MASK])) * layout.UNIT

    def _look(self) -> tuple[U32s, U32s]:
        """(skipped, head) of every stripe. Two copies, one after the other: a lane adds to `head` first, so what the
        first one shows in `skipped` the second one counts in `head`."""
        began = time.monotonic()
        for words in (self._before, self._control):
            self._driver.read(words.view(np.uint8), self.device.control + layout.GATE_BYTES, self._stream)
            self._driver.synchronize(self._stream)
        skipped, head = self._before["skipped"].copy(), self._control["head"].copy()
        self.state.saw(head)
        if self.state.turned.any():
            self._limit(head)
        room = has_room(self.state.claimed(head), self.state.ring)
        self.seen = began, room
        if room:
            self.room.set()
        else:
            self.room.clear()
        return skipped, head

    def _pass(self, stripes: Ints, skipped: U32s, head: U32s, closed: bool) -> int:
        freed, asked = 0, time.monotonic()
        self._stuck = []
        for batch, lines in self._batches(stripes, head):
            groups = list(_groups(self._pieces(batch, skipped, head)))
            settle = partial(self._settle, lines, asked=asked if closed else None)
            done = map(settle, groups) if is_shut_down(self._workers) else self._workers.map(settle, groups)
            free = np.concatenate(list(done))
            freed += self._free(batch, free)
            self._stuck += [part.stripe for part, units in zip(batch, free, strict=True) if not (part.whole or units)]
            # how much room is left, while this pass takes its time. Not before the threads are done: this waits
            # for all that the stream was given, and that is the next batch's copy
            self._look()
        return freed * layout.UNIT

    # device to staging

    def _batches(self, stripes: Ints, head: U32s) -> Iterator[tuple[list[Part], Lines]]:
        """The stripes' claimed parts as lines of staging memory, good until the next but one is asked for."""
        granted = self.state.granted(head)
        batches: list[list[Part]] = []
        used, room = 0, self._staging.shape[1]
        for stripe in stripes.tolist():
            units = int(granted[stripe])
            cut = min(units, room)
            if not batches or used + cut > room:
                batches.append([])
                used = 0
            batches[-1].append(Part(stripe, int(self.state.tail[stripe]), cut, cut == units))
            used += cut
        ready: tuple[list[Part], Lines] | None = None
        for index, batch in enumerate(batches):
            if ready is None:
                ready = batch, self._fetch(batch, self._staging[index % 2])
            self._driver.synchronize(self._stream)
            now = ready
            if index + 1 < len(batches):
                following = batches[index + 1]
                ready = following, self._fetch(following, self._staging[(index + 1) % 2])
            yield now

    def _walk(self, stripe: int, skipped: U32s, head: U32s) -> Iterator[tuple[Lines, Slabs]]:
        """All that is claimed of a stripe and not freed, copy after copy in staging memory, each good until the next is
        asked for; no slab is cut in two by their ends."""
        tail, left = int(self.state.tail[stripe]), int(self.state.granted(head)[stripe])
        while left:
            cut = min(left, self._staging.shape[1])
            part = Part(stripe, tail, cut, cut == left)
            lines = self._fetch([part], self._staging[0])
            self._driver.synchronize(self._stream)
            pieces = self._pieces([part], skipped, head)
            slabs = find(lines, pieces)
            units = min(cut, int(uncut(lines, pieces, slabs)[0]))
            yield lines[:units], slabs
            tail, left = tail + units & MASK, left - units

    def _fetch(self, batch: list[Part], staging: Lines) -> Lines:
        at = 0
        for part in batch:
            for address, units in self._ranges(part.stripe, part.tail, part.units):
                into = staging[at : at + units].reshape(-1).view(np.uint8)
                self._driver.read(into, address, self._stream)
                at += units
        return staging[:at]

    def _ranges(self, stripe: int, tail: int, units: int) -> Iterator[tuple[int, int]]:
        """(address, units) of the one or two parts of a ring that these units stand in."""
        words = self.device.table[stripe]
        base, ring = int(words["base"]), int(words["mask"]) + 1
        at = tail & ring - 1
        straight = min(units, ring - at)
        if straight:
            yield base + at * layout.UNIT, straight
        if units > straight:
            yield base, units - straight

    def _pieces(self, batch: list[Part], skipped: U32s, head: U32s) -> Pieces:
        stripe = np.array([part.stripe for part in batch])
        return Pieces(
            stripe=stripe,
            first=np.cumsum([0, *(part.units for part in batch)]),
            tail=np.array([part.tail for part in batch], np.uint32),
            whole=np.array([part.whole for part in batch]),
            skipped=skipped[stripe],
            head=head[stripe],
        )

    # staging to host memory, in threads

    def _settle(self, lines: Lines, pieces: Pieces, asked: float | None) -> Ints:
        """Keep what is free of these pieces: (p,) units from their tails, those that were refused included. asked:
        when the copy was asked for, None = nothing runs."""
        slabs = find(lines, pieces)
        free = uncut(lines, pieces, slabs)
        self._hide(lines, slabs)
        if asked is not None:
            free = advance(self.state, pieces, self._twice.settled(slabs, pieces, asked), free)
        else:
            # nothing runs: what is claimed and in no slab was skipped
            free += np.where(pieces.whole & self.state.turned[pieces.stripe], TURN, 0)
            self.state.found[pieces.stripe] = pieces.tail + free.astype(np.uint32) - pieces.skipped
        kept = np.minimum(free, np.diff(pieces.first))
        with self._keep:
            room = self.arena.take(int(kept.sum()))
        at = 0
        for first, units in zip(pieces.first.tolist(), kept.tolist(), strict=False):
            room[at : at + units] = lines[first : first + units]
            at += units
        return free

    def _hide(self, lines: Lines, slabs: Slabs) -> None:
        """Slabs of another session (claimed late, or before a reset) are no data of this one."""
        foreign = slabs.epoch != self.epoch
        if foreign.any():
            at, units = slabs.at[foreign], slabs.units[foreign]
            within = np.arange(int(units.sum())) - np.repeat(np.cumsum(units) - units, units)
            lines[np.repeat(at, units) + within] = 0

    # and back

    def _free(self, batch: list[Part], free: Ints) -> int:
        """Clear what was kept, and let it be claimed again: units that were freed."""
        now, total = time.monotonic(), 0
        for part, passed in zip(batch, free.tolist(), strict=True):
            for address, units in self._ranges(part.stripe, part.tail, min(passed, part.units)):
                self.device.clear(address, units * layout.UNIT, self._stream)
            total += passed
            # a slab that stays open holds up what is behind it: look less often
            late = passed * 4 < part.units
            delay = min(2 * self._delay[part.stripe], _MOST_DELAY_S) if late else _LEAST_DELAY_S
            self._delay[part.stripe], self._again[part.stripe] = delay, now + delay * late
            self.state.freed(part.stripe, part.tail + passed & MASK, part.whole and passed >= part.units)
        if total:
            self._limit(self._control["head"])
        return total

    def _limit(self, head: U32s) -> None:
        """Write the limits, when the stream has done what it was given before."""
        self._limits[:] = self.state.closing(head)
        column = self.device.control + layout.GATE_BYTES + layout.STRIPE.fields["limit"][1]  # type: ignore[index]  # it has fields
        self._driver.write_column(column, layout.STRIPE_BYTES, self._limits.view(np.uint8), 4, self._stream)


def _groups(pieces: Pieces) -> Iterator[Pieces]:
    """The pieces in runs of about _GROUP bytes."""
    start = 0
    for stop in range(1, len(pieces.stripe) + 1):
        size = int(pieces.first[stop] - pieces.first[start]) * layout.UNIT
        if size >= _GROUP or stop == len(pieces.stripe):
            run = slice(start, stop)
            yield Pieces(
                stripe=pieces.stripe[run],
                first=pieces.first[start : stop + 1],
                tail=pieces.tail[run],
                whole=pieces.whole[run],
                skipped=pieces.skipped[run],
                head=pieces.head[run],
            )
            start = stop
