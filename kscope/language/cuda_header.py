"""Location of kscope.cuh, the CUDA C++ header."""

from __future__ import annotations

from ..errors import MissingError
from ..instrument import registry


def cuda_include() -> str:
    """The folder of kscope.cuh, for a compiler's -I: ``nvcc -I$(python -m kscope include)``.

    Raises:
        MissingError: the installation lacks the header.
    """
    package = registry.folder("cuda")
    if package is None or not (package / "include" / "kscope.cuh").is_file():
        raise MissingError("the frontend of CUDA C++ has no kscope.cuh: reinstall kscope")
    return str(package / "include")
