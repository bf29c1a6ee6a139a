"""Feather: Arrow files compressed with lz4, as pandas writes them."""

from __future__ import annotations

from typing import BinaryIO

from ..tracedata.data import TraceData
from ..util.progress import Step
from .columnar import pyarrow, write_ipc

needs = pyarrow


def write(trace: TraceData, file: BinaryIO, step: Step) -> None:
    """Write the whole file."""
    write_ipc(trace, file, step, "lz4")
