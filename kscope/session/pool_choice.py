"""Chooses where the records of a session with survive="auto" go, by the expected number per second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..capture.capture_data import DeviceCapture
from ..capture.pools.pool_file import PoolDevice
from ..decoding import slabs
from ..instrument.subset import Subset
from ..marks.strategies import AllThreads, Strategy

SPARSE = 280e6
"""Records per second up to which a file costs about as much as device memory (docs/design/performance.md)."""
DENSEST = 25e6
"""Records per second of one SM with one recording lane per warp: a matmul on an H200."""
_WINDOW_NS = 20_000
_MOST_SLABS = 1 << 19


@dataclass(frozen=True)
class Choice:
    """The place of a pool's records, and the reason in words."""

    how: Literal["shm", "keeper"]
    why: str


class Rates:
    """The highest rate of records per SM in this process's sessions with survive=, by device and recorded warps."""

    def __init__(self) -> None:
        self._of_sm: dict[tuple[str, int, tuple[int, ...] | None], float] = {}

    def learn(self, devices: Iterable[DeviceCapture], epoch: int, subset: Subset) -> None:
        """Learn from a session's recording."""
        for device in devices:
            sms, is_few = _recording(subset, device.sms)
            if not sms or is_few:
                continue
            key = device.name, device.ordinal, subset.warp
            self._of_sm[key] = max(self._of_sm.get(key, 0.0), densest(device, epoch) / sms)

    def of_sm(self, device: PoolDevice, subset: Subset) -> float | None:
        """Records per second of one SM; None if no session has recorded."""
        return self._of_sm.get((device.name, device.ordinal, subset.warp)) or None


RATES = Rates()


def choice(device: PoolDevice, subset: Subset, strategy: Strategy, rates: Rates = RATES) -> Choice:
    """Choose where survive="auto" records.

    A keeper's pool takes records at any rate. A file takes about 400 million a second, but needs no second process. The
    expected rate is that of one SM, times the SMs that record. One SM's rate is that of the densest earlier session of
    this process, else that of the densest kernel measured so far.

    Args:
        device: the device.
        subset: which blocks, warps and SMs record.
        strategy: which lanes record.
        rates: of earlier sessions.
    """
    if not device.can_keep:
        return Choice("shm", "no second process can keep this device's memory")
    measured = rates.of_sm(device, subset)
    sms, _ = _recording(subset, device.sms)
    if measured is None and isinstance(strategy, AllThreads):
        return Choice("keeper", "all threads record, at an unknown rate")
    expected = sms * (DENSEST if measured is None else measured)
    if measured is not None:
        by = "as dense as an earlier session's"
    elif sms < device.sms:
        by = f"at most, from the {sms:.3g} of {device.sms} SMs that are sampled"
    else:
        return Choice("keeper", "all blocks record, at an unknown rate")
    text = f"{expected / 1e6:,.0f} M records/s expected ({by}), and a file takes {SPARSE / 1e6:,.0f} M without delay"
    return Choice("shm" if expected <= SPARSE else "keeper", text)


def densest(device: DeviceCapture, epoch: int) -> float:
    """Records per second in the densest 20 us of a recording; a warp's records are spread evenly over its lifetime."""
    found = slabs.find(device.lines, epoch)[0]
    found = found.take(np.flatnonzero(found.finished)[-_MOST_SLABS:])
    if not len(found):
        return 0.0
    begin = found.header["start_time"].astype(np.float64)
    first = begin.min()
    begin -= first
    end = np.maximum(found.header["end_time"].astype(np.float64) - first, begin + 1)
    slope = found.header["count"] / (end - begin)
    at = np.concatenate([begin, end])
    order = np.argsort(at, kind="stable")
    at = at[order]
    rate = np.cumsum(np.concatenate([slope, -slope])[order])
    written = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at))])
    return float((np.interp(at + _WINDOW_NS, at, written) - written).max()) / _WINDOW_NS * 1e9


def _recording(subset: Subset, sms: int) -> tuple[float, bool]:
    """The most SMs that record at a time, given the blocks that record; and True if these blocks do not fill them."""
    of_sms = float(sms if subset.sm is None else sum(sm < sms for sm in subset.sm))
    if subset.block is None:
        return of_sms, False
    block = subset.block
    count = -(-(block.stop - block.start) // block.step)  # len() takes no range of all numbers
    return min(of_sms / block.step, count), count < of_sms / block.step
