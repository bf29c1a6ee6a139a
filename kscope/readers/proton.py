"""Proton's Chrome trace of a kernel with its marks: one event per scope, warp and time.

    pid    "<kernel> Core<SM> CTA<block>"        tid   "warp <w> (line <l>)", lines being spans that overlap
    ts     us: the block's start on %globaltimer, and from there cycles, as if 1000 cycles were 1 us
    dur    us: cycles / 1000 (or / the MHz that its args name)
    args   "Init Time (ns)" and "Post Final Time (ns)" of the block, "Finalization Time (ns)" the part after its kernel

So durations are exact cycles, and ns only where the clock's rate is known: give mhz=.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ..analysis.trust.cutracer import trace_events
from ..capture.layout import Kind
from ..errors import FormatError, UsageError
from ..trace import Trace
from ..tracedata.data import Launch
from ..util import bounded_reading
from ..util.arrays import Float, Int64
from ..util.runs import fresh, heads, least_of, most_of
from .columns import Notes, Records, WarpRows, distinct, recorded_by, trace
from .words import numbered

_PLACE = re.compile(r"(?s)(.*?)\s*Core(\d{1,9})\s+CTA(\d{1,14})")
_WARP = re.compile(r"warp (\d{1,6})")
_INIT, _FINAL, _AFTER, _RATE = "Init Time (ns)", "Post Final Time (ns)", "Finalization Time (ns)", "Frequency (MHz)"
_MHZ = 1000.0
_ENDINGS = 8
_FAR = 1e15


@recorded_by("Proton")
def proton(path: str | PathLike[str] | bytes, *, mhz: float | None = None, device: int = 0) -> Trace:
    """The trace of a Chrome trace that Proton wrote for an instrumented kernel.

    A block that ran several times (different "Init Time") is several launches.

    Args:
        path: the file, or its bytes.
        mhz: the SM clock; None for the file's value, else 1000 MHz with a problem.
        device: the GPU's number.

    Raises:
        FormatError: the file is not JSON with events.
        UsageError: an argument is out of range.
    """
    if mhz is not None and (isinstance(mhz, bool) or not (isinstance(mhz, (int, float)) and 1 <= mhz <= 100_000)):
        raise UsageError(f"proton(mhz={mhz!r}): expected the SM clock's rate in MHz, such as 1980")
    numbered("proton", device)
    notes = Notes()
    events = _events(path, notes)
    found = [one for one in events if isinstance(one, dict) and one.get("ph", "X") == "X" and _placed(one)]
    notes.count("foreign", len(events) - len(found), "event", "not a warp's scope (another phase or place), left out")
    args = [one["args"] if isinstance(one.get("args"), dict) else {} for one in found]
    ts, dur = _numbers(found, "ts"), _numbers(found, "dur")
    init, final, after, rate = (_numbers(args, name) for name in (_INIT, _FINAL, _AFTER, _RATE))
    rate = np.where((rate >= 1) & (rate <= 1e5), rate, _MHZ)
    sane = (np.abs(ts) < _FAR) & (dur < _FAR) & (dur >= 0)
    notes.count("garbled", np.count_nonzero(~sane), "event", "without a time, or of years, left out")
    kept = np.flatnonzero(sane)
    found = [found[index] for index in kept.tolist()]
    ts, dur, init, final, after, rate = (column[kept] for column in (ts, dur, init, final, after, rate))
    if mhz is None and len(rate) and bool((rate == _MHZ).all()):
        notes.add("assumed", "the file does not contain the SM clock: ns assume 1000 MHz; give mhz=")
    kernel, kernels, sm, block = _places(found)
    warp = _per_text([str(one.get("tid", "")) for one in found], lambda text: _first(_WARP, text))
    known = np.isfinite(init) & (np.abs(init) < 2.0**62)
    launch, shown = _launches(kernel, kernels, block, np.where(known, init, -1.0), device)
    # A block's cycles count from its first scope: values before it are in ns.
    _, chunk = distinct(launch, block)
    earliest = least_of(chunk, ts, int(chunk.max(initial=0)) + 1, np.inf)
    start = np.rint((ts - earliest[chunk]) * rate).astype(np.int64)
    first, row = distinct(chunk, warp)
    origin = int(init[known].min()) if known.any() else 0
    chunk_ns = np.where(known, init - origin, ts * 1000) if known.all() else earliest[chunk] * 1000
    tick = 1000.0 / (rate if mhz is None else np.full(len(rate), float(mhz)))
    names = list(dict.fromkeys(str(one.get("name", "")) for one in found))
    number = {name: index for index, name in enumerate(names)}
    event = np.array([number[str(one.get("name", ""))] for one in found], np.int64)
    begins = least_of(row, start.astype(np.float64), len(first), np.inf)
    rows = WarpRows(
        block[first], warp[first], sm[first], launch[first],
        start_ns=chunk_ns[first] + begins * tick[first],
        end_ns=np.where(np.isfinite(final - after) & known, final - after - origin, np.nan)[first],
        tick_ns=tick[first],
    )  # fmt: skip
    records = Records(row, start, np.rint(dur * rate).astype(np.int64), event, np.full(len(found), Kind.SPAN, np.uint8))
    if not found:
        notes.add("nothing", "no scope of a warp in this file: was it written by Proton's instrumentation, as a trace?")
    return trace(records, rows, dict(enumerate(names)), notes, shown, cycles=True, origin=origin)


def _events(path: str | PathLike[str] | bytes, notes: Notes) -> list[Any]:
    text = path if isinstance(path, bytes) else bounded_reading.read_bytes(Path(path))
    called = "the trace" if isinstance(path, bytes) else str(path)
    data: Any = None
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        data = _cut(text)
        if data is None:
            raise FormatError(f"{called} is not JSON ({error})") from None
        notes.add("cut", "the file ends in the middle of an event: the events before it are shown")
    return trace_events(data, called)


def _cut(text: bytes) -> Any:
    """A truncated file up to its last complete event."""
    end = len(text)
    for _ in range(_ENDINGS):
        end = text.rfind(b"}", 0, end)
        if end < 0:
            return None
        for ending in (b"]}", b"]"):
            try:
                return orjson.loads(text[: end + 1] + ending)
            except orjson.JSONDecodeError:
                continue
    return None


def _placed(one: dict[str, Any]) -> bool:
    pid = one.get("pid")
    return isinstance(pid, str) and _PLACE.search(pid) is not None


def _numbers(rows: Sequence[dict[str, Any]], name: str) -> Float:
    """A field of every row as float64; NaN if it is not a number."""
    values = [row.get(name) for row in rows]
    numeric = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in values]
    return np.array([value if known else np.nan for value, known in zip(values, numeric, strict=True)], np.float64)


def _per_text(texts: Sequence[str], read: Any) -> Int64:
    """A number per text; each distinct text is read once."""
    numbers = {text: read(text) for text in dict.fromkeys(texts)}
    return np.array([numbers[text] for text in texts], np.int64)


def _first(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0


def _places(found: Sequence[dict[str, Any]]) -> tuple[Int64, list[str], Int64, Int64]:
    """(kernel, names of kernels, SM, block) of every event."""
    pids = [str(one["pid"]) for one in found]
    parts = {pid: (str(match[1]), match[2], match[3]) for pid in dict.fromkeys(pids) if (match := _PLACE.search(pid))}
    kernels = list(dict.fromkeys(part[0] for part in parts.values()))
    number = {name: index for index, name in enumerate(kernels)}
    columns = ([number[parts[pid][0]] for pid in pids], *([int(parts[pid][i]) for pid in pids] for i in (1, 2)))
    kernel, sm, block = (np.array(column, np.int64) for column in columns)
    return kernel, [name or "kernel" for name in kernels], sm, block


def _launches(
    kernel: Int64, kernels: Sequence[str], block: Int64, init: Float, device: int
) -> tuple[Int64, list[Launch]]:
    """(launch of every event, the launches): the n-th start of a block belongs to its kernel's n-th launch."""
    order = np.lexsort((init, block, kernel))
    k, b, i = kernel[order], block[order], init[order]
    count, first = np.cumsum(fresh(k, b, i)), heads(k, b)
    repeat: Int64 = count - np.repeat(count[first], np.diff(first, append=len(order)))
    starts, launch = distinct(k, repeat)
    of = np.empty(len(order), np.int64)
    of[order] = launch
    most = most_of(of, block, len(starts), 0)
    rows = zip(k[starts].tolist(), repeat[starts].tolist(), most.tolist(), strict=True)
    return of, [
        Launch(kernels[int(number)], device, nth + 1, 0, (min(largest + 1, 1 << 31), 1, 1))
        for number, nth, largest in rows
    ]
