"""The metadata of the modules in a core dump."""

from __future__ import annotations

from ...capture.model import ModuleMeta
from ...instrument import registry
from ...machine_code import tools


def describe(code: bytes) -> tuple[ModuleMeta, ...]:
    """The metadata in a module's cubin, also of code that nvcc built; empty without marks."""
    return tools.modules_in(code) or registry.frontend("cuda").described(code)
