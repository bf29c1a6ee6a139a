"""A kernel asks for its slab in front of its loads, and looks at the answer in front of its first record's store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from ptxvm.host import Pool, Ring
from ptxvm.machine import Grid
from sassvm.launching import Case, judged

from kscope import ptx
from kscope.errors import UnsupportedError
from kscope.instrument.sampling import Sampling
from kscope.sass.checks import checking
from kscope.sass.cubin.control import control, controlled
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import Function
from kscope.sass.recording import asking, looking

from .kernels import ASSEMBLERS, EACH, HEAD, needs_tools
from .test_recording import ENTER, EXIT, KERNEL, made, only

pytestmark = needs_tools
_MANY = range(24)
_LOADS = " ".join(f"ld.global.u32 %v{n}, [%d3+{512 * n}];" for n in _MANY)
_USES = " ".join(f"xor.b32 %r5, %r5, %v{n};" for n in _MANY)
TEXT = f"""{HEAD}{ptx.control_symbol()}.visible .entry asking(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<12>, %v<{len(_MANY)}>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0; mov.u32 %r5, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
{ENTER.format("sum")}    {_LOADS}
LOOP:
    .pragma "nounroll";
    ld.global.u32 %r4, [%d3]; add.u32 %r5, %r5, %r4; add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r1; @%p1 bra LOOP;
    {_USES}
{EXIT.format("sum")}{ENTER.format("store")}    st.global.u32 [%d3+1024], %r5;
{EXIT.format("store")}    ret;
}}
"""
"""All warps stay together up to the first record, and the registers are enough."""
LEAVING = TEXT.replace(
    ENTER.format("sum"), f"    setp.eq.u32 %p2, %r1, 0; @%p2 bra DONE;\n{ENTER.format('sum')}"
).replace("    ret;", "DONE:\n    ret;")
"""Launches of no turn leave in front of everything."""
PARTED = LEAVING.replace("setp.eq.u32 %p2, %r1, 0;", "setp.eq.u32 %p2, %r2, 0;")
TWO = TEXT.replace(
    "    ret;",
    "".join(
        f"{ENTER.format(name)}    st.global.u32 [%d3+{at}], %r5;\n{EXIT.format(name)}"
        for name, at in (("a", 4096), ("b", 8192))
    )
    + "    ret;",
)
"""More records than a row has."""
SIZED = replace(KERNEL, size_offset="4096")


@contextmanager
def checked() -> Iterator[tuple[list[Insertion], list[str]]]:
    """What is inserted into kernels, and what the checkers say against it."""
    real, seen, said = checking.check, list[Insertion](), list[str]()

    def check(data: bytes, before: Function, insertion: Insertion, holding: Any) -> None:
        seen.append(insertion)
        try:
            real(data, before, insertion, holding)
        except UnsupportedError as error:
            said.append(str(error))
            raise

    with patch.object(checking, "check", check):
        yield seen, said


@cache
def case(tool: str = "", kernel: ptx.Kernel = KERNEL, number: int = 3) -> Case:
    with checked() as (seen, said):
        found = made.__wrapped__(tool or ASSEMBLERS[0], TEXT, kernel)
    assert looks(seen[-1]) == 1 and not said
    return Case(TEXT, only(found.data), kernel, number, layouts=found.layouts, shared=frozenset(found.shared))


def looks(insertion: Insertion) -> int:
    """How many looks at an answer there are."""
    return sum(one.to == "answer" for some in insertion.before.values() for one in some)


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("kernel", [KERNEL, SIZED, replace(KERNEL, flat=True)], ids=["", "sized", "flat"])
def test_every_record_is_that_of_its_marks(tool: str, kernel: ptx.Kernel) -> None:
    found = judged(case(tool, kernel))
    assert [slab.count for slab in found.slabs] == [2] * 8


def test_the_atomic_is_on_its_way_while_the_kernel_loads() -> None:
    """No own instruction waits for it, and between the two there is a loop of loads."""
    function = case().function
    names = [one.name for one in function.instructions]
    answer = next(one for one in function.instructions if one.target is not None and _asks(function, one.target))
    assert names.index("LDG") * 16 < answer.at


def _asks(function: Function, at: int) -> bool:
    """Whether a branch leads to an atomic."""
    return "ATOMG" in [one.name for one in function.instructions if at <= one.at < at + 16 * 120]


@pytest.mark.parametrize("shut", [{"epoch": 0}, {"bound": False}])
def test_at_rest_nothing_is_written(shut: dict[str, Any]) -> None:
    found = judged(replace(case(), **shut))
    assert not found.slabs and all(access.size == 4 for access in found.host.memory.log)


@pytest.mark.parametrize(
    ("pool", "slabs"),
    [
        (Pool((Ring(14), Ring(5, head=7), Ring(5))), range(1, 8)),
        (Pool((Ring(14), Ring(5, free=3), Ring(4, head=9, free=0))), range(8)),
        (Pool((Ring(0), Ring(0), Ring(6, head=0xFFFFFFFA))), range(1, 8)),
        (Pool((Ring(14), Ring(5), Ring(14))), [8]),
    ],
)
def test_lanes_whose_answer_is_no_try_again(pool: Pool, slabs: Any) -> None:
    assert len(judged(replace(case(), pool=pool)).slabs) in slabs


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling.of(range(1, 2), None, None),
        Sampling.of(slice(0, None, 2), (0, 3), None),
        Sampling.of(None, (1,), (1, 5)),
    ],
)
def test_what_is_not_sampled_asks_for_nothing(sampling: Sampling) -> None:
    """The first warp still writes the launch's entry."""
    assert len(judged(replace(case(), sampling=sampling)).slabs) < 8


def test_blocks_are_numbered_in_three_dimensions() -> None:
    assert len(judged(replace(case(), shape=Grid((2, 2, 2), (128, 1, 1), (2, 1, 1), True))).slabs) == 32


@pytest.mark.parametrize("text", [LEAVING, PARTED], ids=["leaves before", "parted"])
def test_a_kernel_that_may_leave_before_or_part_claims_in_one_part(text: str) -> None:
    with checked() as (seen, said):
        made.__wrapped__(ASSEMBLERS[0], text, KERNEL)
    assert [looks(one) for one in seen] == [0] and not said


def refused(text: str = TEXT) -> set[str]:
    """What the checkers say against claims in two parts, after which the kernel claims in one."""
    with checked() as (seen, said):
        made.__wrapped__(ASSEMBLERS[0], text, KERNEL)
    assert said and looks(seen[-1]) == 0
    return {one.partition(": ")[2].partition(": ")[2].partition(",")[0] for one in said}


def test_an_answer_that_is_not_waited_for_is_refused() -> None:
    real = asking._looks

    def hasty(*given: Any) -> Any:
        return [
            replace(one, word=controlled(one.word, replace(control(one.word), waits=frozenset())))
            for one in real(*given)
        ]

    with patch.object(asking, "_looks", hasty):
        assert any("may not be written yet" in one for one in refused())


def test_a_store_in_front_of_the_answer_is_refused() -> None:
    def late(function: Function, stores: Any) -> list[int]:
        return [max(stores)]

    with patch.object(looking, "places", late):
        assert any("written" in one or "slab" in one for one in refused(TWO))


def test_an_exit_in_front_of_the_answer_is_refused() -> None:
    """There, other values are in the registers of the slab's address."""
    real = looking.places

    def anywhere(function: Function, stores: Any) -> list[int]:
        never = tuple(
            replace(one, code="NOP") if one.name == "EXIT" and one.conditional else one for one in function.instructions
        )
        return real(replace(function, instructions=never), stores)

    with patch.object(looking, "places", anywhere):
        assert any("is not of the warp's slab on every path" in one for one in refused(LEAVING))


def test_an_answer_in_a_register_that_the_kernel_writes_meanwhile_is_refused() -> None:
    real = asking._uniform

    def own(function: Function, *given: Any) -> dict[str, int]:
        used = [name for one in function.instructions for name in one.writes if name.startswith("UR")]
        return real(function, *given) | {"stripe": int(used[-1][2:])}

    with patch.object(asking, "_uniform", own):
        assert any("UR" in one for one in refused())


def test_warps_that_have_parted_do_not_look_at_one_answer() -> None:
    real = looking.places
    whole = "kscope.sass.recording.looking.parting.whole"

    def always(flow: Any, by_address: Any, new: Any) -> frozenset[int]:
        return frozenset(flow)

    def places(function: Function, stores: Any) -> list[int]:
        with patch(whole, always):
            never = tuple(
                replace(one, code="NOP") if one.name == "EXIT" and one.conditional else one
                for one in function.instructions
            )
            return real(replace(function, instructions=never), stores)

    with patch.object(looking, "places", places):
        assert any("R2UR" in one or "slab" in one for one in refused(PARTED))


def test_the_answer_has_a_scoreboard_that_the_kernel_does_not_wait_for() -> None:
    """So its own loads are not waited for together with the atomic."""
    function = only(made(ASSEMBLERS[0], TEXT, KERNEL).data)
    atomic = next(one for one in function.instructions if one.name == "ATOMG")
    own = [one for one in function.instructions if one.name == "IMAD" and one.at < atomic.at]
    assert atomic.control.writes is not None
    assert all(atomic.control.writes not in one.control.waits for one in own)
