"""Folded stacks, `kernel;region;region 1234`, for flamegraph.pl, inferno and speedscope: ns, summed over all warps."""

from __future__ import annotations

from typing import BinaryIO

from ..tracedata.data import TraceData
from ..util.json_values import single_line
from ..util.progress import Step
from .stacks import stacks


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the file. Semicolons in names become colons."""
    paths: list[str] = []
    for node in stacks(trace):
        name = single_line(node.name).replace(";", ":")
        paths.append(f"{paths[node.parent]};{name}" if node.parent >= 0 else name)
        if round(node.ns):
            file.write(f"{paths[-1]} {round(node.ns)}\n".encode())
    step(len(trace))
