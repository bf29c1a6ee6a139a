"""The frontends that joined the contract: every ``frontend_<name>.py`` of this folder.

What lives here: finding them. What does not: any of them.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

NAMES = sorted(path.stem.removeprefix("frontend_") for path in Path(__file__).parent.glob("frontend_*.py"))

COMPILERS = [name for name in NAMES if "def compile(" in Path(__file__).with_name(f"frontend_{name}.py").read_text()]


def absent(module: ModuleType, kernels: tuple[str, ...]) -> str | None:
    """Why a frontend does not have one of these kernels, or None."""
    reasons = [f"{kernel}: {module.ABSENT[kernel]}" for kernel in kernels if kernel in module.ABSENT]
    missing = [kernel for kernel in kernels if kernel not in module.KERNELS and kernel not in module.ABSENT]
    assert not missing, f"{module.__name__} has no kernel {missing}: write it, or say in ABSENT why the DSL cannot"
    return "; ".join(reasons) or None
