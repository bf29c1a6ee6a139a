"""Random kernels, recorded in machine code and judged; and the smallest kernels of the defects that these found."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache

import pytest
from ptxvm.machine import Grid
from ptxvm.writing import Node
from sassvm.launching import ROOMY

from kscope import ptx
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.machine_code import elf
from kscope.marks.strategies import AllThreads
from kscope.sass.cubin import reading

from .fuzzing import batches, cases, judging, renamed, shrinking
from .fuzzing.__main__ import judged, summary
from .fuzzing.texts import Outline
from .kernels import ASSEMBLERS, assembled, functions, needs_tools
from .test_runs import LEAVING, TURNS

pytestmark = needs_tools
SAMPLE = (*range(5000, 5006), 110_022)
"""The last one sets predicates from the bits of a register (R2P)."""
ALL = ptx.Kernel(Recording(records=16, strategy=AllThreads()), ("all",), 4, cases.ID, 90, flat=True)
DEPTH, LOAD = Node("point", ("depth", "7", None)), Node("region", ("load", None, None), ((),))
LOADED = Node("load", (4, 8, 2, 6))
EARLIER = Node("store", (4, 9, 0, 8))
STORE, RED = Node("store", (5, 8, 0, 0)), Node("atomic", (3, 0, 0, 0))
SHORT = (Node("guarded", (2, 11, 3, 5)), Node("select", (5, 0, 3, 0)), Node("copy", (0, 0, 0, 0)))


def loop(times: str, shape: str, *nodes: Node) -> Node:
    return Node("loop", (times, shape, ""), (nodes,))


def valued(name: str, value: str | None, *nodes: Node, when: str | None = None) -> Node:
    return Node("region", (name, value, when), (nodes,))


def case(*nodes: Node, block: tuple[int, int, int] = (32, 1, 1), live: int = 0) -> cases.Drawn:
    """A case in which every thread records."""
    return replace(
        cases.drawn(0), outline=Outline(90, block, nodes, live), tool=ASSEMBLERS[0], number=2, renamed=False,
        elsewhere=False, bound=True, epoch=7, shape=Grid((1, 1, 1), block), subset=Subset(), pool=ROOMY, kernel=ALL,
    )  # fmt: skip


FOUND = {
    "of a value's stores an unrolled loop has only the last": (
        case(loop("8", "bottom", Node("point", ("load", "%v1", None)))),
        "shown by stores that later iterations overwrite",
    ),
    "a region ends before the instruction that has its value": (
        case(valued("dot", "%v3", loop("3", "top")), block=(33, 1, 1), live=12),
        "would end before its value",
    ),
    "some threads run no mark, and store": (
        case(DEPTH, Node("if", ("lane", "%v4", 1), (SHORT, ())), STORE),
        "an exit would follow the entry",
    ),
    "one lane adds for its warp, beside an instant": (case(RED, DEPTH), ""),
    "one lane adds for its warp, beside a region": (case(RED, LOAD), ""),
    "a region ends right behind the move of its predicate": (
        case(valued("load", None, when="%v3"), block=(33, 1, 1), live=12),
        "",
    ),
    "a region ends right behind the move of its predicate, whose store was counted": (
        case(valued("step", "-2", when="%v3"), loop("%n", "guarded", RED)),
        "",
    ),
    "no mark records, and registers are few": (case(valued("dot", "%v2", STORE, when="0"), live=48), ""),
    "a value waits for its region, and an instant stands between": (
        case(
            Node("if", ("warp", "%v5", 1), ((valued("step", "-2", DEPTH, valued("dot", "%v5"), EARLIER),), ())),
            block=(33, 1, 1),
            live=48,
        ),
        "",
    ),
    "local memory is stored right in front of an exit": (case(Node("copy", (5, 2, 3, 7))), ""),
    "a value is held right in front of an exit": (
        case(Node("point", ("tick", None, None)), valued("step", "%v4", LOADED)),
        "",
    ),
}
"""Kernels that were recorded wrongly once, or failed; and why they are refused, empty if they are recorded."""


@cache
def verdicts() -> dict[str, judging.Verdict]:
    """The defects, with one call of nvdisasm for all."""
    with judging.watched():
        return dict(zip(FOUND, batches.mapped(judging.verdict, [one for one, _ in FOUND.values()]), strict=True))


@pytest.mark.parametrize("name", FOUND)
def test_what_was_recorded_wrongly_is_refused_or_recorded_right(name: str) -> None:
    found, reason = verdicts()[name], FOUND[name][1]
    assert found.wrong == ""
    assert re.search(reason, found.refused) if reason else found.refused == ""


def test_random_kernels_record_their_marks_or_are_refused_with_a_reason() -> None:
    found = [what for _, what in judged(SAMPLE)]
    assert [one.wrong for one in found if one.wrong] == []
    assert any(one.records for one in found) and any(one.refused for one in found)
    assert f"{len(SAMPLE)} cases" in summary(found)


@pytest.mark.slow
def test_many_random_kernels() -> None:
    """KSCOPE_FUZZ_CASES in the environment: how many."""
    many = int(os.environ.get("KSCOPE_FUZZ_CASES", "300"))
    wrong = [f"seed {drawn.seed}: {what.wrong}" for drawn, what in judged(range(10_000, 10_000 + many)) if what.wrong]
    assert wrong == []


def test_one_call_of_nvdisasm_reads_what_several_read() -> None:
    """But for the numbers of labels."""

    def plain(data: bytes) -> list[tuple[object, ...]]:
        return [
            (one.at, one.word, one.guard, one.code, one.reads, one.writes, one.target)
            for function in reading.functions(data)
            for one in function.instructions
        ]

    cubins = [assembled(text) for text in (TURNS, LEAVING)]
    assert list(batches.mapped(plain, cubins)) == [plain(data) for data in cubins]


def test_a_kernel_with_other_registers_is_the_same_kernel() -> None:
    data = assembled(TURNS)
    pair = renamed.code(data, "turns", cases.Random(3))
    assert pair is not None and pair[0] != pair[1]
    (before,), (after,) = functions(data), functions(renamed.exchanged(data, *pair))
    assert [one.code for one in before.instructions] == [one.code for one in after.instructions]
    assert elf.read(data).find(before.section) is not None


def test_a_case_shrinks_to_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(drawn: cases.Drawn) -> judging.Verdict:
        return judging.Verdict(wrong="it has an atomic" if "atomic" in str(drawn.outline.nodes) else "")

    monkeypatch.setattr(shrinking, "verdict", verdict)
    small, what = shrinking.shrunk(case(DEPTH, loop("3", "top", LOAD, RED), STORE))
    assert (small.outline.nodes, what.wrong) == ((RED,), "it has an atomic")
