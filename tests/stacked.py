"""Stacks of a program, of packages and of a launcher, and the lines that their launches have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import kscope_sim
from kscope.instrument.launch_lines import Found, LaunchLines
from kscope.util import thread_stacks

Add = Callable[[int], None]
LAUNCHER = str(Path(kscope_sim.__file__).with_name("launcher.py"))
PACKAGE = "/site-packages/pack/calls.py"
WAYS = ("C", "C, other functions of sys", "C, Python without module names", "Python")


def recording(way: str, monkeypatch: pytest.MonkeyPatch) -> LaunchLines:
    """Lines that are recorded in one of WAYS."""
    monkeypatch.setenv("KSCOPE_NATIVE", "0" if way == "Python" else "1")
    name = "_getframemodulename"
    if way == WAYS[1]:  # not built-in, so C does not know their pointers; partial() adds no frame
        monkeypatch.setattr(thread_stacks, "outward", partial(thread_stacks.outward))
        monkeypatch.setattr(sys, name, partial(vars(sys)[name]) if name in vars(sys) else None, raising=False)
    elif way == WAYS[2]:
        monkeypatch.delattr(sys, name, raising=False)
    found = LaunchLines()
    found.begin(True)
    return found


def launching(frames: int, add: Add) -> Add:
    """A launcher that calls `add` that many frames further in."""
    names: dict[str, Any] = {"__name__": "kscope_sim.launcher", "f0": add}
    for at in range(frames):
        exec(compile(f"def f{at + 1}(kernel):\n    f{at}(kernel)\n", LAUNCHER, "exec"), names)
    found: Add = names[f"f{frames}"]
    return found


def programs(count: int) -> Iterator[FunctionType]:
    """Functions that call a launcher, each on another line."""
    for at in range(count):
        names: dict[str, Any] = {"__name__": "program"}
        exec(compile("\n" * at + "def launch(item, kernel):\n    item(kernel)\n", "/program.py", "exec"), names)
        yield names["launch"]


def package(frames: int) -> FunctionType:
    """A function of a package that calls a launcher that many frames further in."""
    names: dict[str, Any] = {"__name__": "pack.calls"}
    exec(compile("def f1(item, kernel):\n    item(kernel)\n", PACKAGE, "exec"), names)
    for at in range(1, frames):
        exec(compile(f"def f{at + 1}(item, kernel):\n    f{at}(item, kernel)\n", PACKAGE, "exec"), names)
    found: FunctionType = names[f"f{frames}"]
    return found


def through(item: Add, *functions: FunctionType) -> Add:
    """Call a launcher through functions, the outermost first. partial() adds no frame."""
    for function in reversed(functions):
        item = partial(function, item)
    return item


def numbers(found: Found, kernel: int) -> list[int]:
    """Numbers of the lines of a kernel's launches."""
    return [found["lines"][at][1] for at in found["launched_at"][kernel]]
