"""The names that a kernel needs under torch.compile, in a module whose name starts with `triton`.

Inductor copies the source of user kernels into generated files and imports only names from modules of
Triton's own.
"""

from __future__ import annotations


def install() -> None:
    """Nothing to do without torch."""


def remove() -> None:
    """Inverse of install()."""
