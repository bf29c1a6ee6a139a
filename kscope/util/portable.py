"""Names and values as files can carry them: Python's texts and numbers hold more than UTF-8 and JSON do.

What lives here: what every format needs. What does not: quoting, which is each format's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def clean(name: str) -> str:
    """A name as UTF-8: a lone surrogate, as a path's bytes that are no UTF-8 become, is a question mark."""
    return name.encode("utf-8", "replace").decode()


def single_line(name: str) -> str:
    """A name on one line, for formats of lines: what is not to be seen becomes a space."""
    return "".join(letter if letter.isprintable() else " " for letter in clean(name))


def dump_json(value: Any, *, indent: bool = False) -> bytes:
    """The value as JSON, whatever is in it: texts clean, numbers within 64 bits, NaN as null, and what JSON has no word
    for as text."""
    return orjson.dumps(_carried(value), _text, orjson.OPT_SERIALIZE_NUMPY | (orjson.OPT_INDENT_2 if indent else 0))


def _carried(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(value, _LEAST), _MOST)
    if isinstance(value, dict):
        return {_text(key): _carried(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_carried(one) for one in value]
    if value is None or isinstance(value, (bool, float, np.generic, np.ndarray)):
        return value
    return _text(value)


def _text(value: object) -> str:
    return clean(str(value))
