"""Parquet: the trace's columns, row groups by launch."""

from __future__ import annotations

from .columnar import pyarrow
from .columnar import write_parquet as write

needs = pyarrow
__all__ = ["needs", "write"]
