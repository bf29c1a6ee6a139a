"""Rows with three clocks in machine code: which records are in one, what is checked, and what warps leave behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from ptxvm.host import Pool, Ring
from ptxvm.machine import Clocks
from sassvm.launching import Case, Outcome, judged

from kscope import ptx
from kscope.capture import wire
from kscope.capture.layout import Kind, record_id
from kscope.sass.checks import record_words
from kscope.sass.cubin.insertion import Word
from kscope.sass.cubin.instructions import BYTES, Function
from kscope.sass.encoding import writing
from kscope.sass.recording.kernel import Recorded

from .kernels import ASSEMBLERS, EACH, HEAD, needs_tools
from .loaded import record_stores
from .test_recording import KERNEL, made, only
from .test_runs import SIZED


def region(name: str, body: str, value: str = "", when: str = "") -> str:
    typed = "u32" if value else "-"
    said = "".join(f" {one}" for one in (f"with {value}" if value else "with", f"@{when}" if when else "") if one)
    return f"    //kscope enter {name} {typed} -{said}\n{body}    //kscope exit {name} {typed} - with\n"


def kernel(body: str, before: str = "") -> str:
    """Threads below a number turn as often; thread 0's warp records."""
    return f"""{HEAD}{ptx.control_symbol()}.visible .entry rows(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<6>; .reg .b32 %r<12>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0; mov.u32 %r4, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
{before}LOOP:
    .pragma "nounroll";
{body}    add.u64 %d3, %d3, 64; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
DONE:
    ret;
}}
"""


def store(place: int) -> str:
    return f"    add.u32 %r4, %r4, %r3; st.global.u32 [%d3+{place}], %r4; bar.warp.sync 0xffffffff;\n"


LOAD = "    ld.global.u32 %r4, [%d3]; bar.warp.sync 0xffffffff;\n"
BODIES = {
    "pair": region("load", LOAD) + region("store", store(1024)),
    "nested": region("turn", region("load", LOAD) + store(1024)),
    "triple": region("turn", region("load", LOAD) + region("store", store(1024))),
    "five": "".join(region(f"part{n}", store(1024 + 4 * n)) for n in range(5)),
    "apart": region("load", LOAD) + store(2048) + region("store", store(1024)),
    "instant": region("load", LOAD) + "    //kscope instant here - - call\n" + region("store", store(1024)),
    "value": region("load", LOAD) + region("store", store(1024), value="%r3"),
    "branch": region("load", LOAD) + "    setp.eq.u32 %p4, %r4, 7; @%p4 bra OVER;\n" + region("store", store(1024))
    + "OVER:\n" + region("last", store(1028)),
    "around": region("turn", region("load", LOAD) + "    setp.eq.u32 %p4, %r4, 7; @%p4 bra OVER;\n" + store(1024)
    + "OVER:\n"),
}  # fmt: skip
MIXED = kernel(
    BODIES["triple"]
    + "    and.b32 %r5, %r3, 1; setp.eq.u32 %p4, %r5, 1; @%p4 bra ODD;\n"
    + region("even", store(1028))
    + "ODD:\n"
    + region("valued", store(1032), value="%r3")
    + "    //kscope instant here - - call\n"
    + region("outer", region("inner", store(1036)) + store(1040)),
    before=region("first", store(2048)),
)


def layouts(found: Recorded) -> set[tuple[tuple[str, int, int], ...]]:
    """Region, start and end of the records of each row."""
    names = {record_id(mark.name, Kind.SPAN): mark.name for mark in found.marks}
    return {tuple((names[number], start, end) for number, start, end in one.records) for one in found.layouts}


@needs_tools
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pair", {(("load", 0, 1), ("store", 1, 2))}),
        ("nested", {(("load", 0, 1), ("turn", 0, 2))}),
        ("triple", {(("load", 0, 1), ("store", 1, 2), ("turn", 0, 2))}),
        ("five", {(("part0", 0, 1), ("part1", 1, 2)), (("part2", 0, 1), ("part3", 1, 2))}),
        ("apart", set()),
        ("instant", set()),
        ("value", set()),
        ("branch", set()),
        ("around", {(("load", 0, 1), ("turn", 0, 2))}),
    ],
)
def test_records_that_share_clocks_in_a_fixed_order_are_in_a_row(
    name: str, expected: set[tuple[tuple[str, int, int], ...]]
) -> None:
    assert layouts(made(ASSEMBLERS[0], kernel(BODIES[name]))) == expected


@cache
def case(text: str, number: int = 3, kernel: ptx.Kernel = KERNEL, tool: str = "") -> Case:
    found = made(tool or ASSEMBLERS[0], text, kernel)
    return Case(text, only(found.data), kernel, number, layouts=found.layouts, shared=frozenset(found.shared))


def rows(found: Outcome) -> list[int]:
    """Ids of the rows with three clocks that are there."""
    ids = [int(number) for slab in found.rows for number in slab.ring["id"]]
    return [number for number in ids if number & 15 == wire.CLOCKS and number != wire.EXTRA_ID]


@needs_tools
@pytest.mark.parametrize("tool", EACH)
def test_their_records_are_those_of_the_marks(tool: str) -> None:
    found = judged(case(MIXED, tool=tool))
    assert len(case(MIXED, tool=tool).layouts) == 2 and len(rows(found)) == 2 * 3 * 2


@needs_tools
@pytest.mark.parametrize("number", [5, 6, 7, 40])
@pytest.mark.parametrize(
    "text", [MIXED, kernel(BODIES["pair"]), kernel(BODIES["triple"])], ids=["mixed", "pair", "triple"]
)
def test_of_a_ring_that_overflowed_all_records_are_counted(text: str, number: int) -> None:
    found = judged(case(text, number))
    for raw, slab in zip(found.rows, found.slabs, strict=True):
        last = raw.ring[(raw.count - 1) % len(raw.ring)]["id"]
        assert (last == wire.EXTRA_ID) == (raw.count > len(raw.ring))
        assert slab.count == len(found.ideals[slab.key].events)


@needs_tools
@pytest.mark.parametrize("number", [15, 16, 17])
def test_a_full_ring_needs_no_last_row(number: int) -> None:
    found = judged(case(kernel(BODIES["triple"]), number))
    assert {raw.count for raw in found.rows if raw.count} == {number + (number > 16)}


ONCE = (
    kernel(BODIES["triple"])
    .replace("LOOP:\n", "")
    .replace("    @%p3 bra LOOP;\n", "")
    .replace('    .pragma "nounroll";\n', "")
)


@needs_tools
@pytest.mark.parametrize("log2", [2, 4])
def test_where_no_ring_can_overflow_nothing_is_counted(log2: int) -> None:
    """Each mark runs once at most, and there is room for all records."""
    of = case(ONCE, kernel=replace(KERNEL, log2_records=log2))
    assert of.layouts and len(rows(judged(of))) == 2
    assert len(record_stores(of.function.instructions)) == 1


@needs_tools
def test_a_slab_whose_size_is_read_at_the_launch_overflows_too() -> None:
    for number in (3, 8, 30):
        judged(replace(case(MIXED, number, SIZED), size=8))


@needs_tools
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))])
def test_any_clocks_pools_and_rings(seed: int) -> None:
    dice = Random(seed)
    steps = tuple(dice.choice((0, 1, 3, 70, 1 << 16, 1 << 31)) for _ in range(3))
    of = case(MIXED, dice.choice((0, 1, 3, 24)), dice.choice((KERNEL, SIZED)))
    rings = tuple(Ring(dice.choice((3, 4, 5, 7, 10)), dice.choice((0, 7, 0xFFFFFFFA))) for _ in range(2))
    size = dice.choice((4, 8, 16)) if of.kernel.sized else 16
    judged(
        replace(of, pool=Pool(rings), size=size, clocks=Clocks(dice.randrange(1 << 40), dice.randrange(1 << 60), steps))
    )


ROW = ("load, store", "row 0x17")
CLOCK, ID, COUNT = (Word(ROW, clock=n) for n in range(3)), Word(ROW), Word(ROW, "count", more=1)
FIRST, SECOND, THIRD = CLOCK
STORE = Word(ROW, more=1)
RIGHT: tuple[tuple[str, Word], ...] = (
    ("IMAD.MOV.U32 R9, RZ, RZ, 0x17", ID),
    ("CS2R.32 R8, SR_CLOCKLO", FIRST),
    ("CS2R.32 R10, SR_CLOCKLO", SECOND),
    ("CS2R.32 R11, SR_CLOCKLO", THIRD),
    ("@P6 IADD3 R20, R20, 0x1, RZ", COUNT),
    ("@P6 STG.E.128 desc[UR60][R4.64+0x20], R8", STORE),
)


def wrong(code: Iterable[tuple[str, Word]]) -> list[str]:
    """The checker's findings in code of a row."""
    parts = [*code]
    some = [
        replace(writing.parsed(text), at=BYTES * place)
        for place, text in enumerate([*(text for text, _ in parts), "EXIT"])
    ]
    function = Function("k", ".text.k", tuple(some))
    return [one.what for one in record_words.check(function, {BYTES * n: word for n, (_, word) in enumerate(parts)})]


def changed(place: int, text: str) -> list[tuple[str, Word]]:
    return [(text if n == place else code, word) for n, (code, word) in enumerate(RIGHT)]


def without(place: int) -> list[tuple[str, Word]]:
    return [*RIGHT[:place], *RIGHT[place + 1 :]]


def test_a_row_with_its_clocks_and_its_count_is_accepted() -> None:
    assert wrong(RIGHT) == []


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ([*RIGHT[:2], (RIGHT[3][0], SECOND), (RIGHT[2][0], THIRD), *RIGHT[4:]], "R10 is not clock 1"),
        ([*RIGHT[:2], RIGHT[3], RIGHT[2], *RIGHT[4:]], "clock 2 of row 'load, store' is read before"),
        (without(1), "clock 1 of row 'load, store' is read before"),
        (without(3), "R11 of record 'load, store' was not written by its marks alone"),
        (without(4), "not counted where it is stored"),
        ([*RIGHT[:5], RIGHT[4], RIGHT[5]], "counted twice"),
        (changed(4, "@P6 IADD3 R20, R20, 0x2, RZ"), "expected 1 more"),
        (changed(4, "@P6 IADD3 R20, R21, 0x1, RZ"), "expected 1 more"),
        ([*RIGHT, *RIGHT[4:]], "R10 of record 'load, store' was not written by its marks alone"),
        ([(one, Word(("other", ""), word.kind)) if n == 2 else (one, word) for n, (one, word) in enumerate(RIGHT)],
         "R10 of record 'load, store' was not written"),
    ],
    ids=["swapped", "order", "no first", "no third", "not counted", "twice", "wrong number", "wrong register", "stale",
         "foreign"],
)  # fmt: skip
def test_a_wrong_row_is_found(code: list[tuple[str, Word]], what: str) -> None:
    assert any(what in one for one in wrong(code)), wrong(code)


ASIDE = (RIGHT[0], ("CS2R.32 R30, SR_CLOCKLO", FIRST), *RIGHT[2:5], ("MOV R8, R30", FIRST), RIGHT[5])


def test_a_clock_may_wait_elsewhere_for_one_record() -> None:
    assert wrong(ASIDE) == []
    stale = [*ASIDE, *ASIDE[:1], *ASIDE[2:]]
    assert any("R30 has no clock of record 'load, store'" in one for one in wrong(stale))
    other = [*ASIDE[:5], ("MOV R8, R31", FIRST), ASIDE[6]]
    assert any("R31 has no clock of record 'load, store'" in one for one in wrong(other))


def test_a_count_under_another_predicate_is_found() -> None:
    assert any("not counted where it is stored" in one for one in wrong(changed(4, "@P5 IADD3 R20, R20, 0x1, RZ")))
