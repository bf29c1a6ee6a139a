"""Launches that packages make have the program's line, and known code is not looked at again."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from stacked import LAUNCHER, PACKAGE, launching, numbers, package, programs, through

from kscope.instrument.launch_lines import LaunchLines

INSIDE = "def call(item, kernel):\n    item(kernel)\n"


def function(source: str, file: str, **names: Any) -> Any:
    """The function `call` of a source."""
    exec(compile(source, file, "exec"), names)
    return names["call"]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """The code objects that the recorder has classified."""
    found, kind = list[CodeType](), LaunchLines()._code.kind

    def noted(frame: FrameType) -> int:
        found.append(frame.f_code)
        return kind(frame)

    monkeypatch.setattr("kscope.instrument.launch_lines._Code.kind", lambda self, frame: noted(frame))
    return found


def test_one_line_reaches_several_lines_of_the_program_through_one_package(lines: LaunchLines) -> None:
    outer, first, second = programs(3)
    item, pack = launching(3, lines.add), package(8)
    direct, one, two = through(item, pack), through(item, pack, first, pack), through(item, pack, second, pack)
    for _ in range(3):
        for inner in (direct, one, two):
            outer(inner, 7)
    assert numbers(lines.found(), 7) == [2, 3, 4] * 3


def test_stacks_of_one_depth_through_a_package_and_through_the_program_are_told_apart(lines: LaunchLines) -> None:
    outer, inner = programs(2)
    item = launching(3, lines.add)
    for _ in range(3):
        outer(through(item, package(2)), 7)
        outer(through(item, package(1), inner), 7)
        outer(through(item, inner, package(1)), 7)
    assert numbers(lines.found(), 7) == [2, 3, 3] * 3


def test_a_kernel_has_launchers_of_several_depths(lines: LaunchLines) -> None:
    outer, inner = programs(2)
    shallow, deep = launching(2, lines.add), launching(6, lines.add)
    for _ in range(4):
        outer(shallow, 7)
        outer(through(deep, package(8)), 7)
        outer(through(shallow, package(16)), 7)
        inner(deep, 7)
    assert numbers(lines.found(), 7) == [2, 2, 2, 3] * 4


def test_code_is_judged_once(judged: list[CodeType], lines: LaunchLines) -> None:
    [outer] = programs(1)
    items = [launching(2, lines.add), launching(6, lines.add)]
    through(items[0], outer, package(16))(7)
    for _ in range(10):
        for item in items:
            for kernel in (7, 8):
                outer(through(item, package(16)), kernel)
                outer(item, kernel)
    assert len(judged) == len(set(map(id, judged)))


@pytest.mark.parametrize("module", ["program", "pack.calls", "kscope_sim.launcher"])
@pytest.mark.parametrize(("file", "is_program"), [("/program.py", True), (PACKAGE, False), (LAUNCHER, False)])
def test_a_wrapper_with_the_name_of_another_module_is_of_its_file(
    lines: LaunchLines, module: str, file: str, is_program: bool
) -> None:
    [outer] = programs(1)
    wrapper = function("\n" * 50 + INSIDE, file, __name__="wrappers")
    wrapped = function(INSIDE, "/any.py", __name__=module)
    functools.update_wrapper(wrapper, wrapped)
    item, same = launching(3, lines.add), package(1)
    for _ in range(3):
        outer(through(item, same), 7)
        outer(through(item, wrapper), 7)
        outer(through(item, same, wrapper), 7)
    there = 52 if is_program else 2
    assert numbers(lines.found(), 7) == [2, there, there] * 3


def test_a_launcher_that_wraps_a_function_of_the_program_is_not_taken_for_that(lines: LaunchLines) -> None:
    """Both stacks are as deep, and both functions next to the outer line have the same module's name."""
    outer, inner = programs(2)
    wrapper = function(INSIDE, LAUNCHER, __name__="kscope_sim.launcher")
    functools.update_wrapper(wrapper, inner)
    item = launching(3, lines.add)
    for _ in range(3):
        outer(through(item, wrapper), 7)
        outer(through(item, inner), 7)
    assert numbers(lines.found(), 7) == [2, 3] * 3


def test_code_that_a_package_generates_is_the_packages(lines: LaunchLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor writes a kernel's caller to any folder, and executes its launcher as text, without a module's name."""
    monkeypatch.setitem(sys.modules, "pack", module := ModuleType("pack"))
    module.__file__ = PACKAGE
    [outer] = programs(1)
    item = launching(3, lines.add)
    for kernel in range(3):
        written = function(INSIDE, f"/scratch/cache/{kernel}.py", __name__=f"pack.generated.{kernel}")
        outer(through(item, written, function(INSIDE, "<string>"), package(2)), 7)
    assert numbers(lines.found(), 7) == [2] * 3


def test_text_that_the_program_executes_is_the_programs(lines: LaunchLines) -> None:
    [outer] = programs(1)
    item = launching(3, lines.add)
    for module in ("__main__", "program"):
        outer(through(item, package(2), function("\n" * 50 + INSIDE, "<string>", __name__=module)), 7)
    assert numbers(lines.found(), 7) == [52] * 2


def test_a_package_launches_by_itself_and_then_for_the_program_in_one_thread(lines: LaunchLines) -> None:
    [outer] = programs(1)
    item, pack = launching(3, lines.add), package(1)
    turns = function("\ndef call(all):\n    for one in all:\n        one(7)\n", PACKAGE, __name__="pack.calls")
    thread = threading.Thread(target=turns, args=([through(item, pack), through(item, outer, pack)] * 3,))
    thread.start()
    thread.join()
    found = lines.found()
    names = [found["lines"][at][2] for at in found["launched_at"][7]]
    assert names == ["f1", "launch"] * 3


def test_generators_are_called_by_what_resumes_them(lines: LaunchLines) -> None:
    first, second = programs(2)
    item = launching(3, lines.add)
    source = "def call(item):\n    while True:\n        item((yield))\n"
    generator = function(source, PACKAGE, __name__="pack.calls")(item)
    next(generator)
    for _ in range(3):
        first(generator.send, 7)
        second(through(generator.send, package(4)), 7)
    assert numbers(lines.found(), 7) == [2, 3] * 3


def test_code_that_a_package_makes_for_each_launch_is_not_kept_forever(lines: LaunchLines) -> None:
    outer, pack = *programs(1), package(1)
    item, codes = launching(3, lines.add), []
    for at in range(20_000):
        made = FunctionType(pack.__code__.replace(co_firstlineno=at + 1), pack.__globals__)
        outer(through(item, made), 7)
        if at % 1000 == 0:
            codes.append(weakref.ref(made.__code__))
    del made, item
    assert numbers(lines.found(), 7) == [2] * 20_000
    kept = [code() is not None for code in codes]
    assert kept == sorted(kept) and not kept[0]
    lines.begin(False)
    gc.collect()
    assert not any(code() for code in codes)
