"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingError
from .text import install_command


def needed(module: str, reason: str, extra: str) -> Any:
    """Import an optional package.

    Args:
        module: its name.
        reason: the feature that needs it, for the error: "to_pandas() needs pandas".
        extra: kscope's extra that installs it.

    Raises:
        MissingError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingError(f"{reason}: {install_command(extra)}") from error


def import_pandas(what: str) -> Any:
    """The module pandas. what: the feature that needs it. Raises MissingError."""
    return needed("pandas", f"{what} needs pandas", "pandas")
