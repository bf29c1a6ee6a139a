"""Values of a capture's head, checked."""

from __future__ import annotations

from typing import Any

from ..errors import FormatError


def list_of(head: dict[str, Any], name: str) -> list[Any]:
    """A list of a head. Raises FormatError."""
    value = head.get(name)
    if not isinstance(value, list):
        raise FormatError(f"invalid head: {name} is {str(value)[:60]}, expected a list")
    return value


def number(head: dict[str, Any], name: str, least: int, most: int) -> int:
    """A whole number of a head. Raises FormatError."""
    value = head.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FormatError(f"invalid head: {name} is {str(value)[:60]}, expected {least} to {most}")
    return value
