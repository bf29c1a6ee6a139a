"""Kernels whose marked blocks ptxas copies, moves, merges or makes predicates of; all are assembled at once."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache

from kscope.errors import UnsupportedError
from kscope.machine_code import elf
from kscope.sass.checks.hazards import successors
from kscope.sass.cubin.instructions import BYTES
from kscope.sass.placing import labels, place
from kscope.sass.placing.basic_blocks import Machine, Text
from kscope.sass.placing.mark_order import Spot

from .kernels import HEAD, assembled, functions

BEFORE = """
    .reg .pred %p<6>; .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .f32 %f<16>; .shared .align 16 .b8 kept[512];
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; cvta.to.global.u64 %d1, %d1; mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2; mov.u32 %r3, 0; mov.f32 %f1, 0f3F800000; setp.gt.u32 %p2, %r2, 5;
"""
AFTER = "    st.global.f32 [%d3+4096], %f1; ret;\n"
NEXT = "add.u64 %d3, %d3, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, {many}; @%p1 bra LOOP;\n"


def region(body: str, name: str = "part") -> str:
    return f"    //kscope enter {name} - - with\n    {body}\n    //kscope exit {name} - - with\n"


def loop(body: str, many: str = "%r1", unroll: str = "") -> str:
    return f"{BEFORE}LOOP:\n{unroll}{body}{NEXT.format(many=many)}{AFTER}"


LOAD = "ld.global.f32 %f2, [%d3]; fma.rn.f32 %f1, %f2, %f2, %f1;"
STORE = "ld.global.f32 %f2, [%d3]; fma.rn.f32 %f1, %f2, %f2, %f1; st.global.f32 [%d3], %f1;"
COMPUTE = "fma.rn.f32 %f1, %f1, %f1, %f1; fma.rn.f32 %f1, %f1, %f1, %f1;"
KEEP = '    .pragma "nounroll";\n'
KERNELS = {
    "unrolled": loop(region(STORE)),
    "loads": loop(region(LOAD)),
    "two": loop(region(LOAD, "first") + region("ld.global.f32 %f3, [%d3+64]; add.f32 %f1, %f1, %f3;", "second")),
    "four": loop(region(STORE), many="4"),
    "predicate": f"{BEFORE}@%p2 bra PAST;\n{region('st.global.f32 [%d3], %f1;')}PAST:\n{AFTER}",
    "predicates": BEFORE + "".join(
        f"setp.gt.u32 %p3, %r2, {9 * n};\n@%p3 bra PAST{n};\n"
        + region(f"st.global.f32 [%d3+{512 * n}], %f1;", f"part{n}")
        + f"PAST{n}:\n"
        for n in range(12)
    ) + AFTER,
    "branch": f"{BEFORE}@%p2 bra PAST;\n{region('bar.sync 0; ' + STORE + 'bar.sync 0;')}PAST:\n{AFTER}",
    "selected": f"{BEFORE}@%p2 bra PAST;\n{region(COMPUTE)}PAST:\n{AFTER}",
    "computing": loop(region(COMPUTE), unroll=KEEP),
    "unrolled_computing": loop(region(COMPUTE), many="16"),
    "invariant": loop(region("ld.global.nc.f32 %f2, [%d1]; fma.rn.f32 %f1, %f1, %f2, %f2;"), unroll=KEEP),
    "empty": f"{BEFORE}st.global.f32 [%d3], %f1;\n{region('')}bar.sync 0;\n{AFTER}",
    "whole": loop(region(STORE, "turn")).replace("LOOP:", "    //kscope enter all - - with\nLOOP:").replace(
        AFTER, f"    //kscope exit all - - with\n{AFTER}"
    ),
    "conditional_loads": loop(
        "setp.lt.u32 %p3, %r3, 77; mov.f32 %f2, 0f00000000;\n"
        + region("@%p3 ld.global.f32 %f2, [%d3]; fma.rn.f32 %f1, %f2, %f2, %f1;")
    ),
    "last_store": f"{BEFORE}    //kscope enter all - - with\nLOOP:\n{KEEP}{LOAD}{NEXT.format(many='%r1')}"
    f"    //kscope exit all - - with\n{region('@%p2 st.global.f32 [%d3], %f1;')}    ret;\n",
    "in_turn": f"{BEFORE}    //kscope enter first - - with\nLOOP:\n{KEEP}{LOAD}{NEXT.format(many='%r1')}"
    "    //kscope exit first - - with\n    st.shared.f32 [kept], %f1; bar.sync 0; mov.u32 %r3, 0;\n"
    f"    //kscope enter second - - with\nAGAIN:\n{KEEP}{STORE}{NEXT.format(many='%r1').replace('LOOP', 'AGAIN')}"
    "    //kscope exit second - - with\n    ret;\n",
    "merged": f"{BEFORE}@%p2 bra ELSE;\n{region('st.global.f32 [%d3], %f1;', 'one')}bra PAST;\nELSE:\n"
    f"{region('st.global.f32 [%d3], %f1;', 'other')}PAST:\n{AFTER}",
    "left": f"{BEFORE}    //kscope enter part - - with\n    {STORE} setp.lt.u32 %p3, %r2, %r1;\n"
    "    //kscope exit part - - with\n    @%p3 bra OUT;\n    st.global.f32 [%d3+2048], %f1;\nOUT:    ret;\n",
    "leaving": f"{BEFORE}@%p2 st.global.f32 [%d3], %f1; setp.lt.u32 %p3, %r3, %r1;\n@%p3 bra GO;\nbra OUT;\nGO:\n"
    f"{region('@%p2 st.global.f32 [%d3+512], %f1;')}OUT:    ret;\n",
    "conditional_store": f"{BEFORE}{region('@%p2 st.global.f32 [%d3], %f1;')}    ret;\n",
}  # fmt: skip


def text(name: str, head: str = HEAD) -> str:
    """The module of a kernel."""
    return f"{head}.visible .entry {name}(.param .u64 p, .param .u32 n) .reqntid 128\n{{{KERNELS[name]}}}\n"


@cache
def compiled(tool: str) -> dict[str, tuple[Text, Machine]]:
    """Both sides of each kernel."""
    made = {name: labels.labeled(text(name)) for name in KERNELS}
    bodies = [re.sub(r'^.*\.file 1 "[^\n]*$', "", one.text.replace(HEAD, ""), flags=re.M) for one in made.values()]
    data = assembled(HEAD + "".join(bodies) + '.file 1 "/kscope"\n', tool)
    file = elf.read(data)
    return {
        one.name: (Text(made[one.name]), Machine(one, labels.statements(file, one, made[one.name])))
        for one in functions(data)
    }


@cache
def spots(name: str, tool: str) -> tuple[Spot, ...] | str:
    """Where the marks of a kernel stand, or why they are refused."""
    try:
        return place.spots(*compiled(tool)[name])
    except UnsupportedError as error:
        return str(error)


def walk(name: str, tool: str, found: tuple[Spot, ...], seed: int, most: int = 4000) -> Counter[str]:
    """Run a kernel's control flow with random predicates: how often each mark and each statement ran.

    Statements are counted by the first word of their instruction, such as "STG", and by theirs.
    """
    text, machine = compiled(tool)[name]
    dice, at, values = random.Random(seed), 0, dict[str, bool]()
    by_address = {one.at: one for one in machine.function.instructions}
    counts = Counter[str]()

    def holds(guard: str) -> bool:
        if not guard:
            return True
        return values.setdefault(guard.lstrip("@!"), dice.random() < 0.5) != ("!" in guard) or guard == "@PT"

    for _ in range(most):
        one = by_address[at]
        for spot in found:
            if spot.at == at and holds(spot.guard):
                mark = text.labels.marks[spot.mark]
                counts[f"{mark.act} {mark.name}"] += 1
        runs = holds(one.guard) and "PT" not in one.guard.replace("@PT", "")
        if runs and at in machine.statements:
            statement = text.labels.kernel.statements[machine.statements[at]]
            code = " ".join(text.labels.kernel.text[statement.start : statement.end].split())
            counts[f"{one.name} {code}"] += 1
        if one.name == "EXIT" and runs:
            return counts
        for register in one.writes:
            values.pop(register, None)
        ways = successors(one)
        at = one.target if one.target in ways and runs and one.name == "BRA" else at + BYTES
    return counts
