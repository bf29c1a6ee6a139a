"""Replaces a lowered module's metadata in text and cubin, so that texts which differ only in it are assembled once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from .. import ptx
from ..capture import layout, metadata
from ..capture.model import ModuleMeta
from ..errors import UnsupportedError

_SYMBOL = re.compile(rf"^\.visible \.global \.align 1 \.b8 {layout.META_SYMBOL}\[(\d+)\] = \{{([^}}]*)\}};\n", re.M)
_STAND_IN = b"kscope: the module's metadata"

Made = TypeVar("Made", bound=Any)
"""A dataclass, or None."""


def with_meta(text: str, meta: ModuleMeta, more: int = 0) -> str:
    """A lowered text with other metadata; its symbol keeps its size if there is room, and gets `more` bytes."""
    return _SYMBOL.sub(lambda found: ptx.metadata_symbol(metadata.to_json(meta), int(found[1]) + more), text, count=1)


def in_binary(binary: bytes, before: str, after: str) -> bytes:
    """A binary with other metadata.

    Args:
        binary: assembled from `before`.
        before: a text.
        after: the text with other metadata, see with_meta().

    Raises:
        UnsupportedError: the new metadata is longer than its symbol, or the binary does not contain it exactly
            once.
    """
    old, new = _data(before), _data(after)
    if old == new:
        return binary
    if len(old) != len(new) or binary.count(old) != 1:
        raise UnsupportedError(f"{len(new)} bytes of metadata do not fit into a symbol of {len(old)}")
    return binary.replace(old, new)


def _data(text: str) -> bytes:
    """The bytes of a text's metadata symbol; none without the symbol."""
    found = _SYMBOL.search(text)
    return bytes(map(int, found[2].split(","))).ljust(int(found[1]), b"\0") if found else b""


def assemble_once(text: str, assemble: Callable[[str], Made], *binaries: str) -> Made:
    """assemble(text), where the cached `assemble` is called with the same text for all metadata.

    Args:
        text: PTX.
        assemble: cached; returns a dataclass, or None if it fails.
        binaries: names of the result's fields that contain the module's data.
    """
    found = _SYMBOL.search(text)
    if found is None:
        return assemble(text)
    size = int(found[1])
    data = _data(text)
    stand_in = _STAND_IN.ljust(size, b"\0")
    made = assemble(text[: found.start()] + ptx.metadata_symbol(_STAND_IN, size) + text[found.end() :])
    if not made:
        return made
    before = {name: getattr(made, name) for name in binaries}
    if any(binary.count(stand_in) != 1 for binary in before.values()):
        return assemble(text)
    return replace(made, **{name: binary.replace(stand_in, data) for name, binary in before.items()})
