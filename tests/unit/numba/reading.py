"""Reads metadata from lowered PTX texts."""

from __future__ import annotations

import re
from typing import Any

from kscope.capture import layout, metadata
from kscope.capture.model import ModuleMeta

_BYTES = re.compile(rf"{layout.META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}")
_UID = re.compile(r"B\d*v\d+")


def metadata_of(text: str) -> ModuleMeta:
    """The module's metadata."""
    found = _BYTES.search(text)
    assert found is not None, "the text was not lowered"
    return metadata.from_json(bytes(map(int, found[1].split(","))))


def regions(text: str) -> dict[str, tuple[str | None, str | None]]:
    """Type and place of each region by name."""
    return {region.name: (region.type, region.where) for region in metadata_of(text).regions}


def ptx(library: Any, cc: tuple[int, int] = (9, 0)) -> str:
    """The text that is assembled for a library: its PTX, or with LTO the PTX after it."""
    return str(library.get_lto_ptx(cc=cc) if library._lto else library.get_asm_str(cc=cc))


def normal(text: str) -> str:
    """The text without the numbers that Numba gives functions in the order in which it meets them."""
    return _UID.sub("v", text)
