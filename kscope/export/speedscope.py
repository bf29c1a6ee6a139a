"""speedscope's JSON: a profile per kernel in ns summed over all warps, and one of problems.

Format: file-format-spec.ts of speedscope 1.25.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import orjson

from .._version import __version__
from ..tracedata.data import TraceData
from ..tracedata.info import info
from ..util.json_values import clean
from ..util.progress import Step
from .stacks import Node, stacks

_DIGITS = 16
"""Longer line numbers do not fit a double."""


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the file."""
    nodes = stacks(trace)
    frames: dict[tuple[str, str | None], int] = {}
    paths: list[list[int]] = []
    for node in nodes:
        number = frames.setdefault((node.name, node.where), len(frames))
        paths.append([*(paths[node.parent] if node.parent >= 0 else ()), number])
    profiles = [_profile(nodes, paths, kernel) for kernel, node in enumerate(nodes) if node.parent < 0 and node.count]
    if trace.problems:
        problems = [frames.setdefault((f"{one.kind}: {one.text}", None), len(frames)) for one in trace.problems]
        stacks_of = [[frame] for frame in problems]
        profiles.append(_sampled("problems of this recording", "none", stacks_of, [1] * len(problems)))
    whole = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"kscope@{__version__}",
        "name": f"{', '.join(clean(name) for name in trace.kernels[:4])}: {info(trace).line}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(name, where) for name, where in frames]},
        "profiles": profiles,
    }
    file.write(orjson.dumps(whole))
    step(len(trace))


def _frame(name: str, where: str | None) -> dict[str, Any]:
    path, _, line = (where or "").rpartition(":")
    place = {"file": clean(path), "line": int(line)} if path and line.isdecimal() and len(line) < _DIGITS else {}
    return {"name": clean(name), **place}


def _profile(nodes: tuple[Node, ...], paths: list[list[int]], kernel: int) -> dict[str, Any]:
    mine = [(path, round(node.ns)) for node, path in zip(nodes, paths, strict=True) if node.kernel == kernel]
    rows = [(path, min(ns, 1 << 53)) for path, ns in mine if ns]
    return _sampled(nodes[kernel].name, "nanoseconds", [path for path, _ in rows], [ns for _, ns in rows])


def _sampled(name: str, unit: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    total = sum(weights)
    end = total if total < 1 << 53 else float(total)  # only with damaged clocks
    shape = {"type": "sampled", "name": clean(name), "unit": unit, "startValue": 0, "endValue": end}
    return {**shape, "samples": samples, "weights": weights}
