"""CuPy 14: regions in RawKernel, RawModule, cupyx.jit.rawkernel, ElementwiseKernel and ReductionKernel."""

from .frontend import CupyFrontend, teach

__all__ = ["CupyFrontend", "teach"]
