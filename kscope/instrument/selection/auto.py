"""Code to mark in kernels without annotations: operations by kind, source lines by range.

kscope.profile(auto="wait,wgmma,loops", mark="load=attn.py:41-47", kernel="attn_*")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Literal, Protocol, TypeVar

from ...capture.model import ModuleMeta, Problem
from ...errors import UsageError
from ...marks.names import check_name

KINDS: dict[str, str] = {
    "wait": "waits for anything asynchronous",
    "async_wait": "waits for cp.async copies",
    "tma": "bulk copies by the TMA unit",
    "wgmma": "Hopper's tensor-core instructions",
    "mma": "other tensor-core instructions",
    "dot": "all tensor-core instructions",
    "load": "reads of global memory",
    "store": "writes to global memory",
    "barrier": "barriers and arrivals at them",
    "loop": "whole loops",
    "iteration": "each iteration of a loop",
    "pipeline": "operations on barriers, and copies",
}
"""Kind of operation -> description. Plurals are accepted."""
WIDER = {"async_wait": ("wait",), "tma": ("load", "store"), "wgmma": ("dot",), "mma": ("dot",)}
"""Kind -> the kinds that its operations also have."""
DEFAULT = ("wait", "dot", "load", "store", "loop")
"""Kinds that auto=True marks."""
SKIPPED = ("pairing", "skipped")
"""Kinds of problem of a module: a region was matched, and is not recorded."""
UNMATCHED = "unmatched"
"""Kind of problem of a module: a listed kind marked nothing. Compilers do not warn of it."""
GRAMMAR = "NAME=FILE:FIRST-LAST, such as load=attn.py:41-47"


@dataclass(frozen=True)
class Lines:
    """Source lines that are one region: first to last, inclusive, counted from 1.

    Attributes:
        name: the region's name.
        file: the end of the source's path in whole parts: attn.py, models/attn.py, or all of it.
        first, last: the first and the last line.
        origin: "lines" if mark= named the lines, "auto" if auto= found them.
    """

    name: str
    file: str
    first: int
    last: int
    origin: Literal["lines", "auto"] = "lines"

    @staticmethod
    def of(text: str) -> Lines:
        """Read NAME=FILE:FIRST-LAST or NAME=FILE:LINE. Raises UsageError."""
        name, equals, place = text.partition("=")
        file, colon, numbers = place.rpartition(":")
        first, dash, last = numbers.partition("-")
        if not (equals and colon and name.strip() and file.strip()):
            raise UsageError(f"mark {text!r}: expected {GRAMMAR}")
        if not all(number.isascii() and number.isdecimal() for number in (first, *([last] if dash else []))):
            raise UsageError(f"mark {text!r}: {numbers!r} is not a range of lines; expected {GRAMMAR}")
        found = Lines(check_name(name.strip()), file.strip(), int(first), int(last or first))
        if not 1 <= found.first <= found.last:
            raise UsageError(f"mark {text!r}: lines count from 1, and the first comes before the last")
        return found

    def in_file(self, path: str) -> bool:
        """True if a source's path ends in this file, part by part."""
        mine = [part for part in PurePath(self.file).parts if part != "."]
        return bool(mine) and list(PurePath(path).parts[-len(mine) :]) == mine

    def covers(self, path: str, line: int) -> bool:
        """True if the range contains a line of a source."""
        return self.first <= line <= self.last and self.in_file(path)

    @property
    def where(self) -> str:
        """FILE:FIRST-LAST"""
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")

    def __str__(self) -> str:
        return f"{self.name}={self.where}"


@dataclass(frozen=True)
class Selection:
    """Code to mark in kernels without annotations; nothing by default. All empty selections are equal.

    Attributes:
        kinds: keys of KINDS.
        lines: ranges of source.
        kernels: patterns of kernel names; empty for all. The selection does not affect other kernels.
    """

    kinds: tuple[str, ...] = ()
    lines: tuple[Lines, ...] = ()
    kernels: tuple[str, ...] = ()

    @staticmethod
    def of(
        auto: str | Sequence[str] | bool | None = None,
        mark: str | Sequence[str] | Mapping[str, str] | None = None,
        kernels: tuple[str, ...] = (),
    ) -> Selection | None:
        """Parse a user's arguments; None if auto and mark were not given. Raises UsageError."""
        if auto is None and mark is None:
            return None
        kinds, lines = _kinds(auto), _lines(mark)
        return Selection(kinds, lines, kernels) if kinds or lines else Selection()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.lines)

    def of_kernel(self, name: str) -> Selection:
        """This selection if it applies to the kernel `name`, else an empty one."""
        return self if not self.kernels or any(fnmatchcase(name, glob) for glob in self.kernels) else Selection()

    def kind(self, kinds: Iterable[str]) -> str | None:
        """The first of an operation's kinds (narrowest first) that is selected."""
        return next((kind for kind in kinds if kind in self.kinds), None)


class _Range(Protocol):
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


R = TypeVar("R", bound=_Range)


def outer_first(ranges: Iterable[R]) -> list[R]:
    """Sort ranges so that each precedes those inside it. Raises UsageError if two overlap without nesting."""
    ordered = sorted(ranges, key=lambda one: (one.first, -one.last))
    for at, one in enumerate(ordered):
        for later in ordered[at + 1 :]:
            if one.first < later.first <= one.last < later.last:
                raise UsageError(f"regions {one} and {later} overlap: nest one inside the other, or separate them")
    return ordered


def name(kind: str, path: str, line: int) -> str:
    """The name of a region that a kind selected, such as "wait attn.py:41"."""
    return f"{kind} {PurePath(path).name}:{line}" if line else kind


def kind_of(region: str) -> str:
    """The kind in a name that name() made."""
    return region.partition(" ")[0]


def unmatched_in_kernel(
    selection: Selection, kernel: str, names: Iterable[str], known: Iterable[Problem]
) -> list[Problem]:
    """A problem for listed kinds that marked nothing in a kernel where others did. auto=True lists none.

    Args:
        selection: the selection.
        kernel: the kernel's name.
        names: its regions that a kind selected.
        known: its other problems, which may name a region that was marked and lost.
    """
    marked = {kind_of(region) for region in names}
    lost = {word for one in known if one.kind in ("removed", *SKIPPED) for word in re.findall(r"\w+", one.text)}
    covered = marked.union(lost, *(WIDER.get(kind, ()) for kind in marked))
    missing = [kind for kind in selection.kinds if kind not in covered]
    if not marked or not missing or selection.kinds == DEFAULT:
        return []
    found = ", ".join(kind for kind in selection.kinds if kind in marked)
    text = f"kernel {kernel}: auto= marked {found}, but found no operation of kind {', '.join(missing)}"
    return [Problem(UNMATCHED, text, len(missing), kernel=kernel)]


def unmatched(selection: Selection, modules: Iterable[ModuleMeta]) -> tuple[Problem, ...]:
    """Problems of a selection that marked nothing.

    Args:
        selection: the selection.
        modules: the modules that ran.

    Returns:
        One problem per range of lines without an operation in any kernel, and one if no kernel has an operation of a
        selected kind.
    """
    found = tuple(modules)
    regions = [region for module in found for region in module.regions]
    skipped = {one.region for module in found for one in module.problems if one.kind in SKIPPED and one.region}
    lines = {region.name for region in regions if region.origin == "lines"} | skipped
    kinds = {kind_of(region.name) for region in regions if region.origin == "auto"}
    kinds |= {kind_of(name) for name in skipped if kind_of(name) != name}
    which = f" whose name matches {', '.join(selection.kernels)}" if selection.kernels else ""
    more = "kscope run --auto --dry-run lists kernels and the lines of their operations"
    text = f"no kernel{which} that ran has an operation at these lines; {more}"
    problems = [
        Problem("nothing", f"region {one}: {text}", region=one.name) for one in selection.lines if one.name not in lines
    ]
    if selection.kinds and kinds.isdisjoint(selection.kinds):
        text = f"auto=: no kernel{which} that ran has an operation of a kind {', '.join(selection.kinds)}; {more}"
        problems.append(Problem("nothing", text))
    return tuple(problems)


def _kinds(auto: object) -> tuple[str, ...]:
    if isinstance(auto, bool) or auto is None:
        return DEFAULT if auto else ()
    words = auto.split(",") if isinstance(auto, str) else list(auto) if isinstance(auto, Sequence) else [auto]
    found: list[str] = []
    for word in words:
        kind = word.strip().lower() if isinstance(word, str) else ""
        kind = kind[:-1] if kind not in KINDS and kind.endswith("s") else kind
        if kind not in KINDS:
            raise UsageError(f"auto={auto!r}: {word!r} is not a kind of operation; expected {', '.join(KINDS)}")
        found.append(kind)
    return tuple(kind for kind in KINDS if kind in found)


def _lines(mark: object) -> tuple[Lines, ...]:
    if isinstance(mark, Mapping):
        mark = [f"{name}={place}" for name, place in mark.items()]
    words = [mark] if isinstance(mark, str) else list(mark) if isinstance(mark, Sequence) else None
    if mark is not None and (words is None or not all(isinstance(word, str) for word in words)):
        raise UsageError(f"mark={mark!r}: expected {GRAMMAR}, or several of them")
    return tuple(dict.fromkeys(Lines.of(word) for word in words or ()))
