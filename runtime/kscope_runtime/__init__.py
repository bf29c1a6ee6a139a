"""The metal: driver calls, buffers, streams and clocks of CUDA devices.

What lives here: the CudaBackend. What does not: instructions that a user's kernel runs (kscope/ptx/),
what the words mean (kscope/layout.py, kscope/decoding).
"""

from __future__ import annotations

from .backend import CudaBackend

__all__ = ["CudaBackend"]
