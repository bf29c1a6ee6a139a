"""The CUDA runtime of kscope: driver calls, buffers, streams and clocks."""

from __future__ import annotations

from .backend import CudaBackend

__all__ = ["CudaBackend"]
