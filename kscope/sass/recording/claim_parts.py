"""Both parts of a claim that is asked for first, as ptxas makes them of their text, see asking.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ... import ptx
from ...errors import UnsupportedError
from ..cubin import elf
from ..cubin.instructions import Function
from ..encoding import renaming
from . import fragments
from .fragments import Fragment

ASK, LOOK = "kscope_ask", "kscope_look"
"""The kernels of both parts."""
KEPT = ("clo", "glo", "ghi", "w", "opened", "stripe")
"""What the answer needs: words of the entry's clocks, what the seal needs of them, the epoch, the claimed stripe."""
ANSWER, CONTROL = ("p", "limit"), ("ctl lo", "ctl hi")
"""The answer's words; the address of the control block."""
_DECLARED = "\t.reg .b32 ks_clo, ks_glo, ks_ghi, ks_opened, ks_asked;\n"
_MOST = 24, 28
"""Registers for each part: with fewer, ptxas keeps some in a stack."""
_SAMPLED = 1 << 8
"""In the byte of what the seal needs that the claim fills later: this warp asked."""


@dataclass(frozen=True)
class Parts:
    """Both parts as ptxas assembled them."""

    ask: Fragment
    look: Fragment


def text(kernel: ptx.Kernel) -> str:
    """PTX of both kernels, without the head of a module; empty where a kernel claims in one part."""
    if not fragments.alone(kernel):
        return ""
    declared = f"{ptx.declarations(kernel, ())}{_DECLARED}\t.reg .b32 ks_d;\n"
    ask = (
        f"{declared}{fragments.doors_in(fragments.between(kernel))}{fragments.begun()}{fragments.units(kernel)}"
        f"\tmov.u32 ks_limit, 0;\n{ptx.attempt(kernel, True, asks=True)}"
        "\t{ .reg .b32 ks_x, ks_y; mov.b64 {ks_clo, ks_x}, ks_c; mov.b64 {ks_glo, ks_ghi}, ks_g;"
        " mov.u32 ks_opened, ks_epoch;"
        f" selp.b32 ks_x, {_SAMPLED}, 0, ks_on; or.b32 ks_w, ks_w, ks_x;"
        # block 0's first warp writes the launch's entry, also if it does not record
        " mov.u32 ks_x, %ctaid.x; mov.u32 ks_y, %ctaid.y; or.b32 ks_x, ks_x, ks_y; mov.u32 ks_y, %ctaid.z;"
        " or.b32 ks_x, ks_x, ks_y; shr.u32 ks_y, ks_thread, 5; or.b32 ks_x, ks_x, ks_y;"
        " setp.eq.or.u32 ks_full, ks_x, 0, ks_on; vote.sync.any.pred ks_full, ks_full, 0xffffffff;"
        " selp.b32 ks_asked, 1, 0, ks_full; }\n"
        f"{fragments.doors_out((*kept(kernel), 'asked', *ANSWER))}\tret;\n"
    )
    look = (
        f"{declared}{fragments.doors_in((*kept(kernel), *CONTROL, *ANSWER))}"
        "\tmov.b64 ks_c, {ks_clo, ks_clo}; mov.b64 ks_g, {ks_glo, ks_ghi}; mov.u32 ks_epoch, ks_opened;\n"
        f"{ptx.looks(kernel)}\t{{ .reg .b32 ks_x; and.b32 ks_x, ks_w, {_SAMPLED};"
        " setp.ne.and.u32 ks_on, ks_x, 0, ks_on; mov.pred ks_try, ks_on; }\n"
        f"{ptx.claim(kernel, True)}{fragments.slab(kernel)}{ptx.again(kernel)}"
    )
    parts = (ASK, _MOST[0], ask), (LOOK, _MOST[1], look)
    return "".join(f".visible .entry {name}() .maxnreg {most}\n{{\n{body}}}\n" for name, most, body in parts)


def read(file: elf.Elf, functions: Mapping[str, Function]) -> Parts | None:
    """Both parts from the cubin that ptxas made of their text; None if they are not in it."""
    if ASK not in functions:
        return None
    try:
        ask, look = (fragments.read(file, functions[name]) for name in (ASK, LOOK))
    except UnsupportedError:  # too few registers
        return None
    return Parts(_apart(_apart(ask, -2), -1), look)


def _apart(ask: Fragment, number: int) -> Fragment:
    """The first part with a register of its own for a word of the answer, which is on its way when the part ends.

    Args:
        ask: the part.
        number: the word's place among all that goes, from the last one on.
    """
    door = sorted(ask.goes, key=ask.goes.__getitem__)[number]
    old, new = ask.register(door), max(ask.used("R")) + 1
    names, code = renaming.Names({old: new}, {}, {}), list(ask.instructions)
    for place in range(len(code) - 1, -1, -1):
        one = code[place]
        if one.at == door or (f"R{old}" in one.writes and one.at < door):
            code[place] = replace(renaming.seen(one, names), target=one.target)
        elif f"R{old}" in one.reads and one.at < door:
            break
    return replace(ask, instructions=tuple(code))


def kept(kernel: ptx.Kernel) -> tuple[str, ...]:
    """What the answer needs of the kernel."""
    return (*KEPT, "last") if kernel.sized else KEPT
