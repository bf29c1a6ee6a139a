"""What a selection finds in sources that are compiled now, for who lists it: sites, and the code that they cost."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kscope.instrument.selection import catalogue
from kscope.instrument.selection.catalogue import Listed, Site
from kscope.lowering import plan

from . import assembling
from .lines import Marked

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_MEMORY = "CUPY_CACHE_IN_MEMORY"
_now = threading.local()


@contextmanager
def sites(marked: Marked | None) -> Generator[None]:
    """While somebody lists, this thread compiles a source with these sites, and no cache on disk serves or keeps it."""
    if not catalogue.wanted():
        yield
        return
    before, _now.sites = os.environ.get(_MEMORY), {} if marked is None else marked.sites
    os.environ[_MEMORY] = "1"
    try:
        yield
    finally:
        _now.sites = {}
        if before is None:
            del os.environ[_MEMORY]
        else:
            os.environ[_MEMORY] = before


def note(frontend: str, text: str, lowered: bytes, arch: str | None, flags: tuple[str, ...]) -> None:
    """A PTX was lowered to a cubin: its kernels are listed, where somebody lists."""
    if not catalogue.wanted() or ".entry" not in text:  # CuPy compiles an empty source to learn a version
        return
    found: dict[str, tuple[Site, ...]] = getattr(_now, "sites", {})
    build = None if arch is None else partial(_built, text, lowered, arch, flags)
    for kernel, its in (found or dict.fromkeys(_ENTRY.findall(text), ())).items():
        catalogue.note(Listed(frontend, kernel, arch or "PTX", its, build))


def _built(text: str, lowered: bytes, arch: str, flags: tuple[str, ...], folder: Path) -> tuple[Path, Path] | None:
    """Two cubins in a folder, without and with the marks; None without an assembler."""
    plain = assembling.assemble(plan.without_marks(text), arch, flags)
    if plain is None or not lowered.startswith(b"\x7fELF"):
        return None
    paths = folder / "plain.cubin", folder / "marked.cubin"
    for path, code in zip(paths, (plain.cubin, lowered), strict=True):
        path.write_bytes(code)
    return paths
