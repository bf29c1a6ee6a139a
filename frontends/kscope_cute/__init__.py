"""CuTe DSL (nvidia-cutlass-dsl 4.4 and later): `with kscope.region("load"):` in @cute.kernel and @cute.jit functions.

Importing this package raises UnsupportedError if the installed CuTe DSL is older than 4.4.
"""

import cutlass

from kscope.errors import UnsupportedError

OLDEST = (4, 4)

if tuple(int(part) for part in cutlass.__version__.split(".")[:2]) < OLDEST:
    raise UnsupportedError(
        f"nvidia-cutlass-dsl {cutlass.__version__} is installed; kscope needs 4.4 or later: "
        "pip install -U 'nvidia-cutlass-dsl>=4.4,<5'"
    )

from .frontend import CuteFrontend  # noqa: E402  # imports names that older versions lack

__all__ = ["CuteFrontend"]
