"""Python strings and numbers made valid UTF-8 and JSON."""

from __future__ import annotations

from typing import Any

_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1


def clean(name: str) -> str:
    """The name as valid UTF-8: lone surrogates, as in undecodable paths, become question marks."""
    return name.encode("utf-8", "replace").decode()


def single_line(name: str) -> str:
    """The name on one line: unprintable characters become spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in clean(name))


def dump_json(value: Any, *, indent: bool = False) -> bytes:
    """Serialize any value as JSON.

    Args:
        value: strings are made valid UTF-8, integers clamped to 64 bits, NaN becomes null, and objects that JSON
            cannot represent become strings.
        indent: indent by two spaces.

    Returns:
        The JSON as UTF-8.
    """
    import orjson  # not loaded by some commands, like numpy: loading them takes longer than the answer

    return orjson.dumps(
        _representable(value), _text, orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_INDENT_2 if indent else 0)
    )


def _representable(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, _MIN_INT), _MAX_INT)
    if isinstance(value, dict):
        return {_text(key): _representable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_representable(one) for one in value]
    if value is None or isinstance(value, (bool, float)):
        return value
    import numpy as np

    return value if isinstance(value, (np.generic, np.ndarray)) else _text(value)


def _text(value: object) -> str:
    return clean(str(value))
