"""The installed Triton's version."""

from __future__ import annotations

import triton

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""(major, minor)"""
