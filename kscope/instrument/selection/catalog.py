"""Sites: the places that a selection marks. Frontends list them, with their kernels, during listing().

with listing() as found:
    ...compile kernels...
found[0].sites
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...capture.model import Problem
from .auto import Selection


@dataclass(frozen=True)
class Site:
    """A place that a selection marks.

    Attributes:
        region: the region's name.
        what: kind of operation, or "lines".
        where: file:line, or file:first-last.
        loops: file:line of the enclosing loops, outermost first. Each execution of the innermost one's body is one
            record per recording lane.
        group: the warps that execute it, in warp-specialized kernels.
        operations: number of operations between the marks.
    """

    region: str
    what: str
    where: str
    loops: tuple[str, ...] = ()
    group: str = ""
    operations: int = 1


@dataclass(frozen=True)
class KernelSites:
    """A compiled kernel and its sites.

    Attributes:
        frontend: the frontend's name.
        kernel: the kernel's name.
        target: architecture, such as sm_90.
        sites: in order of the code.
        build: writes two cubins, without and with the marks, into a folder and returns their paths, or None if the
            frontend has none. The caller owns the files.
        symbol: the kernel's name in the cubins, if different.
    """

    frontend: str
    kernel: str
    target: str
    sites: tuple[Site, ...]
    build: Callable[[Path], tuple[Path, Path] | None] | None = None
    symbol: str = ""


class Sites:
    """The sites in the functions of a language, per selection: equal names of different selections are distinct."""

    def __init__(self) -> None:
        self._found: dict[Selection, set[Site]] = {}
        self._missed: dict[Selection, dict[Problem, None]] = {}

    def add(self, selection: Selection, sites: Iterable[Site]) -> None:
        """Add sites that the selection marks."""
        self._found.setdefault(selection, set()).update(sites)

    def miss(self, selection: Selection, function: str, where: str, reason: str) -> None:
        """Add a problem: no statement of a kind could be marked in the function."""
        self.note(selection, Problem("nothing", f"auto=: nothing is marked in {function} ({where}): {reason}"))

    def note(self, selection: Selection, problem: Problem) -> None:
        """Add a problem."""
        self._missed.setdefault(selection, {})[problem] = None

    def missed(self, selection: Selection) -> tuple[Problem, ...]:
        """The selection's problems."""
        return tuple(self._missed.get(selection, ()))

    def of(self, selection: Selection, regions: Iterable[str]) -> tuple[Site, ...]:
        """The selection's sites with these region names, in source order."""
        names = set(regions)
        return tuple(sorted((site for site in self._found.get(selection, ()) if site.region in names), key=_place))


def _place(site: Site) -> tuple[str, int, str]:
    file, _, lines = site.where.rpartition(":")
    return file, int(lines.partition("-")[0]), site.region


_lists: list[list[KernelSites]] = []


@contextmanager
def listing() -> Generator[list[KernelSites]]:
    """Collect the kernels compiled in the `with`, in order. Frontends bypass their caches."""
    found: list[KernelSites] = []
    _lists.append(found)
    try:
        yield found
    finally:
        _lists.remove(found)


def is_listing() -> bool:
    """True if listing() is active."""
    return bool(_lists)


def add(kernel: KernelSites) -> None:
    """Add a compiled kernel to the active listings."""
    for found in _lists:
        found.append(kernel)


def write_cubins(folder: Path, plain: bytes, marked: bytes) -> tuple[Path, Path]:
    """Write the cubins of KernelSites.build."""
    paths = folder / "plain.cubin", folder / "marked.cubin"
    for path, code in zip(paths, (plain, marked), strict=True):
        path.write_bytes(code)
    return paths
