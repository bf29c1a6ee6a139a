"""A trace: the columns of a capture in nanoseconds, ready for tables, files and code of the user's.

What lives here: the columns, filters, and the way from a Capture. What does not: reading words
(decoding/), clocks (decoding/axis.py), tables (analysis/), files (export/).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import tracks
from .capture import Capture, Problem
from .decoding.columns import UNKNOWN
from .decoding.ids import Region
from .decoding.nesting import nest
from .decoding.warps import Warps
from .errors import UsageError
from .hashes import hashed, kernel_names, of_kernels
from .layout import Kind
from .wording import counted

if TYPE_CHECKING:
    from .analysis.summary import Summary

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

COLUMNS = (
    "kernel", "launch", "block", "warp", "lane", "sm", "region", "kind", "track",
    "start_ns", "dur_ns", "start_ticks", "dur_cycles", "depth", "value", "user_track",
)  # fmt: skip
"""The columns of a Trace, in the order of its tables."""
_SPANS, _VALUES = (Kind.SPAN, Kind.SPAN_VALUE), (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER)
_TYPES = ("i32", "u32", "f32")


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
class Trace:
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
    _whole: tuple[Trace, Int64] | None = None

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
    def whole(self) -> Trace:
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
        return np.asarray(tracks.codes(self)[self.region])

    def region_names(self) -> npt.NDArray[np.object_]:
        """Names by region index; `trace.region_names()[trace.region]` is the name of every record."""
        return np.array([region.name for region in self.regions], object)

    def filter(
        self,
        *,
        kernel: str | Iterable[str] | None = None,
        region: str | Iterable[str] | None = None,
        track: str | Iterable[str] | None = None,
        launch: int | range | Iterable[int] | None = None,
        block: int | range | Iterable[int] | None = None,
        warp: int | range | Iterable[int] | None = None,
        lane: int | range | Iterable[int] | None = None,
        sm: int | range | Iterable[int] | None = None,
        device: int | range | Iterable[int] | None = None,
        time: tuple[float, float] | None = None,
        where: npt.NDArray[np.bool_] | None = None,
    ) -> Trace:
        """The records that match everything given; `warps`, names and problems stay whole.

        kernel, region, track: names or patterns such as "attn_*"; track: of regions that were given one. launch,
        block, warp, lane, sm, device: numbers, a range, or several. time: (first, last) ns after `origin`, records
        that overlap it. where: a mask (n,). Raises UsageError for a name that matches nothing, or a mask of
        another shape.
        """
        warps = self.warps
        rows = np.ones(len(warps), bool)
        if kernel is not None:
            rows &= _matching("kernel", kernel, self.kernels, kernel_names(self), of_kernels(self))[warps.kernel]
        numbers = {"launch": launch, "block": block, "warp": warp, "lane": lane, "sm": sm}
        for name, wanted in numbers.items():
            if wanted is not None:
                rows &= _members(name, wanted, getattr(warps, name))
        if device is not None:
            rows &= _members("device", device, np.array(self.devices, np.int64)[warps.device])
        chosen = rows[self.track]
        if region is not None:
            chosen &= _matching("region", region, [found.name for found in self.regions])[self.region]
        if track is not None:
            matching = np.append(_matching("track", track, self.user_tracks), False)
            chosen &= matching[self.user_track]
        if time is not None:
            first, last = time
            chosen &= (self.start_ns <= last) & (self.start_ns + np.nan_to_num(self.dur_ns) >= first)
        if where is not None:
            if where.shape != chosen.shape:
                raise UsageError(
                    f"filter(where=...): a mask of shape {where.shape}, expected {chosen.shape}: one per record"
                )
            chosen &= where
        return self.take(np.flatnonzero(chosen))

    def take(self, index: Int64) -> Trace:
        """The records at ascending indices (m,)."""
        whole, at = (self, index) if self._whole is None else (self._whole[0], self._whole[1][index])
        columns = ("region", "track", "start_ticks", "dur_cycles", "bits")
        changed: dict[str, Any] = {name: getattr(self, name)[index] for name in columns}
        return replace(self, **changed, _whole=(whole, at))

    def summary(self, by: str | Iterable[str] = (), *, roles: Mapping[str, Iterable[int]] | None = None) -> Summary:
        """Per kernel and region: count, total, share, self, mean, p50, p90, p99, min, max, imbalance, first and last
        start, idle; prints as a table.

        by: more keys: launch, role, sm, block, warp, lane, device; one, or several. roles: names of the roles of
        by="role" with their warps. Raises UsageError for another key.
        """
        from .analysis.summary import summarise  # read only by those who ask for it

        return summarise(self, by, roles)

    def export(self, path: str | os.PathLike[str], **options: Any) -> int:
        """Write a file in the format of its suffix: .pftrace, .json, .parquet, .arrow, .csv, .hatchet and more
        (docs/outputs.md). Returns how many records were written.

        Options: limit="auto" (2 million slices in timelines, else all; None = all), force=False (more than
        15 million slices), progress=False (a bar on stderr); of timelines group="sm" ("block", "warp"),
        args=True (cycles, exact ns) and flows=[("load", "dot")] (arrows by value). Raises UsageError for an
        unknown suffix, a path that cannot be written, or too many slices; MissingError for a missing package.
        """
        from .export import export  # read only by those who ask for it

        return export(self, path, **options)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with one row per record and the columns of COLUMNS; names as categories.
        Raises MissingError without pandas."""
        from .export.frame import frame  # read only by those who ask for it

        return frame(self)

    def to_arrow(self) -> Any:
        """A pyarrow.Table with one row per record and the columns of COLUMNS; names as dictionaries, what is not
        known as null, problems and launches in the metadata. Raises MissingError without pyarrow."""
        from .export.columnar import table  # read only by those who ask for it

        return table(self)


def decode(capture: Capture) -> Trace:
    """The trace of a capture. Never raises on data: what is wrong with it is in `problems`."""
    from .assemble import assemble

    return assemble(capture)


def _matching(
    what: str, patterns: str | Iterable[str], names: Iterable[str], shown: Iterable[str] = (),
    numbers: Iterable[int] = (),
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Which names the patterns match. shown, numbers: how tables spell each, and its hash, where it has one."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    names, numbers = list(names), list(numbers)
    shown = list(shown) or names
    found = np.zeros(len(names), bool)
    for pattern in patterns:
        pairs = zip(names, shown, strict=True)
        hits = np.array([pattern in pair or fnmatchcase(pair[0], pattern) for pair in pairs], bool)
        if (number := hashed(pattern)) is not None and numbers:
            hits |= np.array([number == one for one in numbers], bool)
        if not hits.any():
            known = ", ".join(sorted({*shown} - {"?"})[:20]) or "none"
            raise UsageError(f"filter({what}={pattern!r}): no such {what}; this trace has {known}")
        found |= hits
    return found


def _members(what: str, wanted: int | range | Iterable[int], column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    values = (
        [wanted] if isinstance(wanted, (int, np.integer)) else list(wanted) if not isinstance(wanted, range) else wanted
    )
    if isinstance(values, list) and not all(isinstance(value, (int, np.integer)) for value in values):
        raise UsageError(f"filter({what}={wanted!r}): expected a number, a range or several numbers")
    if isinstance(values, range):
        start, stop, step = values.start, values.stop, values.step
        return np.asarray((column >= start) & (column < stop) & ((column.astype(np.int64) - start) % step == 0))
    return np.isin(column, values)
