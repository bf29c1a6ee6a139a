"""The texts of sources without a file that frontends have compiled, so that stall samples are shown beside them."""

from __future__ import annotations

_MOST_TEXTS, _MOST_BYTES = 1 << 10, 1 << 20
"""Texts that are kept, and characters of one."""
_texts: dict[tuple[str, str], None] = {}


def keep(name: str, text: str) -> None:
    """Remember a text that was compiled under a name; several may share it."""
    if len(text) <= _MOST_BYTES:
        _texts.pop((name, text), None)
        _texts[name, text] = None
        if len(_texts) > _MOST_TEXTS:
            _texts.pop(next(iter(_texts)))


def kept_texts(name: str) -> list[str]:
    """The texts of a name, oldest first."""
    return [text for one, text in _texts if one == name]
