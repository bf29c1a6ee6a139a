"""The columns of a trace: records, warps, regions, kernels and launches as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..capture.model import Problem
from ..util.text import counted
from .nesting import nest
from .region import Region
from .warps import Warps

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

COLUMNS = (
    "kernel", "launch", "block", "warp", "lane", "sm", "region", "kind", "track",
    "start_ns", "dur_ns", "start_ticks", "dur_cycles", "depth", "value", "user_track",
)  # fmt: skip
"""The columns of a Trace, in the order of its tables."""
_SPANS, _VALUES = (Kind.SPAN, Kind.SPAN_VALUE), (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER)
UNKNOWN = -1
"""The duration, in ticks, of a span whose length 32-bit clocks cannot tell."""
NO_TRACK = -1
"""The user track of a region without one."""
T = TypeVar("T", bound="TraceData")


@dataclass(frozen=True)
class Launch:
    """One launch: `replay` counts the runs of one %gridid, as a captured graph's. kernel_id: 64-bit FNV-1a of the
    module's text and the kernel's name: variants of one name differ in it."""

    kernel: str
    device: int
    grid_id: int
    replay: int
    grid: tuple[int, int, int]
    kernel_id: int = 0

    @property
    def hash(self) -> str:
        """kernel_id as other tools write kernel hashes: ``0x7fa21c3``."""
        return f"0x{self.kernel_id:x}"


@dataclass(frozen=True, eq=False)
class TraceData:
    """Records as numpy columns of shape (n,), lane after lane, within a lane in order of end.

    region: uint16, index into `regions` (names and kinds). track: int32, row of `warps`, one recording
    lane of one launch. start_ticks, dur_cycles: int64 on the recorded clock, SM cycles unless the
    kernel was compiled with clock="globaltimer" (then ns); dur_cycles is -1 where 32-bit clocks cannot
    tell, and 0 for instants and counters. bits: uint32, the fourth word of the record.
    `kernels` are names, `launches` in order of start, `devices` ordinals. Times in ns begin at `origin`, UNIX ns
    (%globaltimer where the host's clock was not compared). problems: what a reader must know.
    """

    region: npt.NDArray[np.uint16]
    track: npt.NDArray[np.int32]
    start_ticks: Int64
    dur_cycles: Int64
    bits: npt.NDArray[np.uint32]
    warps: Warps
    regions: tuple[Region, ...]
    types: npt.NDArray[np.uint8]
    kernels: tuple[str, ...]
    launches: tuple[Launch, ...]
    devices: tuple[int, ...]
    origin: int
    tick_ns: int
    problems: tuple[Problem, ...] = ()
    _whole: tuple[Any, Int64] | None = None

    def __len__(self) -> int:
        return len(self.region)

    def __repr__(self) -> str:
        counts = (
            (len(self), "record"),
            (len(self.warps), "warp"),
            (len(self.launches), "launch"),
            (len(self.problems), "problem"),
        )
        return f"<kscope.Trace: {', '.join(counted(*count) for count in counts)}>"

    @property
    def filtered(self) -> bool:
        """Whether records of the recording were left out by filter() or take()."""
        return self._whole is not None

    @property
    def whole(self: T) -> T:
        """The trace before filter() and take(); itself where nothing was left out."""
        return self if self._whole is None else self._whole[0]

    @property
    def kernel(self) -> Int64:
        """Index into `kernels`."""
        return np.asarray(self.warps.kernel[self.track])

    @property
    def launch(self) -> Int64:
        """Index into `launches`."""
        return np.asarray(self.warps.launch[self.track])

    @property
    def block(self) -> Int64:
        """Linear block index x + nx * (y + ny * z)."""
        return np.asarray(self.warps.block[self.track])

    @property
    def warp(self) -> npt.NDArray[np.uint8]:
        """Warp of the block: linear thread index / 32."""
        return np.asarray(self.warps.warp[self.track])

    @property
    def lane(self) -> npt.NDArray[np.uint8]:
        """Lane of the warp."""
        return np.asarray(self.warps.lane[self.track])

    @property
    def sm(self) -> npt.NDArray[np.uint16]:
        """Streaming multiprocessor."""
        return np.asarray(self.warps.sm[self.track])

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        """layout.Kind of each record."""
        return np.array([region.kind for region in self.regions], np.uint8)[self.region]

    @property
    def is_span(self) -> npt.NDArray[np.bool_]:
        """Spans with a known duration; the others are points in time."""
        spans = np.array([region.kind in _SPANS for region in self.regions])
        return np.asarray(spans[self.region] & (self.dur_cycles >= 0))

    @cached_property
    def start_ns(self) -> Float:
        """Nanoseconds after `origin`; float64, as fine as the clock."""
        warps = self.warps
        ns = (self.start_ticks - warps.first_tick[self.track]).astype(np.float64)
        ns *= warps.tick_ns[self.track]
        ns += warps.start_ns[self.track]
        return ns

    @cached_property
    def dur_ns(self) -> Float:
        """Nanoseconds; NaN where the duration is unknown."""
        ns = self.dur_cycles * self.warps.tick_ns[self.track]
        ns[self.dur_cycles == UNKNOWN] = np.nan
        return ns

    @cached_property
    def depth(self) -> npt.NDArray[np.uint8]:
        """How many spans of the same lane hold this record; of the whole trace, in a filtered one too."""
        if self._whole is not None:
            whole, index = self._whole
            return np.asarray(whole.depth[index])
        end = self.start_ticks + np.maximum(self.dur_cycles, 0)
        return nest(self.start_ticks, end, self.track)[0]

    @cached_property
    def value(self) -> Float:
        """The user's number, as float64 (exact for all 32-bit types); NaN for records without one."""
        has = np.array([region.kind in _VALUES for region in self.regions])[self.region]
        types = self.types[self.warps.kernel[self.track], self.region] if len(self) else np.zeros(0, np.uint8)
        value = np.full(len(self), np.nan)
        for code, view in ((0, np.int32), (1, np.uint32), (2, np.float32)):
            chosen = has & (types == code)
            with np.errstate(invalid="ignore"):  # a signalling NaN of the user's becomes a quiet one
                value[chosen] = self.bits[chosen].view(view)
        return value

    @cached_property
    def user_tracks(self) -> tuple[str, ...]:
        """Names of the tracks that regions were put on with track=, in order of first use."""
        named = [number for number, region in enumerate(self.regions) if region.track is not None]
        if not named:
            return ()
        at = np.flatnonzero(np.isin(self.region, named))
        first = np.full(len(self.regions), np.inf)
        np.minimum.at(first, self.region[at], self.start_ns[at])
        order = sorted(named, key=lambda number: float(first[number]))
        return tuple(dict.fromkeys(str(self.regions[number].track) for number in order))

    @property
    def user_track(self) -> npt.NDArray[np.int16]:
        """Index into `user_tracks`; -1 for what is on its lane's own track."""
        return np.asarray(self.region_tracks()[self.region])

    def region_tracks(self) -> npt.NDArray[np.int16]:
        """(regions,) index into `user_tracks` by region index, NO_TRACK without one."""
        index = {name: number for number, name in enumerate(self.user_tracks)}
        return np.array([NO_TRACK if one.track is None else index[one.track] for one in self.regions], np.int16)

    def region_names(self) -> npt.NDArray[np.object_]:
        """Names by region index; `trace.region_names()[trace.region]` is the name of every record."""
        return np.array([region.name for region in self.regions], object)

    def take(self: T, index: Int64) -> T:
        """The records at ascending indices (m,)."""
        whole, at = (self, index) if self._whole is None else (self._whole[0], self._whole[1][index])
        columns = ("region", "track", "start_ticks", "dur_cycles", "bits")
        changed: dict[str, Any] = {name: getattr(self, name)[index] for name in columns}
        return replace(self, **changed, _whole=(whole, at))
