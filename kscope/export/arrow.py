"""An Arrow file, not compressed, so that it can be mapped into memory.

What lives here: the suffix's module. What does not: the columns (columnar.py).
"""

from __future__ import annotations

from .columnar import pyarrow
from .columnar import write_ipc as write

needs = pyarrow
__all__ = ["needs", "write"]
