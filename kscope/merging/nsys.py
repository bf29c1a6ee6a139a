"""A report of Nsight Systems, exported with `nsys export --type sqlite`, in the form of a Kineto file.

Its kernels have CUPTI's gridId, which is %gridid: launches join exactly. Tables: "SQLite Schema Reference" of the
Nsight Systems User Guide. Columns that a version lacks are left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from ..errors import FormatError
from .kineto import GRID_ID, MANGLED, Event, Kineto, parse

_KERNELS, _CALLS, _NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_START = "TARGET_INFO_SESSION_START_TIME"
_RANGES = (59, 60, 70, 71)
"""NVTX_EVENTS.eventType of ranges: push and pop, start and end; of threads and of processes."""
_ID = 0x1000000


def read(path: Path) -> Kineto:
    """Read a report.

    Raises:
        FormatError: not such a file, or one without kernels.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3"):
            raise FormatError(f"{path}: not a SQLite file; export the report with `nsys export --type sqlite`")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            database.text_factory = _text
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            if _KERNELS not in tables:
                raise FormatError(
                    f"{path}: no table {_KERNELS}: no kernel was recorded; profile with --trace=cuda,nvtx"
                )
            names = {row["id"]: row["value"] for row in database.execute("SELECT id, value FROM StringIds")}
            events = [*_kernels(database, names)]
            if _CALLS in tables:
                events += _calls(database, names)
            if _NVTX in tables:
                events += _ranges(database, names)
            base = _base(database) if _START in tables else 0
    except sqlite3.Error as error:
        raise FormatError(f"{path}: {error}; export the report again") from error
    return parse(path.name, orjson.dumps({"baseTimeNanoseconds": base, "traceEvents": [*_names(events), *events]}))


def _text(data: bytes) -> str:
    """nsys on Windows writes some text in the encoding of that machine."""
    return data.decode(errors="replace")


def _base(database: sqlite3.Connection) -> int:
    """UNIX ns of time 0."""
    row = database.execute(f"SELECT * FROM {_START}").fetchone()
    found = row["utcEpochNs"] if row is not None and "utcEpochNs" in row.keys() else 0  # noqa: SIM118  # a Row
    return found if isinstance(found, int) else 0


def _kernels(database: sqlite3.Connection, names: dict[int, str]) -> Iterator[Event]:
    for row in database.execute(f"SELECT * FROM {_KERNELS} ORDER BY start"):
        one = dict(row)
        name = next((names[one[key]] for key in ("demangledName", "shortName") if one.get(key) in names), "")
        mangled = names.get(one.get("mangledName", -1), "")
        args = {
            "device": one.get("deviceId", 0), "stream": one.get("streamId", -1),
            "correlation": one.get("correlationId", -1), "grid": [one.get(f"grid{axis}", 1) for axis in "XYZ"],
            "block": [one.get(f"block{axis}", 1) for axis in "XYZ"],
        }  # fmt: skip
        args |= {GRID_ID: one[GRID_ID]} if isinstance(one.get(GRID_ID), int) else {}
        args |= {MANGLED: mangled} if mangled else {}
        place = {"pid": args["device"], "tid": args["stream"]}
        yield _event("kernel", name or mangled, one["start"], one["end"], place, args)


def _calls(database: sqlite3.Connection, names: dict[int, str]) -> Iterator[Event]:
    for row in database.execute(f"SELECT * FROM {_CALLS} ORDER BY start"):
        one = dict(row)
        args = {"correlation": one.get("correlationId", -1)}
        name = names.get(one.get("nameId", -1), "call")
        yield _event("cuda_runtime", name, one["start"], one["end"], _thread(one), args)


def _ranges(database: sqlite3.Connection, names: dict[int, str]) -> Iterator[Event]:
    for row in database.execute(f"SELECT * FROM {_NVTX} WHERE end IS NOT NULL ORDER BY start"):
        one = dict(row)
        if one.get("eventType") in _RANGES:
            name = one.get("text") or names.get(one.get("textId") or -1, "range")
            yield _event("cpu_op", str(name), one["start"], one["end"], _thread(one), {"nvtx": 1})


def _thread(row: dict[str, Any]) -> dict[str, int]:
    number = row.get("globalTid") or 0
    return {"pid": number // _ID % _ID, "tid": number % _ID}


def _event(category: str, name: str, begin: int, end: int, place: dict[str, Any], args: dict[str, Any]) -> Event:
    times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
    return {"ph": "X", "cat": category, "name": name, **place, **times, "args": args}


def _names(events: list[Event]) -> Iterator[Event]:
    """Names of processes and threads."""
    streams = {(one["pid"], one["tid"]) for one in events if one["cat"] == "kernel"}
    for device in sorted({pid for pid, _ in streams}):
        labels = {"ph": "M", "name": "process_labels", "pid": device, "tid": 0, "args": {"labels": f"GPU {device}"}}
        yield labels
    for device, stream in sorted(streams):
        yield {"ph": "M", "name": "thread_name", "pid": device, "tid": stream, "args": {"name": f"stream {stream}"}}
