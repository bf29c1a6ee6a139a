"""Triton and Gluon, 3.6 and later: marks in jit functions, kernels lowered in the compiler's PTX stage.

Marks are emitted while a kernel is traced (emit.py, interpreted.py); compile.py lowers the PTX and keys the caches,
load.py reports loaded modules to the runtime, and inductor.py supports torch.compile.
"""

import triton

from kscope.errors import UnsupportedError

from .version import VERSION

OLDEST = (3, 6)

if VERSION < OLDEST:
    raise UnsupportedError(
        f"triton {triton.__version__} is installed; kscope needs 3.6 or later: pip install -U 'triton>=3.6,<3.10'"
    )

from .frontend import TritonFrontend  # noqa: E402  # after the check

__all__ = ["TritonFrontend"]
