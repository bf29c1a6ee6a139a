"""Measurements of `kscope doctor` and `kscope trust` on the first GPU."""

from __future__ import annotations

from collections.abc import Iterator

from kscope.instrument.backend import Backend
from kscope.instrument.peaks import Peaks
from kscope.instrument.peer_side import PeerSide

from . import peaks, probe
from .driver import CudaDriver
from .peer_pings import PeerPings


class MeasuredBackend(Backend):
    """A backend of a GPU that can be measured."""

    def describe(self) -> Iterator[tuple[str, str]]:
        """(subject, sentence) about every GPU, then the first one's timer and what a region costs on it."""
        yield from probe.describe(self)

    def region_cost(self) -> tuple[float, float]:
        """Measure the cost of a region on the first GPU: (cycles it adds to its warp, those between its readings)."""
        return probe.region_cost(self)

    def peaks(self) -> Peaks:
        """Measure the peak rates of the first GPU, which takes about a second."""
        driver = CudaDriver()
        driver.use(0)
        return peaks.peaks(driver)

    def peer_side(self, ordinal: int) -> PeerSide:
        """A GPU's side of comparisons with other processes' GPUs."""
        return PeerPings(ordinal % max(1, CudaDriver().devices()))
