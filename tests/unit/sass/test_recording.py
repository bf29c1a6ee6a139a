"""A kernel with regions becomes the plain kernel and instructions that record, which the checkers accept."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from kscope import ptx
from kscope.capture import layout, wire
from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.machine_code.elf import read
from kscope.sass.checks import clobbers, hazards
from kscope.sass.cubin.instructions import Function, Instruction
from kscope.sass.encoding import renaming
from kscope.sass.encoding.renaming import Names
from kscope.sass.placing import basic_blocks, labels, place
from kscope.sass.recording import fragments
from kscope.sass.recording.kernel import Recorded, record_kernel

from .kernels import ASSEMBLERS, EACH, HEAD, assembled, functions, needs_tools
from .loaded import record_stores, slab_stores
from .stripping import lines, printed, stripped

pytestmark = needs_tools
KERNEL = ptx.Kernel(Recording(records=16), ("elected",), 4, ("0x11112222", "0x33334444"), 90)
CONTROL = 0x7F34_1234_5678
ENTER, EXIT = "    //kscope enter {} - - with\n", "    //kscope exit {} - - with\n"
PLAIN = (
    HEAD
    + ptx.control_symbol()
    + """.visible .entry sums(.param .u64 p, .param .u32 n) .reqntid 128
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .f32 %f<8>; .shared .align 16 .b8 kept[512];
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; cvta.to.global.u64 %d1, %d1;
    mov.u32 %r2, %tid.x; mov.u32 %r3, 0; mov.f32 %f1, 0f00000000; mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
LOOP:
    ld.global.f32 %f2, [%d3]; st.shared.f32 [kept], %f2;
    bar.sync 0; ld.shared.f32 %f3, [kept+4]; fma.rn.f32 %f1, %f3, %f3, %f1; bar.sync 0;
    add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, %r1;
    @%p3 bra LOOP;
    st.global.f32 [%d3], %f1;
DONE:
    ret;
}
"""
).replace("LOOP:\n", 'LOOP:\n    .pragma "nounroll";\n')
MARKED = (
    PLAIN.replace("    ld.global.f32 %f2", ENTER.format("load") + "    ld.global.f32 %f2")
    .replace("    bar.sync 0; ld.sh", EXIT.format("load") + ENTER.format("sum") + "    bar.sync 0; ld.sh")
    .replace("    add.u64 %d3, %d3, 512", EXIT.format("sum") + "    add.u64 %d3, %d3, 512")
    .replace("    st.global.f32 [%d3]", ENTER.format("store") + "    st.global.f32 [%d3]")
    .replace("%f1;\nDONE", f"%f1;\n{EXIT.format('store')}DONE")
)


@cache
def made(tool: str, text: str = MARKED, kernel: ptx.Kernel = KERNEL, moved: bool = False) -> Recorded:
    def assemble(text: str, table: bool) -> bytes:
        return assembled(text, tool, ("-lineinfo",) if table else ())

    return record_kernel(text, kernel, assemble, moved=moved)


def only(data: bytes) -> Function:
    (kernel,) = functions(data)
    return kernel


@pytest.mark.parametrize("tool", EACH)
def test_each_region_is_stored_where_it_ends(tool: str) -> None:
    """Two of them in one row: the end of the first is the begin of the second. Its first clock waits elsewhere."""
    assert MARKED.count("//kscope") == 6
    found = made(tool)
    code, (about,) = only(found.data).instructions, found.layouts
    names = {layout.record_id(name, layout.Kind.SPAN): name for name in ("load", "sum", "store")}
    assert [(names[number], start, end) for number, start, end in about.records] == [("load", 0, 1), ("sum", 1, 2)]
    clocks = {layout.record_id("store", layout.Kind.SPAN): (0, 2), about.row_id: (0, 2, 3)}
    stored = []
    *stores, _ = [n for n in record_stores(code) if code[n].conditional]  # the last: of a ring that overflowed
    for number in stores:
        first = int(code[number].operands[-1][1:])
        moves = [move for move in code if move.code == "IMAD.MOV.U32" and move.operands[0] == f"R{first + 1}"]
        ids = [number_of(move) for move in moves if number_of(move) in clocks]
        stored += ids
        behind = [one.operands[0] for one in reversed(code[:number]) if one.code == "CS2R.32"]
        elsewhere = {one.operands[0]: one.operands[1] for one in code[:number] if one.code == "MOV"}
        words = [f"R{first + word}" for word in clocks[ids[0]]]
        order = [behind.index(word if word in behind else elsewhere[word]) for word in words]
        assert order == sorted(order, reverse=True)  # each clock was read before the next
    assert Counter(stored) == Counter(clocks.keys())
    assert sum(one.code == "CS2R.32" for one in code) == 5 + 2  # and those of the anchors


def number_of(move: Instruction) -> int:
    return int(move.operands[-1], 16) & 0xFFFFFFFF if move.operands[-1].lstrip("-").startswith("0x") else 0


@pytest.mark.parametrize("tool", EACH)
def test_the_rest_is_the_plain_kernel(tool: str) -> None:
    """But for a scoreboard of the store in front of an exit, which the end of the slab waits for."""
    out, kept = made(tool), []
    plain = stripped(printed(assembled(PLAIN, tool), "sums"), frozenset())
    expected = [one for one in plain if one[1] != "NOP"]
    mine = stripped(printed(out.data, "sums"), frozenset())
    rest = iter(mine)
    for one in expected:
        kept.append(next((other for other in rest if alike(one, other)), None))
    assert None not in kept
    assert sum(one[8] != other[8] for one, other in zip(expected, kept, strict=True) if other) <= 2


def alike(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """The same instruction; targets are numbers that differ, and a scoreboard may have been added (8)."""
    return (*one[:4], *one[5:8], one[9]) == (*other[:4], *other[5:8], other[9])


@pytest.mark.parametrize("tool", EACH)
def test_both_checkers_accept_it_and_reject_it_without_a_wait(tool: str) -> None:
    kernel = only(made(tool).data)
    assert hazards.check(kernel) == ()
    own = {one.word for one in only(assembled(PLAIN, tool)).instructions}
    new = frozenset(one.at for one in kernel.instructions if one.word not in own)
    assert [one for one in clobbers.check(kernel, new) if "needs" in one.what] == []


def test_the_claim_reads_the_address_of_the_control_block_from_the_modules_constant() -> None:
    """The constant is where the symbol is that a loaded module is armed by, here behind another one."""
    text = MARKED.replace(".weak .const", ".visible .const .align 8 .u64 mine;\n.weak .const", 1)
    out = made(ASSEMBLERS[0], text)
    (symbol,) = [one for one in read(out.data).symbols() if one.name == wire.CTL_SYMBOL]
    loads = [one for one in only(out.data).instructions if one.code == "LDC.64" and "c[0x3]" in one.operands[-1]]
    assert [one.operands[-1] for one in loads] == [f"c[0x3][{symbol.value:#x}]"]


def test_a_module_without_the_constant_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="has no kscope_ctl"):
        made(ASSEMBLERS[0], MARKED.replace(ptx.control_symbol(), ""))


def test_a_ring_whose_size_follows_the_launches_is_indexed_by_a_register() -> None:
    out = made(ASSEMBLERS[0], kernel=replace(KERNEL, size_offset="4096"))
    code = only(out.data).instructions
    masks = {one.operands[2] for one in code if one.code == "LOP3.LUT" and one.operands[-2:] == ("0xc0", "!PT")}
    loads = [one for one in code if one.name == "LDG" and "+0x1000]" in one.operands[-1]]
    assert len(loads) == 1
    assert any(mask.startswith("R") for mask in masks)


def test_the_line_table_is_the_users() -> None:
    """Every own instruction has the line that it has without kscope."""
    text = MARKED.replace("    ld.param.u64 %d1", "    .loc 1 70 0\n    ld.param.u64 %d1", 1)
    text = text.replace("    bar.sync 0; ld.sh", "    .loc 1 80 0\n    bar.sync 0; ld.sh") + '.file 1 "/sums.cu"\n'
    out = record_kernel(text, KERNEL, lambda text, table: assembled(text))
    assert {line for _, line in lines(out.data).values()} == {"70", "80"}


def test_the_result_has_registers_warps_and_spots() -> None:
    out = made(ASSEMBLERS[0])
    before, now = out.registers
    assert before < now <= 64 and out.warps[1] <= out.warps[0]
    code = only(out.data).instructions
    assert now >= 3 + max(int(name[1:]) for one in code for name in one.reads | one.writes if name[0] == "R")
    assert len(out.spots) == 6


def test_recording_lanes_close_the_slab_in_place_of_each_exit() -> None:
    """The end of the slab stands once, behind the kernel; without a slab, an exit costs a branch that is not taken."""
    code = only(made(ASSEMBLERS[0]).data).instructions
    (closing,) = slab_stores(code, 0x10)
    ways = [one for one in code if one.name == "BRA" and one.target is not None and one.target > one.at]
    ends = [one for one in ways if one.guard == "@P6" and code[closing - 40].at < (one.target or 0) < code[closing].at]
    plain = [one for one in only(assembled(PLAIN)).instructions if one.name == "EXIT"]
    assert len(ends) == len(plain) > 0
    assert len({one.target for one in ends}) == 1
    assert code[closing + 1].name == "EXIT" or code[closing + 2].name == "EXIT"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("enter load - -", "enter load - all", "another strategy"),
        ("enter sum", "enter other", "'sum' ends where it is not open"),
        ("    //kscope exit load - - with\n", "", "is open on one path only"),
        ("enter load - - with\n", "enter load - - with\n    //kscope pin - - - call %r1\n", "pins are not supported"),
        ("enter load - - with", "enter load i64 - with %rd1", "has 64 bits"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(old: str, new: str, said: str) -> None:
    text = MARKED.replace(old, new, 1)
    with pytest.raises(UnsupportedError, match=said):
        made(ASSEMBLERS[0], text)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (replace(KERNEL, recording=Recording(records=16, fill="stop")), "fill='stop'"),
        (replace(KERNEL, recording=Recording(records=16, clock="globaltimer")), "clock='globaltimer'"),
        (replace(KERNEL, specs=("all", "elected")), "the strategies all, elected"),
        (replace(KERNEL, arch=100), "sm_100"),
    ],
)
def test_options_that_are_not_supported_are_refused_by_name(kernel: ptx.Kernel, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        made(ASSEMBLERS[0], kernel=kernel)


def test_marks_stand_between_landmarks_in_their_order() -> None:
    found = labels.labeled(MARKED)
    data = assembled(found.text)
    kernel = only(data)
    spots = place.spots(
        basic_blocks.Text(found), basic_blocks.Machine(kernel, labels.statements(read(data), kernel, found))
    )
    (load,) = [one.at for one in kernel.instructions if one.name == "LDG"]
    barriers = [one.at for one in kernel.instructions if one.name == "BAR"]
    enter_load, exit_load, enter_sum, exit_sum, enter_store, exit_store = (one.at for one in spots)
    assert enter_load <= load < exit_load <= enter_sum <= barriers[0] < barriers[1] < exit_sum
    assert exit_sum < enter_store < exit_store
    assert spots[3].behind_wait and not spots[0].behind_wait


def test_a_clock_is_read_when_the_barrier_in_front_has_stopped_the_warp() -> None:
    code = only(made(ASSEMBLERS[0]).data).instructions
    for number, one in enumerate(code):
        if one.code == "CS2R.32":
            cycles = 0
            for ahead in reversed(code[:number]):
                cycles += max(1, ahead.control.stall)
                if ahead.name == "BAR":
                    assert cycles >= 8, one
                if ahead.name in ("BAR", "BRA"):
                    break


@pytest.mark.parametrize(("sized", "spec"), [(False, "elected"), (True, "elected"), (False, "all")])
def test_the_claim_is_what_ptxas_made_of_the_protocols_text(sized: bool, spec: str) -> None:
    """But for the doors, through which values come and go, and a fence. The claim of every thread has a shuffle."""
    kernel = replace(KERNEL, size_offset="4096" if sized else None, specs=(spec,))
    data = assembled(HEAD + fragments.text(kernel), options=())
    claim = fragments.read(read(data), only(data))
    comes = sorted(number for at in claim.comes for number, _ in claim.enters(at))
    assert comes == list(range(len(fragments.passed_values(kernel))))
    assert sorted(claim.goes.values()) == list(range(3 + sized))
    gone = [one for one in claim.instructions if one not in claim.code]
    assert {one.name for one in gone} == {"LDG", "STG", "CS2R"}
    same = Names({}, {}, {})
    assert all(renaming.renamed(one, same) == one.word for one in claim.code)
