"""A capture merged with torch.profiler's trace of the same run: pairs, the shared axis, the calls, and files of
both.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ..capture.model import Problem
from ..errors import UsageError
from ..export import DEFAULT_LIMIT, GZIP, check, chrome
from ..export import timeline as drawing
from ..export.launch_rows import LaunchRow, launch_rows
from ..export.perfetto import pftrace
from ..export.perfetto.tracks import Beside
from ..export.threads import Beside as Below
from ..export.threads import Thread, threads_of
from ..export.timeline import Timeline
from ..trace import Trace
from ..tracedata.calls import Call
from ..util.atomic_files import replacing
from ..util.gz import GzipWriter
from ..util.progress import Step, no_progress
from ..util.text import counted
from . import perfetto
from .axis import Bound, bounds, clocks, move_to_axis, readings, shift_of
from .calls import call_events, calls
from .kineto import Event, Kernels, Kineto, kernels
from .launch_times import launch_times
from .pairing import NONE, Pairs, pair

FORMATS = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
_ARROW = "kscope launch"
Out = Any
"""A binary file, or a compressor that writes to one."""


@dataclass(frozen=True, eq=False)
class Merged:
    """A capture and a torch trace on one axis.

    Attributes:
        trace: the capture's trace on the torch trace's axis, with `calls`.
        kineto: the file.
        kernels: its kernels.
        pairs: the kernel of each launch.
        bounds: bounds of each device's clock.
    """

    trace: Trace
    kineto: Kineto
    kernels: Kernels
    pairs: Pairs
    bounds: tuple[Bound, ...]

    @property
    def paired(self) -> int:
        """Number of launches with a kernel."""
        return int((self.pairs.kernel != NONE).sum())

    def write(self, path: str | os.PathLike[str], limit: int | None = DEFAULT_LIMIT, step: Step = no_progress) -> int:
        """Write both into one file, atomically.

        Args:
            path: .pftrace, .json, or either with .gz.
            limit: most records, the first by time; None for all.
            step: reports progress in records.

        Returns:
            The number of records written.

        Raises:
            UsageError: another suffix, or a path that cannot be written.
        """
        path = Path(path)
        check_output(path)
        shown = drawing.timeline(self.trace, limit)
        with replacing(path) as raw, GzipWriter(raw) if path.name.endswith(GZIP) else nullcontext(raw) as file:
            if path.name.removesuffix(GZIP).endswith(".json"):
                self._json(shown, file, step)
            else:
                self._perfetto(shown, file, step)
        return len(shown.trace)

    def _json(self, shown: Timeline, file: Out, step: Step) -> None:
        """The file's bytes, with kscope's events before the bracket that ends its own."""
        kineto, shift = self.kineto, shown.origin - self.kineto.base
        shown = replace(shown, begin=shown.begin + shift, end=shown.end + shift, origin=kineto.base)
        threads, launches = threads_of(shown, self._below()), launch_rows(shown)
        file.write(memoryview(kineto.data)[: kineto.end])
        if events := self._arrows(threads.rows, launches):
            file.write(b",\n" + orjson.dumps(events)[1:-1])
        for piece in chrome.pieces(shown, threads, launches, step):
            file.write(piece)
        file.write(memoryview(kineto.data)[kineto.end :])

    def _below(self) -> Below:
        """The streams of the file below which the launches are shown."""
        stream, pid, several = list[int](), list[int](), dict[int, set[int]]()
        for launch, at in enumerate(self.pairs.kernel.tolist()):
            found = self._slice(launch).get("pid")
            pid.append(found if isinstance(found, int) else self.trace.launches[launch].device)
            stream.append(int(self.kernels.stream[at]) if at != NONE else 1 << 40)
            several.setdefault(pid[-1], set()).add(stream[-1])
        tids = [one.get("tid") for one in self.kineto.events if one.get("pid") in several]
        first = max([63, *several, *(one for one in tids if isinstance(one, int))]) + 1
        prefix = [
            f"{f'stream {one}' if one < 1 << 40 else 'unknown stream'} \N{MIDDLE DOT} " * (len(several[of]) > 1)
            for one, of in zip(stream, pid, strict=True)
        ]
        return Below(np.array(pid, np.int64), np.array(stream, np.int64), prefix, first)

    def _slice(self, launch: int) -> Event:
        """The event of a launch's kernel; of one without, that of any kernel of its GPU."""
        at = int(self.pairs.kernel[launch])
        if at == NONE:
            of_gpu = np.flatnonzero(self.kernels.device == self.trace.launches[launch].device)
            if not len(of_gpu):
                return {}
            at = int(of_gpu[0])
        return self.kineto.events[int(self.kernels.event[at])]

    def _arrows(self, rows: dict[int, Thread], launches: dict[int, LaunchRow]) -> list[Event]:
        """Arrows from the calls to the launches."""
        found, made_by = list[Event](), call_events(self.kineto, self.kernels, self.pairs.kernel)
        for tid, thread in rows.items():
            if thread.launch is not None and made_by[thread.launch] >= 0:
                one = self.kineto.events[made_by[thread.launch]]
                arrow = {"cat": _ARROW, "name": _ARROW, "id": thread.launch + 1, "bp": "e"}
                source = {"pid": one.get("pid"), "tid": one.get("tid"), "ts": float(one["ts"])}
                target = {"pid": thread.pid, "tid": tid, "ts": launches[thread.launch].begin / 1000}
                found += [{"ph": "s", **arrow, **source}, {"ph": "f", **arrow, **target}]
        return found

    def _perfetto(self, shown: Timeline, file: Out, step: Step) -> None:
        """The file's events as packets, then kscope's."""
        tracks, parent, flow = perfetto.Tracks(self.kineto), dict[int, int](), dict[int, int]()
        begins: dict[int, list[int]] = {}
        for launch, call in enumerate(call_events(self.kineto, self.kernels, self.pairs.kernel)):
            one = self._slice(launch)
            parent[launch] = tracks.uuid(str(one.get("pid")), str(one.get("tid")))
            if call >= 0:
                flow[launch] = perfetto.FIRST_FLOW * 2 + launch
                begins.setdefault(call, []).append(flow[launch])
        for piece in perfetto.packets(self.kineto, tracks, begins):
            file.write(piece)
        pftrace.write(shown, file, step, Beside(parent, flow))


def check_output(path: Path) -> None:
    """Check that a merged timeline can be written. Raises UsageError: another suffix, or an unwritable path."""
    if not path.name.endswith(FORMATS) or path.name.endswith((".speedscope.json", ".speedscope.json.gz")):
        raise UsageError(f"{path.name!r}: a merged trace is a timeline; expected a suffix of {', '.join(FORMATS)}")
    check(path)


def beside(trace: Trace, kineto: Kineto) -> Merged:
    """Put a capture and a parsed torch trace on one axis.

    Raises:
        UsageError: they do not list the same launches, or their times contradict each other.
    """
    found, times = kernels(kineto), launch_times(trace)
    pairs = pair(trace, times, found, kineto)
    shift = kineto.base - trace.origin
    more = readings(trace, found, shift)
    known = clocks(times, pairs.kernel, found.begin + shift, found.end + shift, more)
    if not known:
        raise UsageError(
            f"merge: no kernel of the capture is in {kineto.name}; the capture has launches of "
            f"{', '.join(trace.kernels[:5]) or 'no kernel'}"
        )
    limits = tuple(bounds(trace, times, pairs.kernel, known, more))
    jumps = sum(clock.jumps for clock in known.values())
    on = move_to_axis(trace, {device: shift_of(clock) for device, clock in known.items()}, jumps)
    rows: tuple[Call, ...] = calls(kineto, found, pairs.kernel, on.origin)
    if trace.calls:  # lines recorded by the session
        rows = tuple(replace(one, stack=one.stack or own.stack) for one, own in zip(rows, trace.calls, strict=True))
    problems = on.problems
    if pairs.unsure:
        text = (
            f"{counted(pairs.unsure, 'launch')} of one kernel overlapped on several streams, "
            "and no order decides which kernel of the torch trace is which: they are shown without their stream"
        )
        problems = (*problems, Problem("ambiguous", text, pairs.unsure))
    return Merged(replace(on, calls=rows, problems=problems), kineto, found, pairs, limits)
