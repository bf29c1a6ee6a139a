"""Marks run as often as their landmarks on every path, wherever ptxas copied their block; else they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kscope.errors import UnsupportedError
from kscope.sass.placing import mark_order

from .kernels import ASSEMBLERS, EACH, needs_tools
from .marked import compiled, spots, walk

pytestmark = needs_tools
COUNTED = {
    "unrolled": ("part", "STG st.global.f32 [%d3], %f1;"),
    "loads": ("part", "LDG ld.global.f32 %f2, [%d3];"),
    "two": ("second", "LDG ld.global.f32 %f3, [%d3+64];"),
    "four": ("part", "STG st.global.f32 [%d3], %f1;"),
    "predicate": ("part", "STG st.global.f32 [%d3], %f1;"),
    **{f"predicates {n}": (f"part{n}", f"STG st.global.f32 [%d3+{512 * n}], %f1;") for n in (0, 5, 11)},
    "branch": ("part", "STG st.global.f32 [%d3], %f1;"),
    "whole": ("turn", "STG st.global.f32 [%d3], %f1;"),
    "left": ("part", "STG st.global.f32 [%d3], %f1;"),
    "conditional_loads": ("part", "FFMA fma.rn.f32 %f1, %f2, %f2, %f1;"),
}
"""A region of each kernel, and a statement that runs once in it."""


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("name", COUNTED)
def test_marks_run_as_often_as_their_landmarks(name: str, tool: str) -> None:
    region, statement = COUNTED[name]
    name = name.partition(" ")[0]
    found = spots(name, tool)
    assert not isinstance(found, str), found
    some = 0
    for seed in range(40):
        counts = walk(name, tool, found, seed)
        assert counts[f"enter {region}"] == counts[f"exit {region}"] == counts[statement], (seed, counts)
        some += counts[statement]
    assert some


@pytest.mark.parametrize("tool", EACH)
def test_each_copy_has_marks_of_its_own(tool: str) -> None:
    copies = {name: len(spots(name, tool)) // 2 for name in ("unrolled", "loads", "four", "conditional_loads")}
    assert copies["four"] == 4
    assert min(copies["unrolled"], copies["loads"], copies["conditional_loads"]) > 4  # four turns at once, and the rest


@pytest.mark.parametrize("tool", EACH)
def test_code_under_a_predicate_has_marks_under_it(tool: str) -> None:
    found = spots("predicate", tool)
    assert not isinstance(found, str), found
    assert {bool(spot.guard) for spot in found} == {True}
    assert len({spot.guard for spot in found}) == 1


@pytest.mark.parametrize("tool", EACH)
def test_a_computing_loop_has_one_copy(tool: str) -> None:
    found = spots("computing", tool)
    assert not isinstance(found, str), found
    assert [spot.mark for spot in found] == [0, 1]
    assert not any(spot.guard for spot in found)


def test_an_empty_region_is_at_one_place() -> None:
    found = spots("empty", ASSEMBLERS[0])
    assert not isinstance(found, str), found
    begin, end = found
    assert begin.at == end.at and (begin.mark, end.mark) == (0, 1)


def test_the_predicate_of_a_store_is_not_that_of_its_marks() -> None:
    found = spots("conditional_store", ASSEMBLERS[0])
    assert not isinstance(found, str), found
    assert [spot.guard for spot in found] == ["", ""]


@pytest.mark.parametrize("tool", EACH)
def test_an_exit_in_place_of_a_conditional_store_is_not_the_end_of_its_block(tool: str) -> None:
    """Marks around the store are before the exit, for all lanes."""
    found = spots("last_store", tool)
    assert not isinstance(found, str), found
    machine = compiled(tool)["last_store"][1]
    assert any(one.name == "EXIT" and one.conditional for one in machine.function.instructions)
    assert [(spot.mark, spot.guard) for spot in found] == [(number, "") for number in range(4)]


@pytest.mark.parametrize("tool", EACH)
def test_marks_of_blocks_that_run_once_keep_the_order_of_the_text(tool: str) -> None:
    """Also if some blocks are found by their memory accesses, and others by what runs as often as they do."""
    found = spots("in_turn", tool)
    assert not isinstance(found, str), found
    assert [spot.mark for spot in found] == [0, 1, 2, 3]
    assert [spot.at for spot in found] == sorted(spot.at for spot in found)


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("selected", "without memory accesses"),
        ("unrolled_computing", "without memory accesses"),
        ("leaving", "without memory accesses"),
        ("invariant", "memory accesses are outside of it"),
    ],
)
def test_what_cannot_be_proved_is_refused_by_name(name: str, said: str, tool: str) -> None:
    found = spots(name, tool)
    assert isinstance(found, str), found
    assert found.startswith("region 'part': the code around its enter is") and said in found


def test_two_branches_of_one_code_are_distinguished_or_refused() -> None:
    found = spots("merged", ASSEMBLERS[0])
    if isinstance(found, str):
        return
    for seed in range(20):
        counts = walk("merged", ASSEMBLERS[0], found, seed)
        assert counts["enter one"] + counts["enter other"] == 1


def moved(name: str, number: int, to: int) -> None:
    """Check the marks of a kernel with one of them elsewhere."""
    (text, machine), found = compiled(ASSEMBLERS[0])[name], spots(name, ASSEMBLERS[0])
    assert not isinstance(found, str)
    changed = [replace(spot, at=to) if n == number else spot for n, spot in enumerate(found)]
    mark_order.check(text, machine, sorted(changed, key=lambda spot: spot.at))


def test_the_check_of_paths_accepts_what_was_placed_and_rejects_other_places() -> None:
    found = spots("whole", ASSEMBLERS[0])
    assert not isinstance(found, str)
    for number, spot in enumerate(found):
        moved("whole", number, spot.at)
    (_, machine) = compiled(ASSEMBLERS[0])["whole"]
    last = next(one.at for one in machine.function.instructions if one.name == "EXIT")
    for number in range(len(found)):
        with pytest.raises(UnsupportedError):
            moved("whole", number, last if number != len(found) - 1 else 0)


def test_a_region_open_on_one_path_of_the_machine_code_is_rejected() -> None:
    (text, machine), found = compiled(ASSEMBLERS[0])["branch"], spots("branch", ASSEMBLERS[0])
    assert not isinstance(found, str)
    with pytest.raises(UnsupportedError, match=r"open|follow"):
        mark_order.check(text, machine, found[:1])
