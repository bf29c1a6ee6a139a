"""The CUDA runtime of kscope: driver calls, buffers, streams and clocks."""

from .backend import CudaBackend

__all__ = ["CudaBackend"]
