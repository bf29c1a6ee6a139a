"""Where kscope.cuh is: the header of CUDA C++, for a compiler's -I.

What lives here: finding it. What does not: the header, and what writes it (the package kscope_cuda).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..errors import MissingError


def cuda_include() -> str:
    """The folder of kscope.cuh: ``nvcc -I$(python -m kscope include)``, or an option of any other compiler.

    Raises MissingError where the installation lacks it.
    """
    spec = find_spec("kscope_cuda")
    folder = Path(spec.origin).parent / "include" if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / "kscope.cuh").is_file():
        raise MissingError("kscope.cuh is not where the package kscope_cuda should have it: install kscope again")
    return str(folder)
