"""Reports the sites that a selection finds in a source, with cubins to compare, to `kscope run --dry-run`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kscope.instrument.selection import catalog
from kscope.instrument.selection.catalog import KernelSites, Site
from kscope.lowering import plan
from kscope.machine_code.elf import is_elf

from . import assembler
from .select import MarkedSource

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_MEMORY = "CUPY_CACHE_IN_MEMORY"
_thread = threading.local()


@contextmanager
def compiling(marked: MarkedSource | None) -> Generator[None]:
    """In a dry run: report these sites for the source that this thread compiles, and bypass CuPy's disk cache."""
    if not catalog.is_listing():
        yield
        return
    before, _thread.sites = os.environ.get(_MEMORY), {} if marked is None else marked.sites
    os.environ[_MEMORY] = "1"
    try:
        yield
    finally:
        _thread.sites = {}
        if before is None:
            del os.environ[_MEMORY]
        else:
            os.environ[_MEMORY] = before


def report(frontend: str, text: str, lowered: bytes, arch: str | None, flags: tuple[str, ...]) -> None:
    """In a dry run: report the kernels of a PTX text that was lowered."""
    if not catalog.is_listing() or ".entry" not in text:  # CuPy compiles an empty source to get a version
        return
    found: dict[str, tuple[Site, ...]] = getattr(_thread, "sites", {})
    build = None if arch is None else partial(_built, text, lowered, arch, flags)
    for kernel, sites in (found or dict.fromkeys(_ENTRY.findall(text), ())).items():
        catalog.add(KernelSites(frontend, kernel, arch or "PTX", sites, build))


def _built(text: str, lowered: bytes, arch: str, flags: tuple[str, ...], folder: Path) -> tuple[Path, Path] | None:
    """Write two cubins, without and with the marks; None without an assembler."""
    plain = assembler.assemble(plan.without_marks(text), arch, flags)
    if plain is None or not is_elf(lowered):
        return None
    return catalog.write_cubins(folder, plain.cubin, lowered)
