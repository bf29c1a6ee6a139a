"""The columns of a trace: records, warps, regions, kernels and launches as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..capture.layout import Kind
from ..capture.model import Problem
from ..capture.samples import Samples
from ..marks.wide_values import Bits, floats
from ..util.arrays import Float, Int64
from ..util.runs import least_of
from ..util.text import counted
from .calls import Call
from .clock_curves import Curves, Lives
from .nesting import nest
from .recording_facts import Recorded
from .region import Region
from .values import NONE, Integers
from .warps import Warps

COLUMNS = (
    "kernel", "launch", "block", "block_x", "block_y", "block_z", "warp", "lane", "sm", "region", "kind", "track",
    "start_ns", "dur_ns", "start_ticks", "dur_cycles", "depth", "value", "warp_row", "source",
)  # fmt: skip
"""The columns of tables, in their order. `track` is the user's (Trace.user_track), `warp_row` is Trace.track."""
KIND_NAMES = ("none", *(kind.name.lower() for kind in Kind))
"""The names of the column `kind`, by number."""
_SPANS, _VALUES = (Kind.SPAN, Kind.SPAN_VALUE), (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER)
UNKNOWN = -1
"""The duration, in ticks, of a span that is too long for 32-bit clocks."""
NO_TRACK = -1
"""The user track of a region without one."""
T = TypeVar("T", bound="TraceData")


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        kernel: the kernel's name.
        device: the device's ordinal.
        grid_id: %gridid.
        replay: counts the runs of one %gridid, as in a captured CUDA graph.
        grid: blocks along x, y, z.
        kernel_id: 64-bit FNV-1a of the module's text and the kernel's name; variants of one name differ in it.
        missing: least number of its warps (with AllThreads, lanes) that did not record; 0 unless the pool was full
            or a fault broke the context.
    """

    kernel: str
    device: int
    grid_id: int
    replay: int
    grid: tuple[int, int, int]
    kernel_id: int = 0
    missing: int = 0

    @property
    def hash(self) -> str:
        """kernel_id as other tools write kernel hashes: ``0x7fa21c3``."""
        return f"0x{self.kernel_id:x}"


@dataclass(frozen=True)
class LostLaunches:
    """Launches of a kernel that left no record: the pool was full, or a fault broke the context.

    Attributes:
        kernel: the kernel's name.
        kernel_id: as in Launch.
        count: their least number.
        launched: launches that the host saw, including replays of torch's graphs; for kernels whose launches it
            does not see, their least number.
    """

    kernel: str
    kernel_id: int
    count: int
    launched: int


@dataclass(frozen=True, eq=False)
class TraceData:
    """A decoded recording: records as numpy columns of shape (n,), warp after warp, within a warp in order of end.

    Attributes:
        region: uint16, index into `regions`.
        track: int32, row of `warps`.
        start_ticks: int64, start on the recorded clock: SM cycles (the low 32 bits are %clock64's, the high ones count
            from the SM's first warp), or ns with clock="globaltimer".
        dur_cycles: int64, duration in ticks; -1 if it is too long for 32-bit clocks, 0 for instants and counters.
        bits: the value of the record as it was stored: uint32, or if some values have 64 bits, uint64.
        warps: the recording warps (with AllThreads, lanes), see Warps.
        regions: names and kinds of the records' regions.
        types: (kernels, regions) uint8, type of a region's values: 0 int32, 1 uint32, 2 float32; + 3 of 64 bits.
        kernels: names.
        launches: in order of start.
        devices: ordinals.
        origin: start of the axis, UNIX ns (%globaltimer if it was not compared with the host's clock).
        tick_ns: the timer's step in ns.
        problems: problems for readers.
        lost_launches: launches that left no record, because the pool was full or after a fault, by kernel.
        tuning_launches: launches by which autotuners timed configurations; they are not in the trace.
        recorded: GPU, versions, command and options; info() has them in words.
        role_names: names of the roles that kernels name with kscope.role(), and of the compiler's partitions of warps;
            Warps.role indexes them.
        samples: stall samples, for a session with stalls=True; None without.
        calls: the call of each launch, if the trace was merged with one of torch.profiler; else empty.
        curves: the clocks of SMs that changed their rate within a launch; Warps.curve indexes them.
    """

    region: npt.NDArray[np.uint16]
    track: npt.NDArray[np.int32]
    start_ticks: Int64
    dur_cycles: Int64
    bits: Bits
    warps: Warps
    regions: tuple[Region, ...]
    types: npt.NDArray[np.uint8]
    kernels: tuple[str, ...]
    launches: tuple[Launch, ...]
    devices: tuple[int, ...]
    origin: int
    tick_ns: int
    problems: tuple[Problem, ...] = ()
    lost_launches: tuple[LostLaunches, ...] = ()
    tuning_launches: int = 0
    recorded: Recorded = field(default_factory=Recorded)
    role_names: tuple[str, ...] = ()
    samples: Samples | None = None
    calls: tuple[Call, ...] = ()
    curves: Curves = field(default_factory=Curves.none)
    _whole: tuple[Any, Int64] | None = None

    def __len__(self) -> int:
        return len(self.region)

    def __repr__(self) -> str:
        shown, nouns = self.shown_warps, ("record", self.warps.noun, "launch", "problem")
        counts = len(self), len(shown), len(np.unique(self.warps.launch[shown])), len(self.problems)
        return f"<kscope.Trace: {', '.join(map(counted, counts, nouns))}>"

    @property
    def filtered(self) -> bool:
        """True if filter() or take() removed records."""
        return self._whole is not None

    @property
    def whole(self: T) -> T:
        """The trace before filter() and take(); itself if nothing was removed."""
        return self if self._whole is None else self._whole[0]

    @property
    def kept(self) -> Int64:
        """(n,) int64, index into the records of `whole`."""
        return np.arange(len(self)) if self._whole is None else self._whole[1]

    @property
    def shown_warps(self) -> Int64:
        """Rows of `warps`; in a filtered trace those with records."""
        if not self.filtered:
            return np.arange(len(self.warps))
        return np.flatnonzero(np.bincount(self.track, minlength=len(self.warps)))

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
        """(n,) int64, linear block index x + nx * (y + ny * z)."""
        return np.asarray(self.warps.block[self.track])

    @property
    def warp(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8, warp of the block: linear thread index / 32."""
        return np.asarray(self.warps.warp[self.track])

    @property
    def lane(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8, lane of the warp."""
        return np.asarray(self.warps.lane[self.track])

    @property
    def sm(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16, streaming multiprocessor."""
        return np.asarray(self.warps.sm[self.track])

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8: 1 span, 2 span with value, 3 instant, 4 instant with value, 5 counter."""
        return np.array([region.kind for region in self.regions], np.uint8)[self.region]

    @property
    def is_span(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: spans with a known duration."""
        spans = np.array([region.kind in _SPANS for region in self.regions])
        return np.asarray(spans[self.region] & (self.dur_cycles >= 0))

    @property
    def flights(self) -> npt.NDArray[np.bool_]:
        """(n,) bool: spans from begin() to end(), during which the warp does other work."""
        return np.array([region.flight for region in self.regions], bool)[self.region]

    @cached_property
    def lives(self) -> Lives:
        """Maps ticks of warps to even ones, and back."""
        return Lives(self.curves, self.warps.curve, self.warps.first_tick, self.warps.last_tick)

    @cached_property
    def even(self: T) -> T:
        """The trace with ticks of equal length: ns = warps.start_ns + (tick - warps.first_tick) * warps.tick_ns.

        Where an SM's clock changed its rate these are not cycles, and durations in ns come from them alone.
        """
        if not (self.warps.curve >= 0).any():
            return self
        warps = replace(self.warps, curve=np.full(len(self.warps), -1, np.int32))
        if self._whole is not None:
            whole, index = self._whole
            start, took = whole.even.start_ticks[index], whole.even.dur_cycles[index]
            return replace(self, start_ticks=start, dur_cycles=took, warps=warps, _whole=(whole.even, index))
        start = self.lives.even(self.track, self.start_ticks)
        end = self.lives.even(self.track, self.start_ticks + np.maximum(self.dur_cycles, 0))
        took = np.where(self.dur_cycles < 0, UNKNOWN, end - start)
        return replace(self, start_ticks=start, dur_cycles=took, warps=warps)

    def ns_of(self, row: npt.NDArray[np.integer], tick: Int64) -> Float:
        """Times at which warps' clocks had values.

        Args:
            row: (m,) rows of `warps`.
            tick: (m,) values of their clocks, as start_ticks.

        Returns:
            (m,) float64, ns after `origin`.
        """
        warps = self.warps
        even = self.lives.even(row, tick) if len(self.curves) else tick
        return np.asarray((even - warps.first_tick[row]) * warps.tick_ns[row] + warps.start_ns[row])

    def ticks_of(self, row: npt.NDArray[np.integer], ns: Float) -> Int64:
        """Inverse of ns_of(): (m,) int64, the clocks of rows `row` (m,) of `warps` at `ns` (m,), ns after `origin`."""
        warps = self.warps
        after = (ns - warps.start_ns[row]) / warps.tick_ns[row]
        even = warps.first_tick[row] + np.rint(after).astype(np.int64)
        return self.lives.uneven(row, even) if len(self.curves) else even

    @cached_property
    def start_ns(self) -> Float:
        """(n,) float64, ns after `origin`."""
        if self.even is not self:
            return self.even.start_ns
        warps = self.warps
        ns = (self.start_ticks - warps.first_tick[self.track]).astype(np.float64)
        ns *= warps.tick_ns[self.track]
        ns += warps.start_ns[self.track]
        return ns

    @cached_property
    def dur_ns(self) -> Float:
        """(n,) float64, ns; NaN if the duration is unknown."""
        if self.even is not self:
            return self.even.dur_ns
        ns = self.dur_cycles * self.warps.tick_ns[self.track]
        ns[self.dur_cycles == UNKNOWN] = np.nan
        return ns

    @cached_property
    def depth(self) -> npt.NDArray[np.uint8]:
        """(n,) uint8: number of spans of the same warp, except flights, that contain the record in the unfiltered
        trace.
        """
        if self._whole is not None:
            whole, index = self._whole
            return np.asarray(whole.depth[index])
        end = self.start_ticks + np.maximum(self.dur_cycles, 0)
        if not self.flights.any():
            return nest(self.start_ticks, end, self.track)[0]
        depth, own = np.zeros(len(self), np.uint8), np.flatnonzero(~self.flights)
        depth[own] = nest(self.start_ticks[own], end[own], self.track[own])[0]
        return depth

    @cached_property
    def value(self) -> Float:
        """(n,) float64: the record's value; NaN for records without one. Integers of more than 53 bits are rounded."""
        return floats(self.bits, self._value_codes)

    @cached_property
    def integers(self) -> Integers | None:
        """Exact integer values; None if none has 64 bits: then `value` is exact."""
        return Integers.of(self.bits, self._value_codes)

    @property
    def _value_codes(self) -> npt.NDArray[np.uint8]:
        if not len(self):
            return np.zeros(0, np.uint8)
        has = np.array([region.kind in _VALUES for region in self.regions])[self.region]
        return np.where(has, self.types[self.kernel, self.region], np.uint8(NONE))

    @cached_property
    def user_tracks(self) -> tuple[str, ...]:
        """Names of the tracks of regions with track=, in order of first use."""
        named = [number for number, region in enumerate(self.regions) if region.track is not None]
        if not named:
            return ()
        at = np.flatnonzero(np.isin(self.region, named))
        first = least_of(self.region[at], self.start_ns[at], len(self.regions), np.inf)
        order = sorted(named, key=lambda number: float(first[number]))
        return tuple(dict.fromkeys(str(self.regions[number].track) for number in order))

    @property
    def user_track(self) -> npt.NDArray[np.int16]:
        """(n,) int16, index into `user_tracks`; -1 for regions without a track."""
        return np.asarray(self.region_tracks()[self.region])

    @property
    def source(self) -> npt.NDArray[np.uint16]:
        """(n,) uint16, index into `regions`: ``regions[i].where`` is the source line of the region's first mark."""
        return self.region

    def region_tracks(self) -> npt.NDArray[np.int16]:
        """(regions,) int16: index into `user_tracks` by region index, -1 without a track."""
        index = {name: number for number, name in enumerate(self.user_tracks)}
        return np.array([NO_TRACK if one.track is None else index[one.track] for one in self.regions], np.int16)

    def region_names(self) -> npt.NDArray[np.object_]:
        """(regions,) object: `trace.region_names()[trace.region]` is the name of every record."""
        return np.array([region.name for region in self.regions], object)

    def take(self: T, index: Int64) -> T:
        """The trace with the records at `index`, (m,) ascending."""
        whole, at = (self, index) if self._whole is None else (self._whole[0], self._whole[1][index])
        columns = ("region", "track", "start_ticks", "dur_cycles", "bits")
        changed: dict[str, Any] = {name: getattr(self, name)[index] for name in columns}
        return replace(self, **changed, _whole=(whole, at))
