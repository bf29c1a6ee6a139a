"""CUTracer's files: its histogram CSV, its log, and the Chrome trace that its script joins them with.

histogram   warp_id,region_id,instruction,count       warp_id counts over the whole grid; instruction is optional
log         ... LAUNCH ... kernel hash 0x7fa21c3 ... grid size 97,1,1 ... block size 32,1,1
trace       events with pid "... Core3 CTA17 ..." and tid "... warp 2 ..."; cycles = dur * 1000
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ...errors import FormatError
from ...tracedata.data import Launch, TraceData
from ...util import bounded_reading
from ...util.runs import group_equal, heads
from ...util.text import is_number

_PLACE, _WARP = re.compile(r"Core(\d+)\s+CTA(\d+)"), re.compile(r"warp (\d+)")
_HASH = re.compile(r"kernel hash\s+(?:0x)?([0-9a-fA-F]{1,16})(?![0-9a-fA-F])")
_GRID, _BLOCK = (
    re.compile(rf"{what} size\s+([0-9]{{1,10}}),\s*([0-9]{{1,10}}),\s*([0-9]{{1,10}})(?![0-9])")
    for what in ("grid", "block")
)
_NAME = re.compile(r"Kernel name\s+(\S+)")
_FILE_HASH = re.compile(r"kernel_([0-9a-fA-F]+)_")
_ROW_BYTES = 256
"""Upper bound for the memory of a histogram's row."""
HIST_COLUMNS = ("warp_id", "region_id", "instruction", "count")

Counts = dict[tuple[int, int], int]
"""(warp of the grid, region id) -> instructions."""


@dataclass(frozen=True)
class LogLaunch:
    """A launch in CUTracer's log. hash: of the kernel; None for a graph node."""

    hash: int | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    name: str | None = None

    @property
    def warps_per_block(self) -> int:
        """Warps per block, rounded up."""
        x, y, z = self.block
        return -(-x * y * z // 32)


@dataclass(frozen=True)
class Event:
    """One region of one warp, with its place, cycles and time as in the trace."""

    core: int
    cta: int
    warp: int
    name: str
    category: str
    cycles: float
    timestamp_ns: float


def read_histogram(path: Path) -> Counts:
    """Instructions by warp and region, summed over opcodes.

    Raises:
        FormatError: an invalid line, or more warps and regions than fit into memory.
    """
    counts: Counts = {}
    most = bounded_reading.memory_budget() // _ROW_BYTES
    reader = csv.DictReader(bounded_reading.read_lines(path))
    try:
        missing = [name for name in ("warp_id", "region_id", "count") if name not in (reader.fieldnames or ())]
        if missing:
            raise FormatError(f"{path}: no column {', '.join(missing)}; expected {','.join(HIST_COLUMNS)}")
        for row in reader:
            key = _whole(path, reader.line_num, row, "warp_id"), _whole(path, reader.line_num, row, "region_id")
            counts[key] = counts.get(key, 0) + _whole(path, reader.line_num, row, "count")
            if len(counts) > most:
                raise FormatError(f"{path}: more than {most:,} warps and regions, the limit for this machine")
    except csv.Error as error:
        raise FormatError(f"{path}, line {reader.line_num}: {error}") from None
    return counts


def histogram_hash(path: Path) -> int | None:
    """The kernel hash in a histogram's file name, kernel_<hash>_...; None without."""
    found = _FILE_HASH.search(path.name)
    return int(found[1], 16) if found else None


def read_log(path: Path) -> tuple[LogLaunch, ...]:
    """The launches in a log, in order; other lines are ignored.

    Raises:
        FormatError: the file is not text.
    """
    found = []
    for line in bounded_reading.read_lines(path):
        grid, block = _GRID.search(line), _BLOCK.search(line)
        if "LAUNCH" not in line or grid is None or block is None:
            continue
        number, name = _HASH.search(line), _NAME.search(line)
        found.append(
            LogLaunch(int(number[1], 16) if number else None, _three(grid), _three(block), name[1] if name else None)
        )
    return tuple(found)


def read_chrome(path: Path) -> tuple[Event, ...]:
    """The regions in a Chrome trace; other events are ignored.

    Raises:
        FormatError: the file is not a Chrome trace.
    """
    try:
        events = trace_events(orjson.loads(bounded_reading.read_bytes(path)), path)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"{path} is not JSON ({error})") from None
    return tuple(event for one in events if (event := _event(one)) is not None)


def trace_events(data: object, name: object) -> list[Any]:
    """The events of a Chrome trace. Raises FormatError, which names the file."""
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise FormatError(f"{name}: expected an object with traceEvents, or a list of events")
    return events


def write_histogram(counts: Mapping[tuple[int, int, str], int]) -> str:
    """A histogram CSV; keys are (warp of the grid, region id, instruction)."""
    lines = [",".join(HIST_COLUMNS)]
    for (warp, region, instruction), count in sorted(counts.items()):
        quoted = instruction.replace('"', '""')
        lines.append(f'{warp},{region},"{quoted}",{count}')
    return "\n".join(lines) + "\n"


def write_log(launches: Iterable[tuple[Launch, tuple[int, int, int]]]) -> str:
    """A line per launch and block size, as CUTracer's script reads it. The hash is kscope's kernel id."""
    lines = []
    for number, (launch, block) in enumerate(launches):
        grid, threads = (",".join(map(str, size)) for size in (launch.grid, block))
        lines.append(
            f"kscope: LAUNCH - Kernel name {'_'.join(launch.kernel.split()) or '?'} - kernel hash {launch.hash} - "
            f"kernel launch id {number} - grid size {grid} - block size {threads}\n"
        )
    return "".join(lines)


def write_chrome(trace: TraceData) -> bytes:
    """Spans of known duration as Proton writes them, which CUTracer reads: dur is cycles / 1000; ts is the begin of the
    block in us, and from there cycles / 1000, too. "Init Time (ns)" distinguishes the launches of a block.
    """
    at = np.flatnonzero(trace.is_span)
    names, warps = trace.region_names(), trace.warps
    track, ticks = trace.track[at], trace.start_ticks[at]
    _, _, block = group_equal(warps.block_key[track])
    order = np.lexsort((ticks, block))
    first = order[heads(block[order])] if len(at) else order
    begin, tick = np.round(trace.start_ns[at][first]), ticks[first]
    columns = (
        names[trace.region[at]], warps.kernel[track], warps.sm[track], warps.block[track], warps.warp[track],
        begin[block], (begin[block] + (ticks - tick[block])) / 1000, trace.dur_cycles[at] / 1000,
    )  # fmt: skip
    kernels = trace.kernels
    events = [
        {
            "name": name, "cat": kernels[kernel], "ph": "X", "pid": f"{kernels[kernel]} Core{sm} CTA{block}",
            "tid": f"warp {warp}", "ts": ts, "dur": dur, "args": {"Init Time (ns)": init},
        }
        for name, kernel, sm, block, warp, init, ts, dur in zip(*(column.tolist() for column in columns), strict=True)
    ]  # fmt: skip
    return orjson.dumps({"displayTimeUnit": "ns", "traceEvents": events})


def to_csv(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """CSV lines as CUTracer's script writes them; None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return out.getvalue()


def _event(one: Any) -> Event | None:
    if not isinstance(one, dict) or one.get("ph", "X") != "X":
        return None
    pid, tid = one.get("pid"), one.get("tid")
    place = _PLACE.search(pid) if isinstance(pid, str) else None
    if place is None or len(place[1]) > 9 or len(place[2]) > 18:
        return None
    warp = _WARP.search(tid) if isinstance(tid, str) else None
    times = [one.get(name) for name in ("dur", "ts")]
    if not all(isinstance(time, (int, float)) and not isinstance(time, bool) for time in times):
        return None
    cycles, stamp = (float(time) * 1000 for time in times if isinstance(time, (int, float)))
    number = int(warp[1]) if warp and len(warp[1]) < 9 else 0
    return Event(int(place[1]), int(place[2]), number, str(one.get("name", "")), str(one.get("cat", "")), cycles, stamp)


def _whole(path: Path, line: int, row: dict[str, Any], name: str) -> int:
    text = (row.get(name) or "").strip()
    if not is_number(text):
        raise FormatError(f"{path}, line {line}: {name} is {text[:40]!r}, expected a number")
    return int(text)


def _three(match: re.Match[str]) -> tuple[int, int, int]:
    return int(match[1]), int(match[2]), int(match[3])
