"""Location of kscope.cuh, the CUDA C++ header."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..errors import MissingError


def cuda_include() -> str:
    """The folder of kscope.cuh, for a compiler's -I: ``nvcc -I$(python -m kscope include)``.

    Raises:
        MissingError: the installation lacks the header.
    """
    spec = find_spec("kscope_cuda")
    folder = Path(spec.origin).parent / "include" if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / "kscope.cuh").is_file():
        raise MissingError("the package kscope_cuda has no kscope.cuh: reinstall kscope")
    return str(folder)
