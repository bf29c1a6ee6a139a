"""The machine code that records, run by an interpreter: what it leaves is what the protocol and the marks demand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from ptxvm.host import Pool, Ring
from ptxvm.machine import Clocks, Grid
from sassvm.launching import Case, judged, launched

from kscope import ptx
from kscope.instrument.subset import Subset
from kscope.machine_code import elf
from kscope.marks.strategies import parse_strategy
from kscope.sass.cubin.instructions import BYTES
from kscope.sass.placing import basic_blocks, labels, place
from kscope.sass.recording import regions, register_choice, rows

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, needs_tools
from .test_recording import ENTER, EXIT, KERNEL, made, only

pytestmark = needs_tools
TURNS = f"""{HEAD}{ptx.control_symbol()}.visible .entry turns(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
LOOP:
    .pragma "nounroll";
{ENTER.format("load")}    ld.global.u32 %r4, [%d3];
{EXIT.format("load")}{ENTER.format("store")}    add.u32 %r4, %r4, %r3; st.global.u32 [%d3+1024], %r4;
{EXIT.format("store")}    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
{ENTER.format("last")}    st.global.u32 [%d1+8192], %r4;
{EXIT.format("last")}DONE:
    ret;
}}
"""
LEAVING = f"""{HEAD}{ptx.control_symbol()}.visible .entry leaving(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
{ENTER.format("all")}    bra.uni LOOP;
NEXT:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r1;
    @!%p1 bra DONE;
LOOP:
    .pragma "nounroll";
    and.b32 %r5, %r3, 1; setp.eq.u32 %p2, %r5, 1;
    @%p2 bra NEXT;
{ENTER.format("load")}    ld.global.u32 %r4, [%d3]; st.global.u32 [%d3+1024], %r4;
{EXIT.format("load")}    bra.uni NEXT;
DONE:
{EXIT.format("all")}    ret;
}}
"""
"""A loop that the entry falls into, and that ptxas leaves by a conditional exit in its middle."""
NEEDLESS = f"""{HEAD}{ptx.control_symbol()}.visible .entry needless(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
{ENTER.format("load")}    ld.global.u32 %r5, [%d1];
{EXIT.format("load")}    setp.lt.s32 %p1, %r1, 1;
    @%p1 bra DONE;
LOOP:
    .pragma "nounroll";
{ENTER.format("turn")}    ld.global.u32 %r4, [%d3]; add.u32 %r4, %r4, %r5; st.global.u32 [%d3+1024], %r4;
{EXIT.format("turn")}    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.s32 %p3, %r3, %r1;
    @%p3 bra LOOP;
DONE:
    ret;
}}
"""
"""ptxas leaves in front of the load where the loop runs no turn."""
AGAIN = f"""{HEAD}{ptx.control_symbol()}.visible .entry again(.param .u64 p, .param .u32 n) .reqntid 128
{{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, 0;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
{ENTER.format("store")}    st.global.u32 [%d3], %r2;
{EXIT.format("store")}    mul.lo.u32 %r4, %r2, %r1; xor.b32 %r4, %r4, %r2;
LOOP:
    .pragma "nounroll";
{ENTER.format("store")}    st.global.u32 [%d3+1024], %r4;
{EXIT.format("store")}    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    ret;
}}
"""
"""What stores the record of a region has no room before the next one of the same name, which a loop begins with."""
SIZED = replace(KERNEL, size_offset="4096")


@cache
def case(tool: str = "", kernel: ptx.Kernel = KERNEL, number: int = 3, text: str = TURNS, moved: bool = True) -> Case:
    """Threads up to a number turn as often. moved: the kernel moves the control block's address."""
    found = made(tool or ASSEMBLERS[0], text, kernel, moved)
    marks, cubin = frozenset(found.shared), found.data if moved else b""
    return Case(text, only(found.data), kernel, number, layouts=found.layouts, shared=marks, cubin=cubin)


@pytest.mark.parametrize("moved", [False, True], ids=["loaded", "moved"])
@pytest.mark.parametrize("tool", EACH)
def test_every_record_is_that_of_its_marks(tool: str, moved: bool) -> None:
    found = judged(case(tool, moved=moved))
    assert len(found.slabs) == 8
    assert sorted(len(found.ideals[slab.key].events) for slab in found.slabs) == [0] * 6 + [2 * 3 + 1] * 2


@pytest.mark.parametrize("tool", EACH)
def test_a_region_up_to_a_conditional_exit_ends_there(tool: str) -> None:
    leaving = case(tool, number=5, text=LEAVING)
    exits = [one for one in leaving.function.instructions if one.name == "EXIT" and one.conditional]
    assert exits
    found = judged(leaving)
    assert {len(found.ideals[slab.key].events) for slab in found.slabs} == {3 + 1}


@pytest.mark.parametrize("tool", EACH)
def test_what_stores_a_record_stays_in_front_of_a_loop_that_begins_with_its_region(tool: str) -> None:
    assert {slab.count for slab in judged(case(tool, number=4, text=AGAIN)).slabs} == {1 + 4}


@pytest.mark.parametrize("tool", EACH)
def test_where_ptxas_leaves_in_front_of_everything_nothing_is_recorded(tool: str) -> None:
    needless = case(tool, number=3, text=NEEDLESS)
    names = [one.name for one in only(assembled(NEEDLESS, tool)).instructions]
    assert names.index("EXIT") < names.index("LDG")
    found = judged(needless)
    assert {len(found.ideals[slab.key].events) for slab in found.slabs} == {1 + 3}
    assert {slab.count for slab in launched(replace(needless, number=0)).slabs} <= {0}


def test_a_record_stays_open_for_the_lanes_that_go_on() -> None:
    """So nothing else gets its registers behind a conditional exit."""
    text = labels.labeled(LEAVING)
    data = assembled(text.text)
    function = only(data)
    sides = basic_blocks.Text(text), basic_blocks.Machine(function, labels.statements(elf.read(data), function, text))
    found, pairs = place.spots(*sides), regions.overlapping_records(sides[0])
    leaves = {spot.at for spot in found if spot.guard}
    assert leaves and all(function.instructions[at // BYTES].name == "EXIT" for at in leaves)
    spans = register_choice.spans(rows.planned(*sides, regions.records(text), found, pairs, KERNEL), function)
    (whole,) = [span for key, span in spans.items() if key[0] == "all"]
    assert not leaves & whole.ends


def test_a_ring_keeps_the_newest() -> None:
    assert max(slab.count for slab in judged(case(number=11)).slabs) == 2 * 11 + 1 > 16


def test_the_size_of_a_slab_is_read_at_the_launch() -> None:
    assert {len(slab.ring) for slab in judged(replace(case(kernel=SIZED), size=32)).rows} == {32}


@pytest.mark.parametrize("spec", ["all", "lane0-warp0", "warps:1,2"])
def test_lanes_of_every_strategy_record(spec: str) -> None:
    recording = replace(KERNEL.recording, strategy=parse_strategy(spec))
    assert judged(case(kernel=replace(KERNEL, recording=recording, specs=(spec,)))).slabs


def test_at_rest_nothing_is_written() -> None:
    for shut in (replace(case(), epoch=0), replace(case(), bound=False), replace(case(moved=False), bound=False)):
        found = judged(shut)
        assert not found.slabs and all(access.size == 4 for access in found.host.memory.log)  # the kernel's own


@pytest.mark.parametrize(
    "pool",
    [
        Pool((Ring(14), Ring(5, head=7), Ring(5))),
        Pool((Ring(14), Ring(5, free=3), Ring(4, head=9, free=0))),
        Pool((Ring(0), Ring(0), Ring(6, head=0xFFFFFFFA))),
    ],
)
def test_lanes_without_room_try_again_and_count_what_they_lose(pool: Pool) -> None:
    found = judged(replace(case(), pool=pool))
    assert len(found.slabs) < 8


def test_lanes_that_find_their_ring_full_claim_from_the_reserve() -> None:
    found = judged(replace(case(), pool=Pool((Ring(14), Ring(5), Ring(14)))))
    assert len(found.slabs) == 8 and {slab.stripe for slab in found.slabs} == {1, 2}


@pytest.mark.parametrize(
    "subset",
    [
        Subset.of(range(1, 2), None, None),
        Subset.of(slice(0, None, 2), (0, 3), None),
        Subset.of(None, None, (0, 5)),
        Subset.of(None, (1,), (1, 5)),
    ],
)
def test_what_is_not_in_the_subset_does_not_record(subset: Subset) -> None:
    assert len(judged(replace(case(), subset=subset)).slabs) < 8


def test_blocks_are_numbered_in_three_dimensions() -> None:
    assert len(judged(replace(case(), shape=Grid((2, 2, 2), (128, 1, 1), (2, 1, 1), True))).slabs) == 32


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_any_pool_clocks_and_sampling(seed: int) -> None:
    dice = Random(seed)

    def ring() -> Ring:
        size = dice.choice((0, 3, 4, 5, 6, 7, 10))
        free = dice.choice((None, None, dice.randrange((1 << size) + 1)))
        return Ring(size, dice.choice((0, 7, dice.randrange(1 << 32), 0xFFFFFFFA)), free)

    steps = tuple(dice.choice((0, 1, 3, 70, 1 << 16, 1 << 31)) for _ in range(3))
    blocks = dice.choice((None, None, slice(dice.randrange(3), None, dice.choice((1, 2, 3)))))
    warps, sms = dice.choice((None, None, (0, 2))), dice.choice((None, None, (0, 5)))
    judged(
        replace(
            case(kernel=dice.choice((KERNEL, SIZED)), number=dice.choice((0, 1, 3, 24))),
            pool=Pool(tuple(ring() for _ in range(dice.choice((2, 3))))),
            subset=Subset.of(blocks, warps, sms),
            size=dice.choice((4, 8, 16)) if dice.random() < 0.5 else 16,
            epoch=dice.choice((6, 7)),
            smid=dice.choice((0, 1, 5, 131)),
            grid_id=dice.randrange(1 << 48),
            clocks=Clocks(dice.randrange(1 << 40), dice.randrange(1 << 60), steps),
        )
    )
