"""A lowered module's metadata, replaced in text and cubin: texts that differ only in it are assembled once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from .. import ptx
from ..capture import layout, metadata
from ..capture.model import ModuleMeta

_SYMBOL = re.compile(rf"^\.visible \.global \.align 1 \.b8 {layout.META_SYMBOL}\[(\d+)\] = \{{([^}}]*)\}};\n", re.M)
_STAND_IN = b"kscope: the module's metadata"

Made = TypeVar("Made", bound=Any)
"""A dataclass, or None."""


def with_meta(text: str, meta: ModuleMeta) -> str:
    """A lowered text with other metadata; its symbol keeps its size if there is room."""
    return _SYMBOL.sub(lambda found: ptx.metadata_symbol(metadata.to_json(meta), int(found[1])), text, count=1)


def assembled(text: str, assemble: Callable[[str], Made], *binaries: str) -> Made:
    """assemble(text), where the cached `assemble` is called with the same text whatever the metadata is.

    Args:
        text: PTX.
        assemble: cached; returns a dataclass, or None if it fails.
        binaries: names of the result's fields that contain the module's data.
    """
    found = _SYMBOL.search(text)
    if found is None:
        return assemble(text)
    size = int(found[1])
    data = bytes(map(int, found[2].split(","))).ljust(size, b"\0")
    stand_in = _STAND_IN.ljust(size, b"\0")
    made = assemble(text[: found.start()] + ptx.metadata_symbol(_STAND_IN, size) + text[found.end() :])
    if not made:
        return made
    before = {name: getattr(made, name) for name in binaries}
    if any(binary.count(stand_in) != 1 for binary in before.values()):
        return assemble(text)
    return replace(made, **{name: binary.replace(stand_in, data) for name, binary in before.items()})
