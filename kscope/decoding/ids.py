"""Maps id words to regions, at memory speed.

    id word = name_hash(name) << 4 | kind

Records with and without a row before them that has half of their value have two ids and two indices: IdTable.twins().
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import numpy as np
import numpy.typing as npt

from ..capture import layout
from ..capture.layout import Kind, name_hash
from ..capture.model import ModuleMeta, Problem, RegionMeta
from ..marks.names import format_name, split, work_of
from ..tracedata.region import MOST_REGIONS, Region

MISSING = np.uint16(0xFFFF)
"""Region index of a record whose id word is 0: the device counted it, but it never arrived."""

ANCHOR, LAST_ANCHOR = np.uint16(0xFFFE), np.uint16(0xFFFD)
"""Region indices of anchors among the records."""
HALF = np.uint16(0xFFFC)
"""Region index of a row with half of the next record's value."""
_ANCHORS = {layout.ANCHOR_ID: ANCHOR, layout.LAST_ANCHOR_ID: LAST_ANCHOR}
_NO_REGIONS = {0: MISSING, **_ANCHORS}

_KINDS = frozenset(int(kind) for kind in Kind)
_HAVE_MORE = frozenset(kind | layout.HAS_MORE for kind in (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER))
_TRIES, _MAX_BITS = 64, 16


class Names:
    """Names by hash, from every module of a capture. problems: names that share a hash."""

    def __init__(self, modules: Iterable[ModuleMeta]) -> None:
        found: dict[int, dict[str, RegionMeta]] = defaultdict(dict)
        for module in modules:
            for region in module.regions:
                known = found[name_hash(region.name)].setdefault(region.name, region)
                if region.ends_at_issue_of is None:
                    found[name_hash(region.name)][region.name] = replace(known, ends_at_issue_of=None)
        self._names = {key: _described(names) for key, names in found.items()}
        self.problems = tuple(
            Problem(
                "collision", f"the names {_several(names, ', ')} share one hash and cannot be distinguished: rename one"
            )
            for names in found.values()
            if len(names) > 1
        )

    def is_half(self, word: int) -> bool:
        """True if an id is of a row with half of the next record's value."""
        return word & 15 == layout.MORE and word >> 4 in self._names

    def has_more(self, word: int) -> bool:
        """True if an id is of a record with half of its value in the row before."""
        return word & 15 in _HAVE_MORE and word >> 4 in self._names

    def region(self, word: int) -> Region:
        """The region of an id word; an unknown one is named after its hash."""
        kind = word & 15 & ~layout.HAS_MORE if self.has_more(word) else word & 15
        known = self._names.get(word >> 4)
        if known is None or kind not in _KINDS:
            return Region(f"?{word >> 4:07x}", Kind(kind) if kind in _KINDS else Kind.INSTANT, known=False)
        return replace(known, kind=Kind(kind))


def _described(names: Mapping[str, RegionMeta]) -> Region:
    """The region of the names with one hash, of any kind of record."""
    first = next(iter(names.values()))
    if len(names) > 1:
        return Region(_several(names), Kind.SPAN, where=first.where)
    name, track = split(first.name)
    return Region(name, Kind.SPAN, True, first.where, track, first.ends_at_issue_of, work_of(first.name))


def _several(names: Iterable[str], between: str = " | ") -> str:
    """Names that share a hash, joined."""
    return between.join(format_name(name) if split(name)[1] else name for name in sorted(names))


class IdTable:
    """The ids in a recording, each with a region index in order of appearance; index 0 is the overflow.

    The lookup is a multiplicative hash without collisions, found by trial; ids outside it take a slower path and join
    it.
    """

    def __init__(self, names: Names, sample: npt.NDArray[np.uint32]) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._index: dict[int, int] = {}
        self._regions: list[Region] = [Region("?", Kind.INSTANT, known=False)]
        found = [word for word in np.unique(sample).tolist() if word not in _NO_REGIONS]
        halves = [word for word in found if names.is_half(word)]
        found += [word & ~layout.HAS_MORE for word in found if names.has_more(word)]
        ordered = sorted({*found} - {*halves}, key=self._key)[: MOST_REGIONS - 1]
        for word in ordered:
            self._add(word)
        words = np.array([*ordered, *halves], np.uint32)
        self._sampled = len(self._regions)
        self._multiplier, self._shift = np.uint32(0), np.uint32(31)
        self._slot_id, self._slot_region = np.zeros(2, np.uint32), np.full(2, MISSING, np.uint16)
        self._build(words)

    def _key(self, word: int) -> tuple[bool, str, int]:
        region = self._names.region(word)
        return (not region.known, region.token, word)

    def _add(self, word: int) -> int:
        if len(self._regions) >= MOST_REGIONS:
            return 0
        self._index[word] = len(self._regions)
        self._regions.append(self._names.region(word))
        return self._index[word]

    def _build(self, words: npt.NDArray[np.uint32]) -> None:
        """Find a multiplier without collisions; without one, all ids take the slow path."""
        regions = [*map(self._region, words.tolist()), *_ANCHORS.values()]
        words = np.append(words, np.array(list(_ANCHORS), np.uint32))
        rng = Random(1)  # Python's: numpy's takes 5 ms to import
        for bits in range(max(4, len(words).bit_length()), _MAX_BITS + 1):
            shift = np.uint32(32 - bits)
            for multiplier in (np.uint32(rng.getrandbits(32) | 1) for _ in range(_TRIES)):
                slots = (words * multiplier) >> shift
                if len(np.unique(slots)) == len(words):
                    self._multiplier, self._shift = multiplier, shift
                    # unused slots hold id 0, which hashes only to slot 0: there MISSING is right
                    self._slot_id = np.zeros(1 << bits, np.uint32)
                    self._slot_region = np.full(1 << bits, MISSING, np.uint16)
                    self._slot_id[slots] = words
                    self._slot_region[slots] = np.array(regions, np.uint16)
                    return

    def lookup(self, words: npt.NDArray[np.uint32], out: npt.NDArray[np.uint16]) -> None:
        """Write the region indices of id words (n,) to `out` (n,), contiguous; MISSING for a word 0."""
        slots = np.right_shift(np.multiply(words, self._multiplier), self._shift).astype(np.intp)
        self._slot_region.take(slots, out=out, mode="clip")
        hit = self._slot_id.take(slots, mode="clip") == words
        if not hit.all():
            at = np.flatnonzero(~hit)
            out[at] = self._resolve(words[at])

    def slots(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], int, int]:
        """The ids and regions of the hash table of sampled ids: a word's slot is (word * multiplier) >> shift."""
        return self._slot_id, self._slot_region, int(self._multiplier), int(self._shift)

    def _resolve(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
        distinct, inverse = np.unique(words, return_inverse=True)
        with self._lock:
            known = [self._region(word) for word in distinct.tolist()]
        return np.asarray(np.array(known, np.uint16)[inverse])

    def _region(self, word: int) -> int:
        if word in _NO_REGIONS:
            return int(_NO_REGIONS[word])
        if self._names.is_half(word):
            return int(HALF)
        if self._names.has_more(word) and not self._region(word & ~layout.HAS_MORE):
            return 0
        return self._index[word] if word in self._index else self._add(word)

    def twins(self) -> npt.NDArray[np.uint16] | None:
        """(65536,) for the index of each region of records with halves the index of its records without; 0 for all
        other indices. None if there are none.
        """
        found = {word: at for word, at in self._index.items() if self._names.has_more(word)}
        if not found:
            return None
        twins = np.zeros(1 << 16, np.uint16)
        twins[list(found.values())] = [self._index[word & ~layout.HAS_MORE] for word in found]
        return twins

    def sorted_regions(self) -> tuple[tuple[Region, ...], npt.NDArray[np.uint16] | None]:
        """(regions, renumbering). The renumbering has 65536 entries, or is None if nothing changes; it makes indices
        independent of the order in which threads met ids outside the sample.
        """
        words = sorted((word for word in self._index if not self._names.has_more(word)), key=self._key)
        regions = (self._regions[0], *(self._regions[self._index[word]] for word in words))
        if len(self._regions) == self._sampled == len(regions):
            return regions, None
        renumber = np.arange(1 << 16, dtype=np.uint16)
        renumber[[self._index[word] for word in words]] = np.arange(1, len(words) + 1, dtype=np.uint16)
        return regions, renumber
