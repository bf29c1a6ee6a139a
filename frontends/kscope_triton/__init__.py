"""Triton and Gluon, 3.6 and later: marks in jit functions, kernels lowered in the compiler's PTX stage.

The parts: placing marks while a kernel is traced (placing.py, interpreted.py), lowering its PTX and keeping the caches
apart (pipeline.py), telling the runtime about loaded modules (loading.py), torch.compile (inductor.py).
"""

from __future__ import annotations

import triton

from kscope.errors import UnsupportedError

OLDEST = (3, 6)

if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST:
    raise UnsupportedError(
        f"triton {triton.__version__} is installed; kscope needs 3.6 or later: pip install -U 'triton>=3.6,<3.10'"
    )

from .frontend import TritonFrontend  # noqa: E402  # after the check

__all__ = ["TritonFrontend"]
