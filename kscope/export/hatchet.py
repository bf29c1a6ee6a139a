"""Hatchet's JSON, as Proton writes it: `proton-viewer -m cycles FILE`, `-m normalized_cycles`, `-m time/us`.

    cycles             SM cycles of all recording warps
    normalized_cycles  the same, divided by the number of these warps in all launches: the mean per warp
    time (ns), count

The viewer sums over children, so frames have exclusive numbers.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import orjson

from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..util.json_values import clean
from ..util.progress import Step
from .stacks import Node, stacks

_FASTEST_KHZ = 1e8
"""Faster clocks are damage."""


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the file: below the root also problems and caveats, as frames without time."""
    frames: list[dict[str, Any]] = []
    nodes = stacks(trace)
    # the viewer sums only metrics of the root
    cycles = {"cycles": 0, "normalized_cycles": 0.0} if not all(node.timer for node in nodes) else {}
    root = _frame("ROOT", {"time (ns)": 0.0, "count": 0, **cycles})
    device = str(trace.devices[0]) if len(trace.devices) == 1 else ""
    for node in nodes:
        frames.append(_frame(clean(node.name), _metrics(node, device), _place(node.where)))
        (root if node.parent < 0 else frames[node.parent])["children"].append(frames[-1])
    root["children"] = [frame for frame in root["children"] if frame["metrics"]["count"]]
    for text in (*filter(None, [info(trace).caveat]), *(f"{one.kind}: {one.text}" for one in trace.problems)):
        root["children"].append(_frame(clean(text), {"time (ns)": 0.0, "count": 0, **cycles}))
    file.write(orjson.dumps([root, {"CUDA": _devices(trace)}]))
    step(len(trace))


def _frame(name: str, metrics: dict[str, Any], place: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function", **(place or {})}, "metrics": metrics, "children": []}


def _place(where: str | None) -> dict[str, Any]:
    """The source line of a region's first mark."""
    file, _, line = clean(where or "").rpartition(":")
    return {"file": file, "line": int(line)} if file and line.isascii() and line.isdecimal() and len(line) < 10 else {}


def _metrics(node: Node, device: str) -> dict[str, Any]:
    metrics: dict[str, Any] = {"time (ns)": node.ns, "count": node.count, "device_id": device, "device_type": "CUDA"}
    if not node.timer:
        metrics |= {"cycles": node.ticks, "normalized_cycles": node.ticks / max(1, node.warps)}
    return metrics


def _devices(trace: TraceData) -> dict[str, Any]:
    """Clock rate of each device's SMs, in kHz."""
    warps = trace.warps
    table: dict[str, Any] = {}
    for index, ordinal in enumerate(trace.devices):
        pace = warps.tick_ns[(warps.device == index) & ~warps.timer]
        rate = 1e6 / float(np.median(pace)) if len(pace) and pace.all() else 0.0
        table[str(ordinal)] = {"clock_rate": round(rate)} if 1 <= rate < _FASTEST_KHZ else {}
    return table
