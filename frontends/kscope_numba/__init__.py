"""Numba CUDA (numba-cuda 0.24 and later): `with kscope.region("load"):` in kernels and device functions."""

from .frontend import NumbaFrontend, init, teach

__all__ = ["NumbaFrontend", "init", "teach"]
