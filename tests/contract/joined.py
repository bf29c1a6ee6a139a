"""The frontends that joined the contract: every ``frontend_<name>.py`` in a folder ``contract`` on the path."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import contract
import pytest
from contract.programs import Program

from kscope.instrument import registry

_TEXTS = {
    path.stem.removeprefix("frontend_"): path.read_text(encoding="utf-8")
    for folder in contract.__path__
    for path in sorted(Path(folder).glob("frontend_*.py"))
}
COMPILERS = [name for name, text in _TEXTS.items() if "def compile(" in text]
ON_GPU = [name for name, text in _TEXTS.items() if "NEEDS_GPU = True" in text]
"""Known from the text alone: to import a frontend is to import its DSL."""
ARCHITECTURES = (80, 90, 100)
OURS = ("kscope", "contract", "ptxvm")


def load(name: str) -> ModuleType:
    """The dialect's module. Skips if its DSL is not installed; fails if a module of kscope is missing."""
    try:
        return import_module(f"contract.frontend_{name}")
    except ImportError as error:
        if (error.name or "").startswith(OURS):
            raise
        pytest.skip(str(error))


def absent(module: ModuleType, program: Program) -> str | None:
    """Reason why a frontend lacks the program, or one of its kernels; None if it has it."""
    reasons = [f"{name}: {module.ABSENT[name]}" for name in (*program.kernels, program.name) if name in module.ABSENT]
    missing = [kernel for kernel in program.kernels if kernel not in {**module.KERNELS, **module.ABSENT}]
    assert not missing, f"{module.__name__} has no kernel {missing}: write it, or say in ABSENT why the DSL cannot"
    return "; ".join(reasons) or None


def least(module: ModuleType, program: Program) -> int:
    """The oldest architecture that runs the program in this DSL."""
    later: dict[str, int] = getattr(module, "LATER", {})
    return max(later.get(kernel, ARCHITECTURES[0]) for kernel in program.kernels)


@lru_cache(256)
def compiled(name: str, program: Program, arch: int) -> tuple[str, ...]:
    """The program's kernels as PTX with the program's options, compiled without a GPU."""
    module = import_module(f"contract.frontend_{name}")
    if program.state == "plain":
        return tuple(module.compile(program, arch))
    frontend = registry.frontend(module.FRONTEND)
    frontend.enable(program.recording)
    try:
        return tuple(module.compile(program, arch))
    finally:
        frontend.disable()
