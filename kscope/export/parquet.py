"""Parquet: the trace's columns, row groups by launch.

What lives here: the suffix's module. What does not: the columns (columnar.py).
"""

from __future__ import annotations

from .columnar import pyarrow
from .columnar import write_parquet as write

needs = pyarrow
__all__ = ["needs", "write"]
