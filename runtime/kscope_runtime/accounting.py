"""Which memory may be used again: claims are accounted for, never guessed.

What lives here: pure functions and the host's state of every stripe; no driver, no thread. What does
not: copies and limits (drain.py).

A stripe is an endless sequence of units; [tail, head) of it is claimed and not yet freed. Every claimed
unit becomes part of a slab, or is added to `skipped`, but either may be seen late:

    tail                                  edge of the ring          head
    | slab closed | slab closed | slab open |  skipped  | ... not yet seen |

A gap between slabs is a claim whose header is on its way, or a skipped one. It is known to be skipped

 * when the sums agree, head - skipped == units of all slabs ever found below head: nothing is on its way (where more
   is claimed than a copy holds, that takes several: passes.py); or
 * when no claim was refused for want of room, so that the one claim over the ring's edge is all that can
   have been skipped, and just the units of this gap were.

`skipped` is read before `head`: it never counts a claim that head does not. What it misses is seen at the next look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope.capture import layout

U32s = npt.NDArray[np.uint32]
Lines = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MASK = 0xFFFFFFFF
TURN = 1 << 32
"""Units after which positions begin anew."""
_FAR = TURN // 2


@dataclass
class Stripes:
    """The host's view of k stripes, each field (k,) uint32, in units modulo 2^32.

    ring: units in the ring. tail: everything below is freed. found: units of the slabs below tail.
    proven: all claims below are accounted for. clean: no claim at or above it was refused for want of room.
    limit: as last written; then: as it was when head was last read.
    turned: (k,) bool, claims run so far beyond the tail that positions modulo 2^32 soon mean nothing: a slab that stays
    open has held the ring up, and all claims since it was full were refused. Such a ring is out of use, and taken as a
    whole when nothing runs.
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
        """Stripes in which nothing is claimed, from (k,) layout.STRIPE words read while nothing ran."""
        head, ring = table["head"].copy(), table["mask"] + np.uint32(1)
        limit = head + ring
        found, turned = head - table["skipped"], np.zeros(len(head), bool)
        return Stripes(ring, head, found, head.copy(), head.copy(), limit, limit.copy(), turned)

    def saw(self, head: U32s) -> None:
        """`head` was read: a claim may have been refused for room where it passed the limit of the time before."""
        over = (self.then - head).view(np.int32) < 0
        # what stays behind the tail would look as if it were ahead of it, 2^31 units later
        self.clean = np.where(over, head, _not_below(self.clean, self.tail))
        self.proven = _not_below(self.proven, self.tail)
        self.then = self.limit.copy()
        self.turned |= head - self.tail > _FAR

    def claimed(self, head: U32s) -> Ints:
        """Units that are claimed and not freed, those that were refused included; all of a ring that is turned."""
        return np.where(self.turned, self.ring, head - self.tail).astype(np.int64)

    def granted(self, head: U32s) -> Ints:
        """Units from the tail on that may be in slabs."""
        room = self.limit - self.tail
        return np.where(self.turned, room, np.minimum(head - self.tail, room)).astype(np.int64)

    def closing(self, head: U32s) -> U32s:
        """The limits to be written: where a ring is turned its head, so that no claim comes round to the ring."""
        return np.where(self.turned, head, self.limit)

    def freed(self, stripe: int, tail: int, whole: bool) -> None:
        """The tail moved. whole: to head."""
        self.tail[stripe] = tail
        self.turned[stripe] &= not whole
        if not self.turned[stripe]:
            self.limit[stripe] = tail + int(self.ring[stripe]) & MASK


@dataclass(frozen=True)
class Pieces:
    """Parts of stripes as copied, one after the other in lines; each (p,).

    stripe: its index. first: where it begins in lines, with the end of the last one added: (p + 1,).
    tail: position of its first unit. whole: it reaches to head. skipped, head: as read before the copy.
    """

    stripe: Ints
    first: Ints
    tail: U32s
    whole: Bools
    skipped: U32s
    head: U32s


@dataclass(frozen=True)
class Slabs:
    """Slabs found in lines, ascending; each (s,). at: line of the header; piece; units; epoch; position: the claim's.

    closed: the end is there, and as many records as the slab should hold. over: records were overwritten.
    """

    at: Ints
    piece: Ints
    units: Ints
    closed: Bools
    epoch: U32s
    position: U32s
    over: Bools


def find(lines: Lines, pieces: Pieces) -> Slabs:
    """All slabs whose header is whole and stands where it says, within one piece; lines: (m, 16) uint32.

    Fastest on a few MiB: every line is looked at several times, and should be in the cache by then.
    """
    low, high = int(pieces.first[0]), int(pieces.first[-1])
    at = np.flatnonzero(lines[low : high - 1].reshape(-1)[:: layout.UNIT // 4] == layout.HEADER_WORD) + low
    begin, end = lines.take(at, axis=0), lines.take(at + 1, axis=0)
    piece = np.repeat(np.arange(len(pieces.stripe)), np.diff(np.searchsorted(at, pieces.first)))
    where = (at + (pieces.tail - pieces.first[:-1])[piece]).astype(np.uint32)
    log2 = (begin[:, 11] >> np.uint32(layout.LOG2_SHIFT) & np.uint32(31)).astype(np.int64)
    units = layout.HEADER_UNITS + (1 << log2) // layout.RECORDS_PER_UNIT
    good = at + units <= pieces.first[1:][piece]
    good &= begin[:, 13] == where
    good &= begin[:, 14] == pieces.stripe.astype(np.uint32)[piece]
    good &= _checked(begin, end)
    if not good.all():
        at, piece, units, begin, end = at[good], piece[good], units[good], begin[good], end[good]
    count = end[:, 13].astype(np.int64)
    room = (units - layout.HEADER_UNITS) * layout.RECORDS_PER_UNIT
    closed = end[:, 15] == (end[:, 13] ^ end[:, 8] ^ np.uint32(layout.DONE_WORD))
    closed &= _arrived(lines[low:high], at - low, units) >= np.minimum(count, room)
    ring = begin[:, 11] >> np.uint32(layout.FLAG_SHIFT) & np.uint32(layout.FLAG_STOP) == 0
    return Slabs(at, piece, units, closed, begin[:, 1], begin[:, 13], ring & (count > room))


def _checked(begin: Lines, end: Lines) -> Bools:
    """Whether HEADER["check"] is right: words 0..15 and 16..20 together are 0."""
    left, right = begin.view(np.uint64), end.view(np.uint64)
    fold = left[:, 0] ^ left[:, 1]
    for column in (*(left[:, i] for i in range(2, 8)), right[:, 0], right[:, 1]):
        fold ^= column
    folded = (fold ^ fold >> np.uint64(32)).astype(np.uint32) ^ end[:, 4]
    return np.asarray(folded == 0)


def _arrived(lines: Lines, at: Ints, units: Ints) -> Ints:
    """Records of each slab that are there: their id is never 0, and memory is cleared before it is used."""
    if not len(at):
        return np.zeros(0, np.int64)
    there = lines.reshape(-1)[1::4] != 0
    in_line = there.view(np.uint32) * np.uint32(0x01010101) >> np.uint32(24)
    if (units == layout.HEADER_UNITS + 1).all():
        return np.asarray(in_line.take(at + 2), np.int64)
    bounds = np.stack([at + layout.HEADER_UNITS, at + units], axis=1).ravel()
    if bounds[-1] == len(in_line):
        bounds = bounds[:-1]
    return np.asarray(np.add.reduceat(in_line, bounds, dtype=np.int64)[::2])


def uncut(lines: Lines, pieces: Pieces, slabs: Slabs) -> Ints:
    """How far each piece could be taken with no slab cut in two, as (p,) units from its tail: to head where it reaches
    that far, else to the header of the slab that goes on behind the copy. More than 0 where slabs fit into a copy.
    slabs: all that find() found in them."""
    units = np.where(pieces.whole, (pieces.head - pieces.tail).astype(np.int64), np.diff(pieces.first))
    for p in np.flatnonzero(~pieces.whole).tolist():
        first, stop = pieces.first[p : p + 2].tolist()
        last = int(np.searchsorted(slabs.piece, p, side="right")) - 1
        known = int(slabs.at[last] + slabs.units[last]) if last >= 0 and slabs.piece[last] == p else first
        # a header that the piece begins with is torn: a slab would have been found
        begin = max(known, first + 1)
        headers = np.flatnonzero(lines[begin:stop, 0] == layout.HEADER_WORD)
        units[p] = (begin + int(headers[0]) if len(headers) else stop) - first
    return units


def advance(state: Stripes, pieces: Pieces, slabs: Slabs, most: Ints) -> Ints:
    """How far each piece is closed and accounted for, as (p,) units from its tail, at most as many as uncut() gave;
    updates `proven` and `found`.

    A piece may be free to beyond its copy: claims above the limit were refused.
    """
    start = slabs.at - pieces.first[slabs.piece]
    stop = start + slabs.units
    opens = np.searchsorted(slabs.piece, np.arange(len(pieces.stripe) + 1))
    low, high = opens[:-1], opens[1:]
    before = np.concatenate([[0], stop])[:-1]
    before[low[low < high]] = 0
    breaks, gaps = np.flatnonzero(~slabs.closed | (start != before)), np.flatnonzero(start != before)
    bounds = np.searchsorted(breaks, opens)
    # mostly the slabs stand one after the other from the tail on: free up to the first that is open
    end = np.append(breaks, len(start))[bounds[:-1]]
    ends = np.concatenate([[0], stop])
    free = np.where(np.minimum(end, high) > low, ends[np.minimum(end, high)], 0)
    reach = np.where(high > low, ends[high], 0)
    stripe, head = pieces.stripe, (pieces.head - pieces.tail).astype(np.int64)
    room = (state.limit[stripe] - pieces.tail).astype(np.int64)
    plain = (np.diff(np.searchsorted(gaps, opens)) == 0) & ((reach >= head) | (head <= room))
    # of a stripe that is larger than its copy, a part with no slab in it may be known to be skipped
    plain &= pieces.whole | (_since(state.proven[stripe], pieces.tail) <= free)
    mine = stripe[plain]
    state.found[mine] += free[plain].astype(np.uint32)
    known = np.where(reach >= head, reach, free)[plain]
    proven = np.maximum(known, _since(state.proven[mine], pieces.tail[plain]))
    state.proven[mine] = pieces.tail[plain] + proven.astype(np.uint32)
    if plain.all():
        return free
    sums = np.concatenate([[0], np.cumsum(slabs.units)])
    for p in np.flatnonzero(~plain).tolist():
        run = _Run(start, stop, slabs.closed, sums, int(low[p]), int(high[p]))
        free[p] = _advance(state, pieces, p, run, breaks[bounds[p] : bounds[p + 1]], int(most[p]))
    return free


@dataclass(frozen=True)
class _Run:
    """Slabs low..high of one piece: units from its tail where they start and stop; sums over all pieces."""

    start: Ints
    stop: Ints
    closed: Bools
    sums: Ints
    low: int
    high: int

    def units(self, end: int) -> int:
        """Units of the slabs that start before `end`."""
        last = self.low + int(np.searchsorted(self.start[self.low : self.high], end))
        return int(self.sums[last] - self.sums[self.low])


def _advance(state: Stripes, pieces: Pieces, p: int, run: _Run, breaks: Ints, most: int) -> int:
    stripe, tail = int(pieces.stripe[p]), int(pieces.tail[p])
    head, skipped, whole = int(pieces.head[p]) - tail & MASK, int(pieces.skipped[p]), bool(pieces.whole[p])
    found, ring = int(state.found[stripe]), int(state.ring[stripe])
    since_tail = _since(np.array([state.proven[stripe], state.clean[stripe]]), pieces.tail[p : p + 1])
    proven, clean = since_tail.tolist()
    # the sums agree: nothing is on its way below head
    if whole and tail + head - skipped - found - run.units(head) & MASK == 0:
        proven = head
    free, first = 0, run.low
    for at in [*breaks.tolist(), run.high]:
        if at > first:
            free = int(run.stop[at - 1])
        first = at
        if at == run.high or not run.closed[at]:
            break
        known, gap_to = max(free, proven), int(run.start[at])
        if gap_to > known:
            # one claim over the edge, and just as many units skipped as this gap has
            over_edge = (tail + known & ring - 1) + gap_to - known > ring
            since = skipped - (tail + known - found - run.units(known)) & MASK
            if known < clean or not over_edge or since != gap_to - known:
                break
            proven = gap_to
        free, first = int(run.stop[at]), at + 1
    # units below `proven` that are in no slab were skipped; the first slab that is kept ends them
    kept = int(run.start[first]) if first < run.high else most
    free = max(free, min(int(proven), kept))
    state.found[stripe] = found + run.units(free) & MASK
    state.proven[stripe] = tail + max(proven, free) & MASK
    return free


def _not_below(position: U32s, tail: U32s) -> U32s:
    """The positions, or the tails where these are ahead."""
    return np.where((position - tail).view(np.int32) < 0, tail, position)


def _since(position: U32s, tail: U32s) -> Ints:
    """Units from tail up to a position, 0 where it lies below."""
    return np.maximum((position - tail).view(np.int32), 0).astype(np.int64)
