"""Names that CuPy keeps to itself, and that kscope uses: each is asked for here.

What lives here: fetching one, and the error that names the one which is missing. What does not: what is done with
them (compiling.py, loading.py, jit.py).
"""

from __future__ import annotations

from typing import Any

import cupy

from kscope.errors import UnsupportedError


def fetch(owner: Any, name: str) -> Any:
    """The attribute of a module or object of CuPy's."""
    return getattr(owner, name)


def check(owner: Any, *names: str) -> None:
    """Raises UnsupportedError for the first of the names that this CuPy lacks."""
    for name in names:
        if not hasattr(owner, name):
            raise UnsupportedError(
                f"cupy {cupy.__version__} has no {owner.__name__}.{name}, which kscope needs to prepare kernels: "
                "CuPy 14 has it: pip install 'cupy-cuda13x>=14,<15', or cupy-cuda12x"
            )
