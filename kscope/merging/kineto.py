"""torch.profiler's trace (Kineto's JSON, written by export_chrome_trace()), read without changing a byte of it. Times
are decimals of us after `baseTimeNanoseconds`, or UNIX us in files without that base; both are read as decimals to
whole ns.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from ..errors import FormatError
from ..util.arrays import Bools, Int64
from ..util.bounded_reading import MAX_FILE_BYTES, memory_budget, read_bytes
from ..util.memory import uncollected

Event = dict[str, Any]
Value = TypeVar("Value", str, "tuple[Any, Any]")

CALLS = ("cuda_runtime", "cuda_driver")
"""Categories of calls that launch kernels."""
GRID_ID, MANGLED = "gridId", "mangled"
"""Arguments of kernels that only reports of Nsight Systems have: %gridid, and the name in the binary."""
NODE = "graph node id"
"""The argument that kernels of CUDA graphs have."""
_KEY = b'"traceEvents"'
_EXACT_US = 2.0**43
"""Below it float64 holds us with three decimals."""
_STEP = re.compile(r"ProfilerStep#(\d+)")
_SHARE = 16
"""A parsed file takes about this many times its size."""


@dataclass(frozen=True, eq=False)
class Kineto:
    """A file of torch.profiler.

    Attributes:
        name: the file's name, for messages.
        data: its bytes, unpacked.
        end: place in `data` of the bracket that closes `traceEvents`.
        base: UNIX ns of time 0.
        events: the events, as they are.
        begin, end_ns: (e,) int64 ns after `base`; equal for events without a duration, 0 for those without a time.
        phase, category, thread: (e,) int64, indices into `phases`, `categories` and `threads`.
        phases, categories: the distinct ones, as text.
        threads: the distinct pairs of process and thread, as they are.
        whole_graphs: runs of CUDA graphs that were traced without their kernels; only Nsight Systems does so.
    """

    name: str
    data: bytes
    end: int
    base: int
    events: list[Event]
    begin: Int64
    end_ns: Int64
    phase: Int64
    category: Int64
    thread: Int64
    phases: list[str]
    categories: list[str]
    threads: list[tuple[Any, Any]]
    whole_graphs: int = 0

    def of(self, *categories: str) -> Int64:
        """Indices of the complete events of some categories, ascending."""
        codes = [code for code, name in enumerate(self.categories) if name in categories]
        return np.flatnonzero(np.isin(self.category, codes) & self.in_phase("X"))

    def in_phase(self, *phases: str) -> Bools:
        """(e,) True for events of some phases."""
        return np.isin(self.phase, [code for code, name in enumerate(self.phases) if name in phases])

    @cached_property
    def steps(self) -> list[int]:
        """Numbers of the steps that the profiler's schedule kept, in order; empty without a schedule."""
        names = {str(one.get("name")) for one in self.events if str(one.get("name", "")).startswith("ProfilerStep#")}
        return sorted(int(found[1]) for name in names if (found := _STEP.fullmatch(name)))


@dataclass(frozen=True, eq=False)
class Kernels:
    """The kernels of a Kineto file in order of begin, (k,).

    Attributes:
        event: index of each one's event.
        name: names in the binary where the file has them, which distinguish instances of a template; else as shown.
        device, stream, correlation, node: numbers; -1 where the file has none. node: of a CUDA graph.
        grid_id: %gridid, which Kineto's files lack; -1 there.
        grid, block: dimensions; () where the file has none.
        begin, end: int64 ns after the file's base.
    """

    event: Int64
    name: list[str]
    device: Int64
    stream: Int64
    correlation: Int64
    node: Int64
    grid_id: Int64
    grid: list[tuple[int, ...]]
    block: list[tuple[int, ...]]
    begin: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.event)


def read(path: Path) -> Kineto:
    """Read a file, .json or .json.gz.

    Raises:
        FormatError: not a trace of torch.profiler, or too large for this machine.
        OSError: it cannot be read.
    """
    most = max(MAX_FILE_BYTES, memory_budget() // _SHARE)
    data = read_bytes(path, most)
    if data[:2] == b"\x1f\x8b":
        data = _unpacked(path, data, most)
    return parse(path.name, data)


def parse(name: str, data: bytes) -> Kineto:
    """Read a file's bytes. Raises FormatError as read() does."""
    with uncollected():
        return _parse(name, data)


def _parse(name: str, data: bytes) -> Kineto:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"{name}: not JSON ({error}); expected what p.export_chrome_trace() writes") from error
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list) or not all(isinstance(one, dict) for one in events):
        raise FormatError(f"{name}: no list traceEvents; expected what p.export_chrome_trace() writes")
    base = found.get("baseTimeNanoseconds", 0)
    base = base if isinstance(base, int) else 0
    events = _with_exact_times(data, events)
    begin = _whole_ns(name, [one.get("ts", 0) for one in events])
    length = _whole_ns(name, [one.get("dur", 0) for one in events])
    phase, phases = _coded(name, [str(one.get("ph")) for one in events])
    category, categories = _coded(name, [str(one.get("cat")) for one in events])
    thread, threads = _coded(name, [(one.get("pid"), one.get("tid")) for one in events])
    end = begin + np.maximum(length, 0)
    columns = phase, category, thread, phases, categories, threads
    return Kineto(name, data, _end(name, data, found), base, events, begin, end, *columns)


def _coded(name: str, values: list[Value]) -> tuple[Int64, list[Value]]:
    """The distinct values, and the index of each."""
    codes = dict[Value, int]()
    try:
        return np.array([codes.setdefault(one, len(codes)) for one in values], np.int64), list(codes)
    except TypeError:
        raise FormatError(f"{name}: an event's pid or tid is neither a number nor text") from None


def kernels(kineto: Kineto) -> Kernels:
    """The kernels of a file, in order of begin."""
    at = kineto.of("kernel")
    at = at[np.argsort(kineto.begin[at], kind="stable")]
    events = [kineto.events[one] for one in at.tolist()]
    args = [found if isinstance(found := one.get("args"), dict) else {} for one in events]

    def column(*names: str) -> Int64:
        return np.array([_number(next((one[name] for name in names if name in one), -1)) for one in args], np.int64)

    def sizes(name: str) -> list[tuple[int, ...]]:
        return [tuple(found) if isinstance(found := one.get(name), list) else () for one in args]

    return Kernels(
        event=at,
        name=[str(more.get(MANGLED) or one.get("name", "")) for one, more in zip(events, args, strict=True)],
        device=column("device"),
        stream=column("stream"),
        correlation=column("correlation"),
        node=column(NODE),
        grid_id=column(GRID_ID),
        grid=sizes("grid"),
        block=sizes("block"),
        begin=kineto.begin[at],
        end=kineto.end_ns[at],
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and -1 << 62 < value < 1 << 62 else -1


def _unpacked(path: Path, data: bytes, most: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            found = file.read(most + 1)
    except EOFError:
        raise FormatError(f"{path}: the file is truncated; write it again") from None
    except (OSError, zlib.error) as error:
        raise FormatError(f"{path}: damaged gzip data ({error}); write it again") from error
    if len(found) > most:
        raise FormatError(f"{path}: more than {most:,} bytes unpacked; merge on a machine with more memory")
    return found


def _end(name: str, data: bytes, found: Event) -> int:
    """The place of the bracket that closes traceEvents: the last one after which the other keys of the file parse."""
    start = -1
    while (start := data.find(_KEY, start + 1)) >= 0:
        try:
            before = orjson.loads(data[:start] + _KEY + b":[]}")
            break
        except orjson.JSONDecodeError:  # part of a nested value
            continue
    else:
        raise FormatError(f"{name}: traceEvents is not a key of the file's object")
    end = len(data)
    while (end := data.rfind(b"]", start, end)) >= 0:
        try:
            after = orjson.loads(b'{"traceEvents":[' + data[end:])
        except orjson.JSONDecodeError:
            continue
        if before.keys() | after.keys() == found.keys() and not (before.keys() & after.keys()) - {"traceEvents"}:
            return end
    raise FormatError(f"{name}: the end of traceEvents was not found")


def _with_exact_times(data: bytes, events: list[Event]) -> list[Event]:
    times = [one["ts"] for one in events if isinstance(one.get("ts"), (int, float))]
    if max(times, default=0) < _EXACT_US:
        return events
    exact: list[Event] = json.loads(data, parse_float=Decimal)["traceEvents"]
    return exact


def _whole_ns(name: str, us: list[Any]) -> Int64:
    """Times in us as whole ns."""
    try:
        if any(isinstance(one, Decimal) for one in us):
            return np.array([int(Decimal(one) * 1000) for one in us], np.int64)
        numbers = np.array(us, np.float64)
    except (ValueError, TypeError, ArithmeticError):
        raise FormatError(f"{name}: an event's ts or dur is not a time in us") from None
    if not np.isfinite(numbers).all() or (np.abs(numbers) > 2.0**52).any():
        raise FormatError(f"{name}: an event's ts or dur is not a time in us")
    units = np.floor(numbers)
    return np.asarray(units.astype(np.int64) * 1000 + np.rint((numbers - units) * 1000).astype(np.int64))
