"""The installed Triton's version."""

import triton

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
"""(major, minor)"""
