"""Anchors among the records of long warps: their slabs and clocks, and all anchors of a device in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..capture.wire import TIME_SHIFT
from ..util.arrays import Int64
from .anchors import Anchors, Rows
from .slabs import Slabs

_TURN = 1 << 32
_USUAL_KHZ = 1_500_000


@dataclass(frozen=True)
class InnerAnchors:
    """Anchors among the records of one device's slabs; every array has shape (n,).

    Attributes:
        slab: index of the slab.
        clock: int64, %clock64 before the timer's reading.
        width: int64, cycles until %clock64 was read again; negative if unknown.
        low: uint32, the low word of %globaltimer.
    """

    slab: Int64
    clock: Int64
    width: Int64
    low: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.slab)

    @staticmethod
    def none() -> InnerAnchors:
        """No anchors."""
        nothing = np.zeros(0, np.int64)
        return InnerAnchors(nothing, nothing, nothing, np.zeros(0, np.uint32))

    def take(self, which: npt.NDArray[np.bool_]) -> InnerAnchors:
        """The anchors of a mask."""
        return InnerAnchors(self.slab[which], self.clock[which], self.width[which], self.low[which])


def times(inner: InnerAnchors, slabs: Slabs, max_clock_khz: int) -> Int64:
    """%globaltimer of the anchors, (n,) ns: the time with their low word that is nearest to the prediction of the
    warp's own anchors, or for an unfinished warp, of the highest clock.
    """
    begun, began, ended, end = (
        slabs.header[name].view(np.int64)[inner.slab] for name in ("start_clock", "start_time", "end_time", "end_clock")
    )
    pace = np.where(
        slabs.finished[inner.slab], (ended - began) / np.maximum(end - begun, 1), 1e6 / (max_clock_khz or _USUAL_KHZ)
    )
    expected = began + ((inner.clock - begun) * pace).astype(np.int64)
    off = (inner.low.astype(np.int64) - expected) % _TURN
    time = expected + np.where(off < _TURN // 2, off, off - _TURN)
    return time >> TIME_SHIFT << TIME_SHIFT  # as those of heads


def with_inner_anchors(
    inner: InnerAnchors, anchors: Anchors, slabs: Slabs, sm: Int64, reference: Int64, origin: int, max_clock_khz: int
) -> tuple[Anchors, Rows]:
    """The anchors of a device together with those among its records, and a row for each SM. Damaged ones are left out.

    Args:
        inner: anchors among the records.
        anchors: those of the slabs' headers.
        slabs: of the device.
        sm: (s,) number of each slab's SM.
        reference: (sms,) clock at x = 0.
        origin: %globaltimer at y = 0.
        max_clock_khz: the device's highest clock, 0 if unknown.
    """
    time = times(inner, slabs, max_clock_khz)
    header = slabs.header
    first, last = (header[f"{name}_clock"].view(np.int64)[inner.slab] for name in ("start", "end"))
    began, ended = (header[f"{name}_time"].view(np.int64)[inner.slab] for name in ("start", "end"))
    done = slabs.finished[inner.slab]
    good = (inner.width >= 0) & (inner.clock > first) & (time >= began)
    good &= ~done | ((inner.clock < last) & (time <= ended))
    inner, time = inner.take(good), time[good]
    x = np.append(anchors.x, (inner.clock - reference[sm[inner.slab]]).astype(np.float64))
    width = np.append(anchors.width, inner.width.astype(np.float64) + 1)  # the second reading may be a cycle older
    y = np.append(anchors.y, (time - origin).astype(np.float64))
    slab = np.append(anchors.slab, inner.slab)
    found = Anchors(x, width, y, slab).at(np.lexsort((x, sm[slab])))
    return found, Rows.of(sm[found.slab])
