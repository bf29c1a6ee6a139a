"""A run that was recorded twice, with known truth: kscope's capture, and torch.profiler's trace as Kineto writes it.

Times are true ns. kscope's clock is a %globaltimer with steps of 32 ns; Kineto's has an offset and drifts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import synth
from synth import Rec

from kscope.capture.capture import Capture
from kscope.capture.capture_data import ClockSync, DeviceCapture, TimerReading
from kscope.capture.layout import Kind

BASE = 1_764_547_200_000_000_000
"""baseTimeNanoseconds"""
TIMER = 5_000_000_000
"""%globaltimer at true time 0."""
TICK = 32
SPIN = 1024


@dataclass
class Run:
    """A launch: its kernel, stream and place. graph: number of the graph launch that it is part of; node: its node."""

    kernel: str
    begin: int
    first: int
    last: int
    end: int
    stream: int = 7
    grid: tuple[int, int, int] = (2, 1, 1)
    grid_id: int = 0
    correlation: int = 0
    graph: int | None = None
    node: int = 0
    line: str = ""
    op: str = ""
    module: str = ""
    device: int = 0
    tag: int = 0


@dataclass
class Recorded:
    """Both recordings of runs.

    Attributes:
        offset, rate: of Kineto's clock against true time.
        unrecorded: kernels that kscope does not know, such as torch's own.
        readings: kernels that read the timer at `first`, and wait until SPIN ns later.
    """

    runs: list[Run]
    offset: int = 1_234_567
    rate: float = 6.5e-6
    unrecorded: list[Run] = field(default_factory=list)
    readings: list[Run] = field(default_factory=list)

    def kineto_ns(self, true: float) -> int:
        """ns after BASE on Kineto's clock."""
        return round(true * (1 + self.rate)) + self.offset

    def capture(self, jump: tuple[int, int] | None = None) -> Capture:
        """kscope's capture. jump: (true time, ns) of the %globaltimer."""
        devices = []
        kernels = {name: 0x1000 + at for at, name in enumerate(sorted({one.kernel for one in self.runs}))}
        for ordinal in sorted({one.device for one in self.runs}):
            lines = self.lines(ordinal, kernels, jump)
            sync = ClockSync(BASE, TIMER, BASE + 20_000)
            first = [(one.kernel, (one.first + TIMER) // TICK * TICK) for one in self.readings if one.device == ordinal]
            read = tuple(TimerReading(name, at, at + SPIN) for name, at in first)
            devices.append(DeviceCapture(ordinal, "synthetic", lines, 132, 0, TICK, (sync,), 1_980_000, readings=read))
        modules = tuple(synth.module((("load", "i32"), "dot"), number, name) for name, number in kernels.items())
        return Capture(synth.EPOCH, tuple(devices), modules, {"strategy": "elected"}, (), {"host": "synthetic"})

    def lines(self, device: int, kernels: dict[str, int], jump: tuple[int, int] | None) -> np.ndarray:
        """What a GPU wrote. kernels: the number of each."""
        mine = [one for one in self.runs if one.device == device]
        return np.concatenate([slab for one in mine for slab in self._slabs(one, kernels, jump)])

    def _slabs(self, one: Run, kernels: dict[str, int], jump: tuple[int, int] | None) -> list[np.ndarray]:
        found = []
        for block in range(int(np.prod(one.grid))):
            first = one.first + 100 * block
            last = one.last - 100 * block
            clock = [round(true * 1.98) + 10_000 * block for true in (first, last)]
            times = [int(true) + TIMER + (0 if jump is None or true < jump[0] else jump[1]) for true in (first, last)]
            times = [time // TICK * TICK for time in times]
            span = Rec("load", clock[0] + 200, clock[1] - 200, Kind.SPAN_VALUE, one.tag)
            found.append(
                synth.slab(
                    [span], log2=2, start=clock[0], end=clock[1], start_time=times[0], end_time=times[1], sm=block,
                    block=(block, 0, 0), grid=one.grid, kernel=kernels[one.kernel], grid_id=one.grid_id,
                )
            )  # fmt: skip
        return found

    def kineto(self, indent: str = "  ") -> bytes:
        """The file that export_chrome_trace() writes."""
        events = [*self._names()]
        every = sorted([*self.runs, *self.unrecorded, *self.readings], key=lambda one: one.begin)
        graphs: dict[int, list[Run]] = {}
        for one in every:
            if one.graph is None:
                events += self._launched(one)
            else:
                graphs.setdefault(one.graph, []).append(one)
        for members in graphs.values():
            events += self._launched(members[0], "cudaGraphLaunch")
        for one in every:
            events.append(self._kernel(one))
            events += self._flow(one, "f")
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "trace_id": "AB]}",
                "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE}  # fmt: skip
        text = json.dumps(head)[:-1] + ',\n"traceEvents": [\n'
        text += ",\n".join(indent + one for one in map(_written, events))
        return (text + f'\n{indent}],\n"traceName": "a \\"]}} name.json", "more": [[1, 2], {{"x": []}}]\n}}\n').encode()

    def _names(self) -> list[dict[str, Any]]:
        found = [_meta("process_name", 4242, 0, name="python"), _meta("process_labels", 4242, 0, labels="CPU"),
                 _meta("thread_name", 4242, 4242, name="thread 4242 (python)")]  # fmt: skip
        for device in sorted({one.device for one in self.runs}):
            found += [
                _meta("process_name", device, 0, name="python"),
                _meta("process_labels", device, 0, labels=f"GPU {device}"),
            ]
            for stream in sorted({one.stream for one in self.runs}):
                found.append(_meta("thread_name", device, stream, name=f"stream {stream} "))
                found.append(_meta("thread_sort_index", device, stream, sort_index=stream))
        return found

    def _launched(self, one: Run, call: str = "cuLaunchKernelEx") -> list[dict[str, Any]]:
        """The frames, the operator and the call; the call takes 2 us and ends 1 us before the kernel."""
        at = self.kineto_ns(one.begin) - 3000
        found = []
        layers = [("python_function", "train.py(3): main"), ("python_function", one.line or "train.py(12): step")]
        if one.module:
            layers.append(("python_function", f"nn.Module: {one.module}"))
        if one.op:
            layers.append(("cpu_op", one.op))
        for depth, (category, name) in enumerate(layers):
            out = 400 - 50 * depth
            args = {"External id": one.correlation + 10_000, "Ev Idx": depth}
            found.append(_event(category, name, 4242, 4242, at - out, 2000 + 2 * out, args))
        driver = call.startswith("cu") and not call.startswith("cuda")
        args = {"External id": one.correlation + 10_000, "cbid": 652, "correlation": one.correlation}
        found.append(_event("cuda_driver" if driver else "cuda_runtime", call, 4242, 4242, at, 2000, args))
        return found + self._flow(one, "s")

    def _flow(self, one: Run, phase: str) -> list[dict[str, Any]]:
        at = self.kineto_ns(one.begin) - (3000 if phase == "s" else 0)
        place = {"pid": 4242, "tid": 4242} if phase == "s" else {"pid": one.device, "tid": one.stream}
        more = {"bp": "e"} if phase == "f" else {}
        return [{"ph": phase, "id": one.correlation, **place, "ts": at, "cat": "ac2g", "name": "ac2g", **more}]

    def _kernel(self, one: Run) -> dict[str, Any]:
        begin, end = self.kineto_ns(one.begin), self.kineto_ns(one.end)
        args = {
            "External id": one.correlation + 10_000, "queued": 0, "device": one.device, "context": 1,
            "stream": one.stream,
            "correlation": one.correlation, "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.0151,
            "warps per SM": 0.06, "grid": list(one.grid), "block": [128, 1, 1], "est. achieved occupancy %": 0,
        }  # fmt: skip
        if one.graph is not None:
            args |= {"graph id": 1, "graph node id": one.node}
        return _event("kernel", one.kernel, one.device, one.stream, begin, end - begin, args)


def _event(category: str, name: str, pid: int, tid: int, ns: int, length: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ns, "dur": length, "args": args}


def _meta(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}


def _written(event: dict[str, Any]) -> str:
    """An event as Kineto writes it: us with three digits."""
    text = json.dumps({**event, "ts": "TS", "dur": "DUR"} if "dur" in event else {**event, "ts": "TS"})
    for name, mark in (("ts", '"TS"'), ("dur", '"DUR"')):
        ns = event.get(name, 0)
        text = text.replace(mark, f"{'-' * (ns < 0)}{abs(ns) // 1000}.{abs(ns) % 1000:03d}")
    return text


def steps(
    count: int, kernels: Sequence[str] = ("scale", "shift"), *, seed: int = 1, pause: int = 40_000, first: int = 0
) -> list[Run]:
    """Launches on one stream, one after the other, of some us; each begins 300 to 900 ns before its first claim."""
    rng, time, found = np.random.default_rng(seed), 1_000_000 + first, []
    for at in range(count):
        begin = time + int(rng.exponential(pause)) + 10_000
        claim = begin + int(rng.integers(300, 900))
        last = claim + int(rng.integers(3_000, 9_000))
        time = last + int(rng.integers(300, 1_200))
        found.append(
            Run(
                kernels[at % len(kernels)], begin, claim, last, time, grid_id=100 + at, correlation=900 + 7 * at, tag=at
            )
        )
    return found


def readings(kernel: str, begin: int, count: int = 64, seed: int = 5, device: int = 0) -> list[Run]:
    """Launches that only read the timer, from true time `begin` on: 250 to 300 ns after their begin."""
    rng, found = np.random.default_rng(seed), []
    for at in range(count):
        start = begin + at * 6_000 + int(rng.integers(0, 100))
        first = start + int(rng.integers(250, 300))
        end = first + SPIN + int(rng.integers(250, 300))
        number = 50_000 + begin + at
        found.append(Run(kernel, start, first, end, end, stream=30, grid=(1, 1, 1), correlation=number, device=device))
    return found
