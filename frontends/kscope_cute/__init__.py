"""CuTe DSL (nvidia-cutlass-dsl), 4.4 and later: marks in @cute.kernel and @cute.jit functions.

The parts: placing marks while a kernel is traced (placing.py), lowering the PTX of modules with marks and putting the
binary back (pipeline.py, assembling.py), where marks stand in the source (places.py), what a binary says of registers
(cubin.py), telling the runtime about loaded libraries (loading.py, ffi.py). What lives here: the check of the version,
which comes before the parts: they import what an older one does not have. What does not: instructions (kscope/ptx/).

Importing this raises UnsupportedError when the installed CuTe DSL is older than 4.4.
"""

from __future__ import annotations

import cutlass

from kscope.errors import UnsupportedError

OLDEST = (4, 4)

if tuple(int(part) for part in cutlass.__version__.split(".")[:2]) < OLDEST:
    raise UnsupportedError(
        f"nvidia-cutlass-dsl {cutlass.__version__} is installed; kscope needs 4.4 or later: "
        "pip install -U 'nvidia-cutlass-dsl>=4.4,<5'"
    )

from .frontend import CuteFrontend  # noqa: E402  # after the check

__all__ = ["CuteFrontend"]
