"""Warps that did not finish: they last until their data was read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..capture.capture_data import DeviceCapture
from ..tracedata.clock_curves import Lives
from ..util.arrays import Int64
from .axis import Axis
from .slabs import Slabs

_LONGEST_NS = 1 << 47
"""The longest time that a running warp is shown for: 39 hours; more is damage."""
_FASTEST = 100
"""Ticks per ns that no clock exceeds."""


def until_read(slabs: Slabs, last: Int64, axis: Axis, device: DeviceCapture, origin: int) -> tuple[Axis, Int64]:
    """The last tick of each slab, and the axis with the mean rate up to there.

    Args:
        slabs: of one device.
        last: (s,) the end of each warp, or of its last record.
        axis: of these slabs.
        device: when it was read.
        origin: %globaltimer at 0 ns of the axis.
    """
    since = device.read_ns - origin - axis.start
    running = ~slabs.finished & (since > 0) & (since < _LONGEST_NS) & (device.read_ns > 0) & (axis.rate > 1 / _FASTEST)
    first = slabs.first_tick
    ticks = first + np.divide(since, axis.rate, out=np.zeros_like(since), where=running).astype(np.int64)
    bent = np.flatnonzero(running & (axis.curve >= 0))
    if len(bent):
        curve = axis.curve[bent]
        ticks[bent] = axis.curves.tick_at(curve, since[bent] + axis.curves.ns_at(curve, first[bent]))
    last = np.where(running, np.maximum(last, ticks), last)
    lives = Lives(axis.curves, axis.curve, first, last)
    return replace(axis, rate=np.where(lives.bent & running, lives.pace(), axis.rate)), last
