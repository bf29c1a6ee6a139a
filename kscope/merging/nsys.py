"""Reads a report of Nsight Systems, exported with `nsys export --type sqlite`, in the form of a Kineto file. Its
kernels have CUPTI's gridId, which is %gridid, so launches join exactly.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from ..errors import FormatError
from ..util.text import counted
from .kineto import GRID_ID, MANGLED, NODE, Event, Kineto, parse

_RANGES = "WHERE eventType IN (59, 60, 70, 71) AND end NOT NULL"
"""Ranges of NVTX_EVENTS: push and pop, start and end; of threads and of processes."""
_ID = 0x1000000
Row = dict[str, Any]


def read(path: Path) -> Kineto:
    """Read a report.

    CUDA graphs are traced whole, without their kernels, unless nsys runs with --cuda-graph-trace=node. Tables: "SQLite
    Schema Reference" of the Nsight Systems User Guide. Columns that a version lacks are left out.

    Raises:
        FormatError: not such a file, or one without kernels.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3"):
            raise FormatError(f"{path}: not a SQLite file; export the report with `nsys export --type sqlite`")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory, database.text_factory = sqlite3.Row, _text
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}

            def rows(table: str, more: str = "") -> Iterator[Row]:
                if table in tables:
                    yield from map(dict, database.execute(f"SELECT * FROM {table} {more}"))

            names = {row["id"]: row["value"] for row in rows("StringIds")}
            kernels = [_kernel(row, names) for row in rows("CUPTI_ACTIVITY_KIND_KERNEL")]
            calls = [_call(row, names) for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME", "ORDER BY start")]
            graphs = sum(1 for _ in rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))
            ranges = [_range(row, names) for row in rows("NVTX_EVENTS", _RANGES)]
            base = next((row.get("utcEpochNs", 0) for row in rows("TARGET_INFO_SESSION_START_TIME")), 0)
    except (sqlite3.Error, KeyError, TypeError) as error:
        raise FormatError(f"{path}: {error}; export the report again") from error
    if not kernels and graphs:
        runs = counted(graphs, "run")
        raise FormatError(f"{path}: {runs} of CUDA graphs, but no kernel; profile with --cuda-graph-trace=node")
    if not kernels:
        raise FormatError(f"{path}: no kernel was recorded; profile with --trace=cuda,nvtx")
    events = [*_names(kernels), *kernels, *calls, *ranges]
    found = parse(path.name, orjson.dumps({"baseTimeNanoseconds": base, "traceEvents": events}))
    return replace(found, whole_graphs=graphs)


def _text(data: bytes) -> str:
    """nsys on Windows writes some text in the encoding of that machine."""
    return data.decode(errors="replace")


def _kernel(row: Row, names: dict[int, str]) -> Event:
    mangled = names.get(row.get("mangledName", -1), "")
    name = next((names[row[key]] for key in ("demangledName", "shortName") if row.get(key) in names), mangled)
    args = {
        "device": row.get("deviceId", 0), "stream": row.get("streamId", -1),
        "correlation": row.get("correlationId", -1), "grid": [row.get(f"grid{axis}", 1) for axis in "XYZ"],
        "block": [row.get(f"block{axis}", 1) for axis in "XYZ"], GRID_ID: row.get(GRID_ID), MANGLED: mangled,
        NODE: row.get("graphNodeId"),
    }  # fmt: skip
    place = {"pid": args["device"], "tid": args["stream"]}
    return _event("kernel", name, row, place, {key: value for key, value in args.items() if value not in (None, "")})


def _call(row: Row, names: dict[int, str]) -> Event:
    name = names.get(row.get("nameId", -1), "call")
    return _event("cuda_runtime", name, row, _thread(row), {"correlation": row.get("correlationId", -1)})


def _range(row: Row, names: dict[int, str]) -> Event:
    name = row.get("text") or names.get(row.get("textId") or -1, "range")
    return _event("cpu_op", str(name), row, _thread(row), {"nvtx": 1})


def _thread(row: Row) -> dict[str, int]:
    number = row.get("globalTid") or 0
    return {"pid": number // _ID % _ID, "tid": number % _ID}


def _event(category: str, name: str, row: Row, place: dict[str, Any], args: dict[str, Any]) -> Event:
    times = {"ts": row["start"] / 1000, "dur": (row["end"] - row["start"]) / 1000}
    return {"ph": "X", "cat": category, "name": name, **place, **times, "args": args}


def _names(kernels: list[Event]) -> Iterator[Event]:
    """Names of processes and threads."""
    streams = sorted({(one["pid"], one["tid"]) for one in kernels})
    for device in dict(streams):
        yield {"ph": "M", "name": "process_labels", "pid": device, "tid": 0, "args": {"labels": f"GPU {device}"}}
    for device, stream in streams:
        yield {"ph": "M", "name": "thread_name", "pid": device, "tid": stream, "args": {"name": f"stream {stream}"}}
