"""A prepared kernel: the metadata that a compiled module contains."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kscope.capture import layout
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta
from kscope.errors import UsageError
from kscope.instrument.code_objects import is_kscope, names, reachable, references
from kscope.instrument.recording import AUTO_RECORDS, Recording, log2_records
from kscope.language import regions
from kscope.language.mistakes import refuse_mistakes
from kscope.marks.grammar import Mark
from kscope.marks.names import ValueType, format_name
from kscope.marks.strategies import AllThreads, Elected, Strategy
from kscope.marks.wide_values import common

_OURS = {
    regions.__file__,
    *(str(Path(__file__).with_name(f"{part}.py")) for part in ("module", "warp", "frontend", "barriers", "groups")),
}
_MARKS = (regions.region, regions.scope, *regions.MARKS_BY_CALL)
_WORDS = {word.__name__ for word in _MARKS}
_LIBRARIES = {"numpy", *sys.stdlib_module_names} - {"__main__"}
_ANY = "any"
"""Sort of a name's values that holds for all its marks."""


class Module:
    """A kernel prepared with the options of a Recording.

    Attributes:
        name: the kernel's name.
        recording: the options.
        marked: its code, or a function it names, has marks: then its warps claim at their entry, else at their
            first mark.
        flags: its flags in the entries of launches; those of marks with their own strategies once such a mark was
            reached.
    """

    def __init__(
        self, name: str, kernel: Callable[..., object], recording: Recording,
        grown: Callable[[Module], None] = lambda module: None,
    ) -> None:  # fmt: skip
        """grown: called when a mark was met first."""
        self.name, self.recording = name, recording
        self.kernel = kernel  # kept alive, because one that cannot be hashed is identified by its id
        records = AUTO_RECORDS if recording.records == "auto" else recording.records
        self.log2_records = log2_records(records)
        refuse_mistakes(kernel, _users)
        functions = tuple(reachable(kernel, _users))
        self.marked = any(map(_places_marks, functions))
        code = b"".join(function.__code__.co_code for function in functions)
        text = f"{getattr(kernel, '__module__', '')} {name} {recording.tag()} {self.log2_records} "
        self.id = layout.kernel_hash(text.encode() + code)
        self.flags = _flags(recording)
        self._types: dict[tuple[str, str], ValueType | None] = {}
        self._where: dict[str, str | None] = {}
        self._origins: dict[str, str] = {}
        self._hashes: dict[int, str] = {}
        self._grown = grown
        grown(self)

    def note(self, mark: Mark, kind: ValueType | None) -> None:
        """Note a mark. Raises UsageError if values of one name have two types, or two names have one hash."""
        is_new = mark.name not in self._where
        if is_new:
            twin = self._hashes.setdefault(layout.name_hash(mark.name), mark.name)
            if twin != mark.name:
                raise UsageError(
                    f"the names {format_name(twin)} and {mark.display_name} have the same 28-bit hash: rename one"
                )
            self._where[mark.name] = caller()
        if mark.origin != "source" or mark.name not in self._origins:
            self._origins[mark.name] = mark.origin
        if mark.act != "exit":
            self._note_type(mark, kind)
        if is_new:
            self._grown(self)

    def _note_type(self, mark: Mark, kind: ValueType | None) -> None:
        sort = "" if mark.act == "enter" else mark.act
        # marks of a name may or may not have a value, but those with one agree in its type
        for key in [(mark.name, sort)] + ([(mark.name, _ANY)] if kind else []):
            known = self._types.setdefault(key, kind)
            if known != kind and (wider := common(known, kind)) is not None and wider != "f64":
                self._types[key] = wider
            elif known != kind:
                raise UsageError(
                    f"kernel {self.name}: {mark.display_name} has a value of type {kind or 'none'} at one place and "
                    f"{known or 'none'} at another; give it one type everywhere, or use two names"
                )

    def meta(self) -> ModuleMeta:
        """The module's metadata, with the names reached so far."""
        regions = (
            RegionMeta(name, self._types.get((name, _ANY)), self._where[name], origin=self._origins[name])
            for name in sorted(self._where)
        )
        return self.recording.module("sim", (KernelMeta(self.name, self.id, self.log2_records),), tuple(regions))


def elects(strategy: Strategy) -> bool:
    """True if the first active lane of a warp records."""
    return isinstance(strategy, Elected) and strategy.any_lane


def _flags(recording: Recording) -> int:
    return (
        (layout.FLAG_GLOBALTIMER if recording.clock == "globaltimer" else layout.FLAG_ANCHORS)
        | (layout.FLAG_STOP if recording.fill == "stop" else 0)
        | (layout.FLAG_LANES if isinstance(recording.strategy, AllThreads) else 0)
        | (layout.FLAG_ANY if elects(recording.strategy) else 0)
    )


def _users(thing: Any) -> Any:
    """A function that may place marks; None for functions of kscope and of libraries, and for other objects."""
    if not isinstance(thing, FunctionType) or is_ours(thing.__code__):
        return None
    return None if (thing.__module__ or "").partition(".")[0] in _LIBRARIES else thing


def _places_marks(function: FunctionType) -> bool:
    """True if a function names a mark: itself, or as an attribute of kscope, which loads it when the kernel runs."""
    things = list(references(function))
    if any(isinstance(thing, regions.scope) or any(thing is word for word in _MARKS) for thing in things):
        return True
    packages = any(isinstance(thing, ModuleType) and is_kscope(thing) for thing in things)
    return packages and not _WORDS.isdisjoint(names(function))


def is_ours(code: CodeType) -> bool:
    """True if a frame of this code is the simulator's or the marks'."""
    return code.co_filename in _OURS


def caller() -> str | None:
    """file:line of the user's code that placed the mark."""
    frame = words = inspect.currentframe()
    while words is not None and words.f_code.co_filename != regions.__file__:
        words = words.f_back
    frame = words or frame
    while frame is not None and is_ours(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
