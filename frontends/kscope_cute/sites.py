"""What a selection finds in modules that are compiled now, for who lists it: sites, and the code that they cost.

What lives here: noting them, and a tag for CuTe's caches, which serve nothing meanwhile. What does not: the list
(kscope/selection/catalogue.py), finding sites (selected.py).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from kscope.capture.model import ModuleMeta
from kscope.instrument.selection import catalogue
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalogue import Listed, Sites

_TARGET = re.compile(r"^\.target\s+(\w+)", re.M)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_times = itertools.count()


def tag() -> str:
    """Differs each time that somebody lists; "" where nobody does."""
    return f" listed {os.getpid()} {next(_times)}" if catalogue.wanted() else ""


def note(
    meta: ModuleMeta, text: str, marked: bytes, sites: Sites, selection: Selection, plain: Callable[[], bytes]
) -> None:
    """A module was lowered: its kernels are listed, where somebody lists. plain: its cubin without marks."""
    found = sites.of(selection, (region.name for region in meta.regions))
    if not catalogue.wanted():
        return

    def build(folder: Path) -> tuple[Path, Path]:
        paths = folder / "plain.cubin", folder / "marked.cubin"
        for path, code in zip(paths, (plain(), marked), strict=True):
            path.write_bytes(code)
        return paths

    target = _TARGET.search(text)
    symbols = _ENTRY.findall(text)
    for number, kernel in enumerate(meta.kernels):
        symbol = symbols[number] if len(symbols) == len(meta.kernels) else ""
        catalogue.note(Listed("cute", kernel.name, target[1] if target else "?", found, build, symbol))
