"""The Python line of every launch, as frontends see it: profile(launch_stacks=True)."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TypedDict

import numpy as np

from ..capture.capture_data import LaunchLine
from ..util import thread_stacks
from .launch_places import OF_LAUNCHER, OF_PACKAGE, PROGRAM, places

_LAUNCHERS = re.compile(r"kscope|kscope_\w+|triton_kscope|triton|cupy|cupyx|numba|numba_cuda")
"""Packages whose code is between a program's line and a launch."""
_PACKAGE = re.compile(r"^<frozen|/(site|dist)-packages/|/lib/python|/torchinductor_")


class Found(TypedDict):
    """Attributes of a capture."""

    lines: tuple[LaunchLine, ...]
    launched_at: dict[int, tuple[int, ...]]


class _Code:
    """Distinguishes code of the program, of packages and of launchers.

    Attributes:
        kinds: the kind of each file seen so far.
    """

    def __init__(self) -> None:
        self.kinds = dict[str, int]()

    def kind(self, frame: FrameType) -> int:
        """The kind of a frame's code: that of the package in whose folder the file is, or to which its module belongs.

        Packages generate code: Inductor writes some to a folder that the user chooses, and executes some as text, in no
        module.
        """
        file, name = frame.f_code.co_filename, frame.f_globals.get("__name__")
        kind = self.of_file(file)
        if kind != PROGRAM or name == "__main__":
            return kind
        if name is None:
            return OF_PACKAGE if file.startswith("<") else PROGRAM
        package = getattr(sys.modules.get(str(name).partition(".")[0]), "__file__", None)
        return self.of_file(package) if package else PROGRAM

    def of_file(self, file: str) -> int:
        """The kind of a file."""
        kind = self.kinds.get(file)
        if kind is None:
            launcher = file.startswith(_folders())
            kind = OF_LAUNCHER if launcher else OF_PACKAGE if _PACKAGE.search(file) else PROGRAM
            self.kinds[file] = kind
        return kind


def _nothing(kernel: int) -> None:
    """Replaces add() while no session records lines."""


class LaunchLines:
    """The lines of a session's launches, by kernel id, in order of launch.

    The line is the innermost one of the program; of launches by a package's own thread, the innermost of the package.

    Attributes:
        enabled: True if a session records them.
        add: records a launch that the caller's callers made; takes the kernel's id. It is an attribute, not a method:
            another Python call would cost as much as walking the stack in C.
    """

    def __init__(self) -> None:
        self.enabled = False
        self._on_launch: Callable[[int], None] | None = None
        self._code = _Code()
        self._places = places(self._code.kind)
        self.add: Callable[[int], None] = _nothing

    def begin(self, enabled: bool) -> None:
        """Begin a session, which records lines if `enabled`."""
        self._places = places(self._code.kind)
        self.record(enabled)

    def end(self) -> None:
        """End the session; the lines stay."""
        self.record(False)

    def record(self, enabled: bool) -> None:
        """Record them from now on, or stop."""
        self.enabled = enabled
        self._choose()

    def report(self, on_launch: Callable[[int], None] | None) -> None:
        """Call a function with the kernel of each launch, also while no session records lines; None for no function."""
        self._on_launch = on_launch
        self._choose()

    def _choose(self) -> None:
        line = self._places.add if self.enabled else _nothing
        also = self._on_launch
        if also is None:
            self.add = line
            return

        def both(kernel: int) -> None:
            also(kernel)
            line(kernel)

        self.add = both

    def stack(self, most: int) -> list[LaunchLine]:
        """The lines of this thread outside launchers' packages, the innermost first, at most `most`."""
        found = list[LaunchLine]()
        for frame in thread_stacks.own():
            if len(found) == most:
                break
            file = frame.f_code.co_filename
            if self._code.kind(frame) != OF_LAUNCHER and not file.startswith("<frozen"):
                found.append((_shown(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name))
        return found

    def found(self) -> Found:
        """The lines for the capture. A kernel that several threads launched from several lines has none, because the
        order in which the driver took the launches is unknown.
        """
        numbers = defaultdict[int, list[int]](list)
        for kernel, number in np.frombuffer(self._places.launches(), np.uint64).reshape(-1, 2).tolist():
            numbers[kernel].append(number)
        lines, of = dict[LaunchLine, int](), self._places.places()
        rows = [lines.setdefault(_line(code, instruction), len(lines)) for code, instruction, _ in of]
        launched = dict[int, tuple[int, ...]]()
        for kernel, mine in numbers.items():
            threads, found = {of[number][2] for number in mine}, tuple(rows[number] for number in mine)
            if len(threads) == 1 or len(set(found)) == 1:
                launched[kernel] = found
        return {"lines": tuple(lines), "launched_at": launched}


def _folders() -> tuple[str, ...]:
    """The folders of the launchers' packages that are imported."""
    modules = [one for name, one in list(sys.modules.items()) if _LAUNCHERS.fullmatch(name)]
    files = [file for one in modules if (file := getattr(one, "__file__", None))]
    return tuple(os.path.join(os.path.dirname(file), "") for file in files)


def _line(code: CodeType, instruction: int) -> LaunchLine:
    """The line of an instruction of Python."""
    spans = (line for first, last, line in code.co_lines() if first <= instruction < last and line is not None)
    return _shown(code.co_filename), next(spans, code.co_firstlineno), code.co_name


def _shown(file: str) -> str:
    """A file's path, relative if it is below the current folder."""
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        return file
    return os.path.relpath(file, folder) if file.startswith(os.path.join(folder, "")) else file


LINES = LaunchLines()
"""The launches of this process. One session at a time records them."""
