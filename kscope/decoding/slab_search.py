"""The search for headers: finds the 64-byte lines of a device that begin with the magic number and are in no slab."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import native
from ..capture import layout
from ..util.arrays import Bools, Int64
from ..util.parallel import chunks, each, map_ahead

HEADERS = 1 << 12
"""Headers that numpy reads at a time: its temporaries take half a MiB."""
WHOLE, TORN, CUT, ALIEN = range(4)
"""States of candidate headers."""
ANY = np.full(32, 0xFFFFFFFF, np.uint32)
"""Words of headers all of whose bits may differ."""
_CHUNK_LINES = 1 << 14
"""Lines that a thread searches at a time, as in slabs.c."""
_PLACE, _CHECK = (layout.HEADER.offset(name) // 4 for name in ("place", "check"))

Words = npt.NDArray[np.uint32]


def search(lines: Words) -> tuple[Int64, npt.NDArray[np.uint8], Words]:
    """Lines that begin with the magic number and are in no slab, the state of each, and (32,) bits of the words of
    headers that may differ between them.
    """
    return _compiled(lines) if native.available() else (*_in_numpy(lines), ANY)


def _compiled(lines: Words) -> tuple[Int64, npt.NDArray[np.uint8], Words]:
    limits = layout.HEADER_WORD, layout.LOG2_SHIFT, layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS
    least = layout.slab_lines(layout.MIN_LOG2_RECORDS)
    for spacing in (least, 1):  # only damaged headers are closer together than slabs
        most = len(lines) // spacing + len(lines) // _CHUNK_LINES + 2
        at, state = np.empty(most, np.int64), np.empty(most, np.uint8)
        threads = min(native.threads(), len(lines) // _CHUNK_LINES + 1)
        varying = np.zeros_like(ANY)
        found = native.call("find", lines, len(lines), *limits, spacing, threads, at, state, varying)
        if found <= len(lines):
            break
    return at[:found], state[:found], varying


def _in_numpy(lines: Words) -> tuple[Int64, npt.NDArray[np.uint8]]:
    at = _candidates(lines)
    state, size = np.empty(len(at), np.uint8), np.empty(len(at), np.int64)

    def read(part: slice) -> None:
        which = (at[part, None] + np.arange(layout.HEADER_LINES)).ravel()
        words = np.take(lines, which, axis=0, mode="clip").reshape(-1, 32)
        log2 = (words[:, _PLACE] >> layout.LOG2_SHIFT & 31).astype(np.int64)
        size[part] = layout.HEADER_LINES + (1 << log2) // layout.RECORDS_PER_LINE
        sane = (log2 >= layout.MIN_LOG2_RECORDS) & (log2 <= layout.MAX_LOG2_RECORDS)
        sound = sane & (layout.header_check(words) == words[:, _CHECK])
        fits = at[part] + size[part] <= len(lines)
        ours = words[:, 0] >> 8 == layout.HEADER_WORD >> 8
        state[part] = np.select([~ours, ~sound, ~fits], [ALIEN, TORN, CUT], WHOLE)

    each(read, chunks(len(at), HEADERS))
    good = _without_overlap(at, size, state == WHOLE)
    outside = good | ~_covered(at, at[good], size[good])
    return at[outside], state[outside]


def _candidates(lines: Words) -> Int64:
    """Lines that begin with the magic number; another line follows each."""
    first = lines[:-1, 0]

    def scan(part: slice) -> Int64:
        return np.asarray(np.flatnonzero(first[part] >> 16 == layout.MAGIC) + part.start)

    return np.concatenate([np.zeros(0, np.int64), *map_ahead(scan, chunks(len(first), 1 << 18))])


def _without_overlap(at: Int64, size: Int64, good: Bools) -> Bools:
    """True for slabs that start outside any earlier slab: a record may look like a header by chance."""
    candidates = np.flatnonzero(good)
    ends = at[candidates] + size[candidates]
    if not (at[candidates][1:] < ends[:-1]).any():
        return good
    kept, free = np.zeros(len(good), bool), 0
    for index, start, end in zip(candidates.tolist(), at[candidates].tolist(), ends.tolist(), strict=True):
        if start >= free:
            kept[index], free = True, end
    return kept


def _covered(at: Int64, starts: Int64, size: Int64) -> Bools:
    """True for lines in one of the slabs, which are sorted and do not overlap."""
    if not len(starts):
        return np.zeros(len(at), bool)
    slab = np.searchsorted(starts, at, side="right") - 1
    return np.asarray((slab >= 0) & (at < starts[slab] + size[slab]))
