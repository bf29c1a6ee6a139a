"""What a selection finds in the kernels of a program: sites, noted by frontends while somebody lists them.

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
    """One place where a region is marked that nobody annotated.

    what: the kind of operation, or "lines". where: file:line, or file:first-last, as found. loops: file:line of the
    loops around it, the outermost first; each execution of the innermost one's body is one record per recording lane.
    group: of warps that it is for, where warps are specialised. operations: how many lie between the marks.
    """

    region: str
    what: str
    where: str
    loops: tuple[str, ...] = ()
    group: str = ""
    operations: int = 1


@dataclass(frozen=True)
class Listed:
    """A kernel that was compiled for `target` (sm_90), with its sites in order of the code.

    symbol: what its cubins call it, where that is another name. build: writes two cubins, without and with the marks,
    into a folder, and returns their paths; None where the frontend has none. Files are the caller's.
    """

    frontend: str
    kernel: str
    target: str
    sites: tuple[Site, ...]
    build: Callable[[Path], tuple[Path, Path] | None] | None = None
    symbol: str = ""


class Sites:
    """What was marked in the functions of a language, by selection: a region of the same name that another one
    marked, elsewhere, is none of this one's."""

    def __init__(self) -> None:
        self._found: dict[Selection, set[Site]] = {}
        self._missed: dict[Selection, dict[Problem, None]] = {}

    def add(self, selection: Selection, sites: Iterable[Site]) -> None:
        """They were marked as this was selected."""
        self._found.setdefault(selection, set()).update(sites)

    def miss(self, selection: Selection, function: str, where: str, reason: str) -> None:
        """No statement of a kind could be marked in that function."""
        problem = Problem("nothing", f"auto=: nothing is marked in {function} ({where}): {reason}")
        self._missed.setdefault(selection, {})[problem] = None

    def missed(self, selection: Selection) -> tuple[Problem, ...]:
        """What could not be marked that this selects by its kind."""
        return tuple(self._missed.get(selection, ()))

    def of(self, selection: Selection, regions: Iterable[str]) -> tuple[Site, ...]:
        """Those of these regions, in order of their places in the source."""
        names = set(regions)
        return tuple(sorted((site for site in self._found.get(selection, ()) if site.region in names), key=_place))


def _place(site: Site) -> tuple[str, int, str]:
    file, _, lines = site.where.rpartition(":")
    return file, int(lines.partition("-")[0]), site.region


_lists: list[list[Listed]] = []


@contextmanager
def listing() -> Generator[list[Listed]]:
    """The kernels that are compiled within, as they come. Frontends compile anew what their caches hold."""
    found: list[Listed] = []
    _lists.append(found)
    try:
        yield found
    finally:
        _lists.remove(found)


def wanted() -> bool:
    """Whether somebody lists: a frontend then takes nothing from caches."""
    return bool(_lists)


def note(kernel: Listed) -> None:
    """A kernel was compiled. Does nothing where nobody lists."""
    for found in _lists:
        found.append(kernel)


def write_cubins(folder: Path, plain: bytes, marked: bytes) -> tuple[Path, Path]:
    """Write the cubins that Listed.build returns."""
    paths = folder / "plain.cubin", folder / "marked.cubin"
    for path, code in zip(paths, (plain, marked), strict=True):
        path.write_bytes(code)
    return paths
