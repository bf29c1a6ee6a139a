"""Launches from known places: C and Python find the same lines on any stack."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import defaultdict
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stacked import launching, numbers, package, programs, through

from kscope import native
from kscope.instrument.launch_lines import LaunchLines
from kscope.instrument.launch_places import Places

compiled = pytest.mark.skipif(native.module() is None, reason="kscope was installed without a C compiler or headers")


PACKAGES = [package(frames + 1) for frames in range(21)]
Layers = list[tuple[bool, int]]
LAYERS = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=6)
"""Callers of the launcher, the outermost first: lines of the program, and this many frames of a package."""


@compiled
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(0, 90), LAYERS), max_size=100))
def test_c_and_python_find_the_same_lines(launches: list[tuple[int, int, int, Layers]]) -> None:
    found = []
    for setting in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", setting)
            lines = LaunchLines()
            lines.begin(True)
        items, functions = [launching(frames, lines.add) for frames in range(1, 6)], list(programs(91))
        kernels = [(1 << 63) + kernel for kernel in range(41)]  # C knows them by object
        expected = defaultdict[int, list[int]](list)
        for kernel, frames, line, layers in launches:
            inside = [functions[at] if of_program else PACKAGES[at] for of_program, at in layers]
            through(items[frames], functions[line], *inside)(kernels[kernel])
            innermost = next((at for of_program, at in reversed(layers) if of_program), line)
            expected[kernels[kernel]].append(innermost + 2)
        found.append(lines.found())
        assert {kernel: numbers(found[-1], kernel) for kernel in expected} == expected
    assert found[0] == found[1]


def test_without_c_python_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    lines = LaunchLines()
    assert isinstance(lines._places, Places)


def test_new_code_at_the_address_of_freed_code_is_a_new_place(lines: LaunchLines) -> None:
    item = launching(3, lines.add)
    for function in programs(300):  # each is freed before the next one, unless its code is kept
        function(item, 7)
        function(item, 7)
    assert numbers(lines.found(), 7) == [at + 2 for at in range(300) for _ in range(2)]


def test_code_is_freed_with_the_session(lines: LaunchLines) -> None:
    [function] = programs(1)
    function(launching(3, lines.add), 7)
    code = weakref.ref(function.__code__)
    del function
    gc.collect()
    assert code() is not None
    lines.begin(False)
    gc.collect()
    assert code() is None


def test_a_function_of_the_program_between_place_and_launcher_is_found(lines: LaunchLines) -> None:
    """Both stacks have the same depth and the same outer place."""
    outer, inner = programs(2)
    three, two = launching(3, lines.add), launching(2, lines.add)
    for _ in range(3):
        outer(partial(three), 7)  # partial() here too: direct calls in Python are another instruction
        outer(partial(inner, two), 7)
    assert numbers(lines.found(), 7) == [2, 3] * 3


def test_a_place_further_outward_than_c_remembers_is_found_each_time(lines: LaunchLines) -> None:
    for function in [*programs(3)] * 2:
        function(launching(100, lines.add), 7)
    assert numbers(lines.found(), 7) == [2, 3, 4] * 2


def test_a_shallower_stack_is_searched_again(lines: LaunchLines) -> None:
    [function] = programs(1)
    function(launching(40, lines.add), 7)
    thread = threading.Thread(target=launching(1, lines.add), args=(7,))
    thread.start()
    thread.join()
    function(launching(40, lines.add), 7)
    places = lines._places.places()
    assert len({thread for _, _, thread in places}) == 2
    assert 7 not in lines.found()["launched_at"]  # two threads, two lines


def test_kernels_are_found_by_value_if_each_launch_has_another_object(lines: LaunchLines) -> None:
    first, second = programs(2)
    item = launching(3, lines.add)
    for at in range(10_000):
        (second if at % 3 else first)(item, int(str(1 << 40)))
    assert numbers(lines.found(), 1 << 40) == [3 if at % 3 else 2 for at in range(10_000)]


def test_an_object_at_the_address_of_a_freed_kernel_is_another_kernel(lines: LaunchLines) -> None:
    [function] = programs(1)
    item = launching(3, lines.add)
    for at in range(300):
        function(item, (1 << 40) + at)
    assert numbers(lines.found(), (1 << 40) + 299) == [2]
    assert len(lines.found()["launched_at"]) == 300


def test_threads_that_launch_a_kernel_from_one_line_by_turns_are_told_apart(lines: LaunchLines) -> None:
    [function] = programs(1)
    item, turns = launching(3, lines.add), threading.Barrier(2, timeout=60)

    def half(mine: int) -> None:
        for at in range(20):
            if at % 2 == mine:
                function(item, 7)
            turns.wait()

    other = threading.Thread(target=half, args=(1,))
    other.start()
    half(0)
    other.join()
    places, recorded = lines._places.places(), memoryview(lines._places.launches()).cast("Q")[1::2].tolist()
    assert [places[number][2] for number in recorded] == [threading.get_ident(), other.ident] * 10
    assert numbers(lines.found(), 7) == [2] * 20


def test_lines_of_one_function_that_launch_a_kernel_by_turns_are_told_apart(lines: LaunchLines) -> None:
    item = launching(3, lines.add)
    for _ in range(10):
        item(7)
        item(7)
    first, second = numbers(lines.found(), 7)[:2]
    assert numbers(lines.found(), 7) == [first, second] * 10 and second == first + 1


def test_each_launch_returns_none_and_counts_it(lines: LaunchLines) -> None:
    """Fails where Python 3.10 or 3.11 loads a library that newer headers compiled and that does not count None."""
    [function] = programs(1)
    item = launching(1, lines.add)
    before = sys.getrefcount(None)
    for _ in range(1000):
        function(item, 7)
    assert abs(sys.getrefcount(None) - before) < 500


def test_recursion_has_the_innermost_line(lines: LaunchLines) -> None:
    names: dict[str, Any] = {"__name__": "program"}
    exec("def launch(item, kernel, depth):\n if depth:\n  launch(item, kernel, depth - 1)\n item(kernel)\n", names)
    names["launch"](launching(3, lines.add), 7, 30)
    assert numbers(lines.found(), 7) == [4] * 31


AUDITED = """
import sys
from kscope import native
from kscope.instrument.launch_places import OF_LAUNCHER, PROGRAM, places

def kind(frame):
    return PROGRAM if frame.f_code.co_name in ("program", "hook") else OF_LAUNCHER

def item(kernel):
    found.add(kernel)

def program(kernel):
    item(kernel)

def hook(event, arguments):
    global inside
    if event == "sys._getframe" and on and not inside:
        inside = True
        for kernel in others:
            item(kernel)
        inside = False

assert native.module() is not None
found, on, inside = places(kind), False, False
kernels, others = [(1 << 40) + at for at in range(1100)], [(1 << 41) + at for at in range(5000)]
for kernel in kernels:
    program(kernel)
sys.addaudithook(hook)
on = True
for kernel in kernels[:3]:
    program(kernel)
on = False
rows, launches = found.places(), memoryview(found.launches()).cast("Q").tolist()
made = list(zip(launches[::2], launches[1::2]))
assert len([kernel for kernel, _ in made if kernel < 1 << 41]) == 1103 and len(made) >= 6 + 3 * len(others)
for kernel, number in made:
    assert rows[number][0].co_name == ("hook" if kernel >= 1 << 41 else "program")
"""


@compiled
def test_launches_that_an_audit_hook_makes_while_a_launch_is_recorded_have_their_own_lines() -> None:
    subprocess.run(
        [sys.executable, "-c", AUDITED], check=True,
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},  # freed tables are unmapped, as far as glibc allocates
    )  # fmt: skip
