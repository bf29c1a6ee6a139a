"""The frontends that joined the contract: every ``frontend_<name>.py`` of this folder.

What lives here: finding them. What does not: any of them.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

_TEXTS = {
    path.stem.removeprefix("frontend_"): path.read_text()
    for path in sorted(Path(__file__).parent.glob("frontend_*.py"))
}
NAMES = list(_TEXTS)
COMPILERS = [name for name, text in _TEXTS.items() if "def compile(" in text]
ON_GPU = [name for name, text in _TEXTS.items() if "NEEDS_GPU = True" in text]
"""Known from the text alone: to import a frontend is to import its DSL."""


def absent(module: ModuleType, kernels: tuple[str, ...]) -> str | None:
    """Why a frontend does not have one of these kernels, or None."""
    reasons = [f"{kernel}: {module.ABSENT[kernel]}" for kernel in kernels if kernel in module.ABSENT]
    missing = [kernel for kernel in kernels if kernel not in module.KERNELS and kernel not in module.ABSENT]
    assert not missing, f"{module.__name__} has no kernel {missing}: write it, or say in ABSENT why the DSL cannot"
    return "; ".join(reasons) or None
