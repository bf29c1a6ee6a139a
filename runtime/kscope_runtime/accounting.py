"""Decides which claimed memory may be reused: every claimed unit is accounted for. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kscope import native
from kscope.util.arrays import Bools

from .launch_table import Found
from .slab_search import LOG2, Ints, Pieces, Slabs, U32s, Units, looks_whole

MASK = 0xFFFFFFFF
TURN = 1 << 32
"""Positions count modulo this."""
_FAR = TURN // 2


@dataclass
class Stripes:
    """The host's view of k stripes; each field is (k,) uint32, in units modulo 2^32.

    A stripe is an endless sequence of units; [tail, head) of it is claimed and not yet freed. Every claimed unit
    becomes part of a slab or is added to `skipped`, but the host may see either late:

        tail                                  edge of the ring          head
        | slab closed | slab closed | slab open |  skipped  | ... not yet seen |

    `skipped` is read before `head`, so it never counts a claim that head does not; later claims are seen at the next
    reading.

    Attributes:
        ring: units in the ring.
        tail: everything below is freed.
        found: units of the slabs below tail.
        proven: all claims below are accounted for.
        clean: no claim at or above it was refused for lack of room.
        limit: as last written.
        then: the limit when head was last read.
        turned: (k,) bool, claims ran so far beyond the tail that positions modulo 2^32 become ambiguous: a slab
            that stays open has blocked the ring, and all later claims were refused. Such a ring is out of use, and is
            taken as a whole once nothing runs.
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
        # a position below the tail would appear 2^31 units ahead of it later
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

    def freed(self, stripe: Ints, tail: U32s, whole: Bools) -> None:
        """Note that tails moved. whole: to head."""
        self.tail[stripe] = tail
        self.turned[stripe] &= ~whole
        mine = stripe[~self.turned[stripe]]
        self.limit[mine] = self.tail[mine] + self.ring[mine]


@dataclass(frozen=True)
class Share:
    """The slabs to take from a copy.

    Attributes:
        free: (p,) units that are free from the parts' tails, including refused ones.
        at: (t,) unit of each slab.
        entry: (t,) row of its launch, as in Found.
        opens: (p + 1,) first slab of each part.
    """

    free: Ints
    at: U32s
    entry: npt.NDArray[np.int32]
    opens: Ints


def account(
    state: Stripes, units: Units, pieces: Pieces, slabs: Slabs, found: Found, free: Ints | None = None
) -> Share:  # fmt: skip
    """Account for the slabs of a copy, and select those to take.

    Args:
        state: the stripes; `proven` and `found` are updated.
        units: (m, 8) uint32, the copy.
        pieces: its parts.
        slabs: all that find() found in them.
        found: their launches.
        free: if nothing runs, (p,) units that are free.
    """
    if not native.available():
        free = advance(state, pieces, slabs, uncut(units, pieces, slabs)) if free is None else free
        which, opens = slabs.before(pieces.first[:-1] + free)
        return Share(free, slabs.at[which], found.entry[which], opens)
    running, parts = int(free is None), len(pieces.stripe)
    free = np.empty(parts, np.int64) if free is None else free
    at, entry, opens = np.empty_like(slabs.at), np.empty_like(found.entry), np.empty(parts + 1, np.int64)
    about = parts, pieces.stripe, pieces.first, pieces.tail, pieces.whole, pieces.skipped, pieces.head
    columns = slabs.opens, slabs.at, slabs.log2, slabs.closed, found.entry
    stripes = state.ring, state.found, state.proven, state.clean, state.limit
    inputs = units, *LOG2, running, native.threads(), *about, *columns, *stripes
    taken = native.call("take", *inputs, free, opens, at, entry)
    if taken == len(slabs.at):
        return Share(free, slabs.at, found.entry, opens)
    return Share(free, at[:taken], entry[:taken], opens)


def uncut(copied: Units, pieces: Pieces, slabs: Slabs) -> Ints:
    """Units from its tail up to which each part can be taken without cutting a slab in two, (p,).

    To head if the part reaches it, else to the head of the slab that continues after the copy. More than 0 if slabs
    fit into a copy.

    Args:
        copied: (m, 8) uint32.
        pieces: the parts.
        slabs: all that find() found in them.
    """
    units = np.where(pieces.whole, (pieces.head - pieces.tail).astype(np.int64), pieces.units)
    for p in np.flatnonzero(~pieces.whole).tolist():
        first, stop = pieces.first[p : p + 2].tolist()
        known = slabs_end(slabs, p, first)
        # a head at the part's beginning belongs to a slab that no copy holds: it would have been found
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
    """Units from the tail up to which each part is closed and accounted for, (p,); updates `proven` and `found`.

    A gap between slabs is a claim whose head has not arrived yet, or a skipped one. It is known to be skipped

    * if the sums agree, head - skipped == units of all slabs ever found below head: nothing is in flight (if more is
      claimed than a copy holds, several copies show that: drain_pass.py); or
    * if no claim was refused for lack of room, so that only the one claim over the ring's edge can have been skipped,
      and exactly the units of this gap were.

    A part may be free beyond its copy, because claims above the limit were refused.

    Args:
        state: the stripes, updated.
        pieces: the parts.
        slabs: their slabs.
        most: the result of uncut(), an upper bound.
    """
    return np.array([_advance(state, pieces, p, _Part(pieces, slabs, p), int(most[p])) for p in range(len(most))])


class _Part:
    """The slabs of one part, by number from 0. Positions are units from its tail.

    Most slabs begin where the previous one ends, so few of them need a check.

    Attributes:
        slabs: their number.
        gaps: there is a gap before a slab.
        breaks: the slabs that are open, and those after a gap.
        reach: end of the last slab.
    """

    def __init__(self, pieces: Pieces, slabs: Slabs, p: int) -> None:
        which = slabs.of(p)
        self._closed, self._units = slabs.closed[which], slabs.units(which)
        self._start = slabs.at[which].astype(np.int64) - pieces.first[p]
        self.slabs, end = len(self._start), np.append(0, self._start + self._units)
        gap, self.reach = self._start != end[:-1], int(end[-1])
        self.gaps, self.breaks = bool(gap.any()), np.flatnonzero(gap | ~self._closed)

    def start(self, slab: int) -> int:
        """Where a slab begins."""
        return int(self._start[slab])

    def stop(self, slab: int) -> int:
        """Where a slab ends."""
        return self.start(slab) + int(self._units[slab])

    def is_closed(self, slab: int) -> bool:
        """True if a slab is complete."""
        return bool(self._closed[slab])

    def units(self, end: int) -> int:
        """Units of the slabs that start before `end`."""
        return int(self._units[self._start < end].sum())


def _advance(state: Stripes, pieces: Pieces, p: int, part: _Part, most: int) -> int:
    stripe, tail = int(pieces.stripe[p]), int(pieces.tail[p])
    head, skipped, whole = int(pieces.head[p]) - tail & MASK, int(pieces.skipped[p]), bool(pieces.whole[p])
    found, ring, room = int(state.found[stripe]), int(state.ring[stripe]), int(state.limit[stripe]) - tail & MASK
    since_tail = _since(np.array([state.proven[stripe], state.clean[stripe]]), pieces.tail[p : p + 1])
    proven, clean = since_tail.tolist()
    first = int(part.breaks[0]) if len(part.breaks) else part.slabs
    free = part.stop(first - 1) if first else 0
    # usually slabs follow each other from the tail on: free up to the first open one. Of a stripe larger than its
    # copy, a part without slabs may be known to be skipped
    if not part.gaps and (part.reach >= head or head <= room) and (whole or proven <= free):
        proven = max(proven, part.reach if part.reach >= head else free)
    else:
        # the sums agree: nothing below head is in flight
        if whole and tail + head - skipped - found - part.units(head) & MASK == 0:
            proven = head
        free, first, proven = _closed_until(part, proven, clean, tail, found, skipped, ring)
        # units below `proven` outside slabs were skipped; the first slab that is kept ends them
        kept = part.start(first) if first < part.slabs else most
        free = max(free, min(proven, kept))
    state.found[stripe] = found + part.units(free) & MASK
    state.proven[stripe] = tail + max(proven, free) & MASK
    return free


def _closed_until(
    part: _Part, proven: int, clean: int, tail: int, found: int, skipped: int, ring: int
) -> tuple[int, int, int]:
    """The position up to which a part is closed and accounted for, the first slab that is not, and the position up to
    which claims are proven.
    """
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
    return free, first, proven


def _not_below(position: U32s, tail: U32s) -> U32s:
    """The positions, or the tails if these are ahead."""
    return np.where((position - tail).view(np.int32) < 0, tail, position)


def _since(position: U32s, tail: U32s) -> Ints:
    """Units from tail up to a position, 0 if it is below."""
    return np.maximum((position - tail).view(np.int32), 0).astype(np.int64)
