"""Feather: an Arrow file, compressed as pandas does it.

What lives here: the suffix's module. What does not: the columns (columnar.py).
"""

from __future__ import annotations

from typing import BinaryIO

from ..trace import Trace
from .columnar import pyarrow, write_ipc
from .progress import Step

needs = pyarrow


def write(trace: Trace, file: BinaryIO, step: Step) -> None:
    """Write the whole file."""
    write_ipc(trace, file, step, "lz4")
