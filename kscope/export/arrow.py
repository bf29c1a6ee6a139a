"""Arrow files, uncompressed, so that they can be memory-mapped."""

from __future__ import annotations

from .columnar import pyarrow
from .columnar import write_ipc as write

needs = pyarrow
__all__ = ["needs", "write"]
