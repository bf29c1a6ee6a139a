"""The Python line of every launch, as frontends see it: profile(launch_stacks=True)."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from threading import Lock, get_ident
from types import CodeType, FrameType
from typing import TypedDict

from ..capture.capture_data import LaunchLine
from ..util import stacks

_LAUNCHERS = re.compile(r"kscope|kscope_\w+|triton_kscope|triton|cupy|cupyx|numba|numba_cuda")
"""Packages whose code is between a program's line and a launch."""
_PACKAGE = re.compile(r"^<frozen|/(site|dist)-packages/|/lib/python|/torchinductor_")
Key = tuple[int, int, int]
"""A code object's id, an instruction in it, and a thread."""
_LOCK = Lock()
_PROGRAM, _OF_PACKAGE, _OF_LAUNCHER = 2, 1, 0


class Found(TypedDict):
    """Attributes of a capture."""

    lines: tuple[LaunchLine, ...]
    launched_at: dict[int, tuple[int, ...]]


class LaunchLines:
    """The lines of a session's launches, by kernel id, in order of launch.

    The line is the innermost one of the program; of launches by a package's own thread, the innermost of the package.

    Attributes:
        enabled: True while a session records them.
        on_launch: called with the kernel of each launch; None for nothing.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.on_launch: Callable[[int], None] | None = None
        self._kinds = dict[str, int]()  # by file
        self._depth = 1  # from add() to the program's frame, the last time
        self._launchers = set[str | None]()  # modules whose functions a program calls to launch
        self._numbers = dict[Key, int]()
        self._places = list[tuple[CodeType, int]]()  # by number: code, which a key's id is of, and instruction
        self._launched = defaultdict[int, list[int]](list)

    def begin(self, enabled: bool) -> None:
        """A session begins."""
        self._numbers, self._places, self._launched = {}, [], defaultdict(list)
        self.enabled = enabled

    def end(self) -> None:
        """The session has ended; what it found stays."""
        self.enabled = False

    def add(self, kernel: int) -> None:
        """A kernel was launched by the caller's callers, and records.

        Looking at a frame takes some 100 ns, so most launches look at one: if it launched before, and the function
        that it calls is a launcher's, it is the program's innermost frame.
        """
        if self.on_launch is not None:
            self.on_launch(kernel)
        if not self.enabled:
            return
        depth = self._depth
        try:
            frame = stacks.outward(depth)
            number = self._numbers.get((id(frame.f_code), frame.f_lasti, get_ident()))
        except ValueError:
            number = None
        if number is None or stacks.module(depth - 1) not in self._launchers:
            frame = self._search(stacks.outward(0))
            if _LAUNCHERS.fullmatch((name := stacks.module(self._depth - 1) or "").partition(".")[0]):
                self._launchers.add(name)
            number = self._number((id(frame.f_code), frame.f_lasti, get_ident()), frame.f_code)
        self._launched[kernel].append(number)

    def stack(self, most: int) -> list[LaunchLine]:
        """The lines of this thread outside of launchers' packages, the innermost first, at most `most`."""
        found = list[LaunchLine]()
        for frame in stacks.own():
            if len(found) == most:
                break
            file = frame.f_code.co_filename
            if self._kind(file) != _OF_LAUNCHER and not file.startswith("<frozen"):
                found.append((_shown(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name))
        return found

    def _search(self, frame: FrameType) -> FrameType:
        """The program's innermost frame, else the innermost one of a package, else the outermost one."""
        best, found, depth = _OF_LAUNCHER, frame, 0
        while True:
            kind = self._kind(frame.f_code.co_filename)
            if kind > best:
                found, best = frame, kind
            if kind == _PROGRAM:
                self._depth = max(1, depth)
                return frame
            if frame.f_back is None:
                return found
            frame, depth = frame.f_back, depth + 1

    def _number(self, key: Key, code: CodeType) -> int:
        with _LOCK:
            if key not in self._numbers:
                self._places.append((code, key[1]))
                self._numbers[key] = len(self._places) - 1
            return self._numbers[key]

    def _kind(self, file: str) -> int:
        kind = self._kinds.get(file)
        if kind is None:
            launcher = file.startswith(_folders())
            kind = _OF_LAUNCHER if launcher else _OF_PACKAGE if _PACKAGE.search(file) else _PROGRAM
            self._kinds[file] = kind
        return kind

    def found(self) -> Found:
        """What a capture has of them. A kernel that several threads launched from several lines has none, because the
        order in which the driver took the launches is unknown.
        """
        lines, keys = dict[LaunchLine, int](), list(self._numbers)
        of = [lines.setdefault(_line(*place), len(lines)) for place in self._places]
        launched = dict[int, tuple[int, ...]]()
        for kernel, numbers in list(self._launched.items()):
            rows = tuple(of[number] for number in numbers)
            threads = {keys[number][2] for number in set(numbers)}
            if len(threads) == 1 or len(set(rows)) == 1:
                launched[kernel] = rows
        return {"lines": tuple(lines), "launched_at": launched}


def _folders() -> tuple[str, ...]:
    """Those of the launchers' packages that are imported."""
    modules = [one for name, one in list(sys.modules.items()) if _LAUNCHERS.fullmatch(name)]
    files = [file for one in modules if (file := getattr(one, "__file__", None))]
    return tuple(os.path.join(os.path.dirname(file), "") for file in files)


def _line(code: CodeType, instruction: int) -> LaunchLine:
    """The line of an instruction of Python."""
    spans = (line for first, last, line in code.co_lines() if first <= instruction < last and line is not None)
    return _shown(code.co_filename), next(spans, code.co_firstlineno), code.co_name


def _shown(file: str) -> str:
    """A file below the current folder without that."""
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        return file
    return os.path.relpath(file, folder) if file.startswith(os.path.join(folder, "")) else file


LINES = LaunchLines()
"""Of this process: one session at a time records."""
