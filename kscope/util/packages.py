"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingError
from .text import install_command


def import_duckdb() -> Any:
    """The module duckdb.

    Raises:
        MissingError: it is not installed.
    """
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise MissingError(f"kscope query needs DuckDB: {install_command('query')}") from error


def import_pandas(what: str) -> Any:
    """The module pandas.

    Args:
        what: what needs it, for the error.

    Raises:
        MissingError: it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingError(f"{what} needs pandas: {install_command('pandas')}") from error
    return pandas
