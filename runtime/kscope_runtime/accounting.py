"""Which memory may be reused: claims are accounted for, never guessed. Pure functions; no driver, no thread.

A stripe is an endless sequence of units; [tail, head) of it is claimed and not yet freed. Every claimed unit becomes
part of a slab or is added to `skipped`, but the host may see either late:

    tail                                  edge of the ring          head
    | slab closed | slab closed | slab open |  skipped  | ... not yet seen |

A gap between slabs is a claim whose head has not arrived yet, or a skipped one. It is known to be skipped

 * if the sums agree, head - skipped == units of all slabs ever found below head: nothing is in flight (if more is
   claimed than a copy holds, several copies show that: drain_pass.py); or
 * if no claim was refused for lack of room, so that only the one claim over the ring's edge can have been skipped, and
   exactly the units of this gap were.

`skipped` is read before `head`, so it never counts a claim that head does not. What it misses is seen the next time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kscope import native
from kscope.capture import wire
from kscope.util.arrays import Bools

from .slab_search import Extents, Ints, Pieces, Slabs, U32s, Units, looks_whole

MASK = 0xFFFFFFFF
TURN = 1 << 32
"""Positions count modulo this."""
_FAR = TURN // 2


@dataclass
class Stripes:
    """The host's view of k stripes; each field is (k,) uint32, in units modulo 2^32.

    Attributes:
        ring: units in the ring.
        tail: everything below is freed.
        found: units of the slabs below tail.
        proven: all claims below are accounted for.
        clean: no claim at or above it was refused for lack of room.
        limit: as last written.
        then: the limit when head was last read.
        turned: (k,) bool, claims ran so far beyond the tail that positions modulo 2^32 become ambiguous: a slab that
            stays open has blocked the ring, and all later claims were refused. Such a ring is out of use, and is taken
            as a whole once nothing runs.
    """

    ring: U32s
    tail: U32s
    found: U32s
    proven: U32s
    clean: U32s
    limit: U32s
    then: U32s
    turned: Bools

    @staticmethod
    def at(table: np.ndarray) -> Stripes:
        """Stripes without claims, from (k,) layout.STRIPE words read while nothing ran."""
        head, ring = table["head"].copy(), table["mask"] + np.uint32(1)
        limit = head + ring
        found, turned = head - table["skipped"], np.zeros(len(head), bool)
        return Stripes(ring, head, found, head.copy(), head.copy(), limit, limit.copy(), turned)

    def saw(self, head: U32s) -> None:
        """Note a new `head`: a claim beyond the limit of the previous reading may have been refused for lack of
        room.
        """
        over = (self.then - head).view(np.int32) < 0
        # a position behind the tail would appear ahead of it 2^31 units later
        self.clean = np.where(over, head, _not_below(self.clean, self.tail))
        self.proven = _not_below(self.proven, self.tail)
        self.then = self.limit.copy()
        self.turned |= head - self.tail > _FAR

    def claimed(self, head: U32s) -> Ints:
        """Units claimed and not freed, including refused ones; all of a ring that is turned."""
        return np.where(self.turned, self.ring, head - self.tail).astype(np.int64)

    def granted(self, head: U32s) -> Ints:
        """Units from the tail on that may be in slabs."""
        room = self.limit - self.tail
        return np.where(self.turned, room, np.minimum(head - self.tail, room)).astype(np.int64)

    def closing(self, head: U32s) -> U32s:
        """The limits to write: for a turned ring its head, so that no claim reaches the ring again."""
        return np.where(self.turned, head, self.limit)

    def freed(self, stripe: int, tail: int, whole: bool) -> None:
        """Note that the tail moved. whole: to head."""
        self.tail[stripe] = tail
        self.turned[stripe] &= not whole
        if not self.turned[stripe]:
            self.limit[stripe] = tail + int(self.ring[stripe]) & MASK


def uncut(copied: Units, pieces: Pieces, slabs: Slabs) -> Ints:
    """How far each part can be taken without cutting a slab in two, as (p,) units from its tail.

    To head if the part reaches it, else to the head of the slab that continues after the copy. More than 0 if slabs
    fit into a copy.

    Args:
        copied: (m, 8) uint32.
        pieces: the parts.
        slabs: all that find() found in them.
    """
    units = np.where(pieces.whole, (pieces.head - pieces.tail).astype(np.int64), np.diff(pieces.first))
    for p in np.flatnonzero(~pieces.whole).tolist():
        first, stop = pieces.first[p : p + 2].tolist()
        known = slabs_end(slabs, p, first)
        # a head at the part's beginning is of a slab that no copy holds: it would have been found
        begin = max(known, first + 1)
        heads = np.flatnonzero(looks_whole(copied[begin:stop]))
        units[p] = (begin + int(heads[0]) if len(heads) else stop) - first
    return units


def slabs_end(slabs: Slabs, part: int, first: int) -> int:
    """The unit after the last slab of a part that begins at unit `first`."""
    mine = slabs.of(part)
    if mine.start == mine.stop:
        return first
    last = slice(mine.stop - 1, mine.stop)
    return int(slabs.at[last][0]) + int(slabs.units(last)[0])


def advance(state: Stripes, pieces: Pieces, slabs: Slabs, most: Ints) -> Ints:
    """How far each part is closed and accounted for, as (p,) units from its tail; updates `proven` and `found`.

    A part may be free beyond its copy, because claims above the limit were refused.

    Args:
        state: the stripes, updated.
        pieces: the parts.
        slabs: their slabs.
        most: the result of uncut(), an upper bound.
    """
    extents = slabs.extents or _extents(pieces, slabs)
    free, reach, gaps = extents.free, extents.reach, extents.gaps
    stripe, head = pieces.stripe, (pieces.head - pieces.tail).astype(np.int64)
    room = (state.limit[stripe] - pieces.tail).astype(np.int64)
    # usually slabs follow each other from the tail on: free up to the first open one
    plain = ~gaps & ((reach >= head) | (head <= room))
    # of a stripe larger than its copy, a part without slabs may be known to be skipped
    plain &= pieces.whole | (_since(state.proven[stripe], pieces.tail) <= free)
    mine = stripe[plain]
    state.found[mine] += free[plain].astype(np.uint32)
    known = np.where(reach >= head, reach, free)[plain]
    proven = np.maximum(known, _since(state.proven[mine], pieces.tail[plain]))
    state.proven[mine] = pieces.tail[plain] + proven.astype(np.uint32)
    for p in np.flatnonzero(~plain).tolist():
        free[p] = _advance(state, pieces, p, _Part(pieces, slabs, extents, p), int(most[p]))
    return free


def _extents(pieces: Pieces, slabs: Slabs) -> Extents:
    parts = len(pieces.stripe)
    free, reach = np.empty((2, parts), np.int64)
    gaps, breaks = np.empty(parts, bool), np.empty(len(slabs.at), bool)
    if native.available():
        columns = slabs.at, slabs.log2, slabs.closed, native.threads()
        native.call("extents", parts, slabs.opens, pieces.first, *columns, free, reach, gaps, breaks)
        return Extents(free, reach, gaps, breaks)
    for p in range(parts):
        which = slabs.of(p)
        start = slabs.at[which].astype(np.int64) - pieces.first[p]
        end = np.append(0, start + slabs.units(which))
        gap = start != end[:-1]
        breaks[which] = gap | ~slabs.closed[which]
        gaps[p], reach[p] = gap.any(), end[-1]
        free[p] = end[int(np.argmax(np.append(breaks[which], True)))]
    return Extents(free, reach, gaps, breaks)


class _Part:
    """The slabs of one part, by number from 0. Positions are units from its tail.

    Most slabs begin where the one before ends, so few of them need a look.

    Attributes:
        slabs: their number.
        breaks: the open ones, and those after a gap.
    """

    def __init__(self, pieces: Pieces, slabs: Slabs, extents: Extents, p: int) -> None:
        which = slabs.of(p)
        self._first = int(pieces.first[p])
        self._at, self._log2, self._closed = slabs.at[which], slabs.log2[which], slabs.closed[which]
        self.slabs = len(self._at)
        self.breaks = np.flatnonzero(extents.breaks[which])

    def start(self, slab: int) -> int:
        """Where a slab begins."""
        return int(self._at[slab]) - self._first

    def stop(self, slab: int) -> int:
        """Where a slab ends."""
        return self.start(slab) + wire.slab_units(int(self._log2[slab]))

    def is_closed(self, slab: int) -> bool:
        """Whether a slab is complete."""
        return bool(self._closed[slab])

    def units(self, end: int) -> int:
        """Units of the slabs that start before `end`."""
        last = int(np.searchsorted(self._at, np.uint32(self._first + end)))
        if not last:
            return 0
        gaps, before = 0, self.breaks[(self.breaks < last) & (self.breaks > 0)]
        if len(before):
            sizes = wire.HEAD_UNITS + (np.int64(1) << self._log2[before - 1].astype(np.int64)) // wire.RECORDS_PER_UNIT
            gaps = int((self._at[before] - self._at[before - 1]).astype(np.int64).sum() - sizes.sum())
        return self.stop(last - 1) - self.start(0) - gaps


def _advance(state: Stripes, pieces: Pieces, p: int, part: _Part, most: int) -> int:
    stripe, tail = int(pieces.stripe[p]), int(pieces.tail[p])
    head, skipped, whole = int(pieces.head[p]) - tail & MASK, int(pieces.skipped[p]), bool(pieces.whole[p])
    found, ring = int(state.found[stripe]), int(state.ring[stripe])
    since_tail = _since(np.array([state.proven[stripe], state.clean[stripe]]), pieces.tail[p : p + 1])
    proven, clean = since_tail.tolist()
    # the sums agree: nothing below head is in flight
    if whole and tail + head - skipped - found - part.units(head) & MASK == 0:
        proven = head
    free = first = 0
    for at in [*part.breaks.tolist(), part.slabs]:
        if at > first:
            free = part.stop(at - 1)
        first = at
        if at == part.slabs or not part.is_closed(at):
            break
        known, gap_to = max(free, proven), part.start(at)
        if gap_to > known:
            # one claim over the edge, and exactly this gap's units skipped
            over_edge = (tail + known & ring - 1) + gap_to - known > ring
            since = skipped - (tail + known - found - part.units(known)) & MASK
            if known < clean or not over_edge or since != gap_to - known:
                break
            proven = gap_to
        free, first = part.stop(at), at + 1
    # units below `proven` outside slabs were skipped; the first slab that is kept ends them
    kept = part.start(first) if first < part.slabs else most
    free = max(free, min(int(proven), kept))
    state.found[stripe] = found + part.units(free) & MASK
    state.proven[stripe] = tail + max(proven, free) & MASK
    return free


def _not_below(position: U32s, tail: U32s) -> U32s:
    """The positions, or the tails if these are ahead."""
    return np.where((position - tail).view(np.int32) < 0, tail, position)


def _since(position: U32s, tail: U32s) -> Ints:
    """Units from tail up to a position, 0 if it is below."""
    return np.maximum((position - tail).view(np.int32), 0).astype(np.int64)
