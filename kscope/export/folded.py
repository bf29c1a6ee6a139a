"""Folded stacks, `kernel;region;region 1234`, for flamegraph.pl, inferno and speedscope; ns of all lanes together.

What lives here: the lines. What does not: the numbers (stacks.py).
"""

from __future__ import annotations

from typing import BinaryIO

from ..tracedata.data import TraceData
from ..util.portable import single_line
from ..util.progress import Step
from .stacks import stacks


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the whole file. A semicolon in a name, which would part it, becomes a colon."""
    paths: list[str] = []
    for node in stacks(trace):
        name = single_line(node.name).replace(";", ":")
        paths.append(f"{paths[node.parent]};{name}" if node.parent >= 0 else name)
        if round(node.ns):
            file.write(f"{paths[-1]} {round(node.ns)}\n".encode())
    step(len(trace))
