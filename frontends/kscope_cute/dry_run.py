"""Entries of the selection catalog for compiled modules: sites, and builds with and without their marks."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from kscope.capture.model import ModuleMeta
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection
from kscope.instrument.selection.catalog import KernelSites, Sites

from .source_comments import ENTRY

_TARGET = re.compile(r"^\.target\s+(\w+)", re.M)
_listings = itertools.count()


def cache_tag() -> str:
    """A suffix for CuTe's cache keys: unique during a listing, so that everything is compiled; else ""."""
    return f" listed {os.getpid()} {next(_listings)}" if catalog.is_listing() else ""


def note(
    meta: ModuleMeta,
    text: str,
    marked: bytes,
    sites: Sites,
    selection: Selection,
    build_plain: Callable[[], bytes],
) -> None:
    """Add the kernels of a lowered module to the catalog, during a listing. build_plain: its cubin without marks."""
    found = sites.of(selection, (region.name for region in meta.regions))
    if not catalog.is_listing():
        return

    def build(folder: Path) -> tuple[Path, Path]:
        return catalog.write_cubins(folder, build_plain(), marked)

    target = _TARGET.search(text)
    symbols = ENTRY.findall(text)
    for number, kernel in enumerate(meta.kernels):
        symbol = symbols[number] if len(symbols) == len(meta.kernels) else ""
        catalog.add(KernelSites("cute", kernel.name, target[1] if target else "?", found, build, symbol))
