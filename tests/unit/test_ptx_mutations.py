"""The proofs of test_ptx_protocol.py are worth something: break the emitted text, and they fail.

Each mutation changes one thing that a careless edit of kscope/ptx or kscope/lowering could change. Random
cases are run until one is judged wrong; a mutation that no case notices is a hole in the proofs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import find
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from ptxvm import judge
from ptxvm.cases import Case, cases, execute, judged
from ptxvm.host import STRIPE_OFFSET, Pool, Ring
from ptxvm.kernels import loose_kernels
from ptxvm.machine import Grid
from ptxvm.memory import FaultError
from ptxvm.profile import search
from ptxvm.writing import KernelText, Node, written

from kscope import layout, ptx
from kscope.lowering import cfg, emitting, pairing
from kscope.recording import Recording
from kscope.sampling import Sampling
from kscope.strategies import AllThreads

ENOUGH = 300
"""Cases after which a mutation counts as not noticed."""

TEXT: dict[str, tuple[str, str]] = {
    "the ring's mask is dropped": (r"and\.b32 ks_i, ks_n, \d+;", "mov.b32 ks_i, ks_n;"),
    "the ring is one record too long": (r"and\.b32 ks_i, ks_n, (\d+);", r"rem.u32 ks_i, ks_n, (\1+2);"),
    "every lane is the leader": (r"setp\.eq\.and\.u32 ks_on, ks_x, 0, ks_q", "mov.pred ks_on, ks_q"),
    "records are stored by lanes without a slab": (r"@ks_on (st\.global\.v4\.b32)", r"\1"),
    "the end is written by lanes without a slab": (r"@ks_on (st\.global\.v4\.u32)", r"\1"),
    "records are not counted": (r"add\.u32 ks_n, ks_n, 1;", ""),
    "a claim ignores that nothing is free": (r"setp\.ge\.u32 ks_room, ks_x, \d+;", "setp.ge.u32 ks_room, ks_x, 0;"),
    "a claim ignores that head is past limit": (r"setp\.le\.and\.u32 ks_room, ks_x, ks_mask, ks_room;", ""),
    "a claim ignores the ring's edge": (r"setp\.le\.and\.u32 ks_q, ks_x, ks_mask, ks_room;", "mov.pred ks_q, ks_room;"),
    "a slab is off by a unit": (r"add\.u32 ks_x, ks_at, (\d+);", r"sub.u32 ks_x, ks_at, 1; add.u32 ks_x, ks_x, \1;"),
    "a lane with a slab claims another": (r"not\.pred ks_q, ks_q; and\.pred ks_try, ks_try, ks_q;", ""),
    "a refused lane goes on": (r"and\.pred ks_on, ks_on, ks_r;", ""),
    "skipped units are not counted": (r"red\.global\.add\.u32 \[ks_line\+SKIPPED\], \d+;", ""),
    "lost lanes are not counted": (r"red\.global\.add\.u32 \[ks_line\+LOST\], 1;", ""),
    "nothing is tried twice": (r"bra\.uni KS_LOOK;", "bra.uni KS_DONE;"),
    "the reserve is never tried": (r"setp\.lt\.and\.s32 ks_r, ks_x, (\d+), ks_r;", ""),
    "the reserve is not looked at whole": (
        r"setp\.lt\.and\.s32 ks_r, ks_x, (\d+),",
        r"setp.le.and.s32 ks_r, ks_x, \1,",
    ),
    "a claim takes one unit too few": (r"(atom\.global\.add\.u32 ks_p, \[ks_line\+HEAD\]), \d+;", r"\1, 2;"),
    "the claim is no atomic": (
        r"atom(\.global)\.add(\.u32) ks_p, \[ks_line\+HEAD\], (\d+);",
        r"ld\1\2 ks_p, [ks_line+HEAD]; add.u32 ks_y, ks_p, \3; st\1\2 [ks_line+HEAD], ks_y;",
    ),
    "the warp mask is not looked at": (r"shr\.u32 ks_x, ks_warps, ks_x;", "mov.u32 ks_x, 1;"),
    "blocks and SMs are not looked at": (r"setp\.eq\.u32 ks_q, ks_sampled, 0;", "setp.eq.u32 ks_q, 0, 0;"),
    "the epoch is not looked at": (r"setp\.eq\.u32 (ks_q|ks_full), ks_epoch, 0;", r"setp.ne.u32 \1, 0, 0;"),
    "the warp is not asked whether all are done": (
        r"vote\.sync\.any\.pred ks_full, ks_try, 0xffffffff;",
        "mov.pred ks_full, ks_try;",
    ),
    "the header's check is left out": (r"xor\.b32 ks_check, ks_check, ks_p;", ""),
    "the done word ignores the count": (r"xor\.b32 ks_x, ks_x, ks_n;", ""),
    "the hardware's warp id is used": (r"shr\.u32 ks_warp, ks_thread, 5;", "mov.u32 ks_warp, %warpid;"),
    "start and end are exchanged": (r"\{(ks_sl, )(\d+), ks_el", r"{ks_el, \2, ks_sl"),
}

BUSY = written((Node("loop", ("bottom", 6), ((Node("region", ("dot", None, "%n0", True), ((Node("bar"),),)),), ())),))
"""A kernel of six records; the value that each region reads is written again inside of it."""

ROOM, TIGHT, LANES = Pool((Ring(9), Ring(9))), Pool((Ring(4), Ring(3))), (0, 1, 32, 64, 96)
BATTERY = [
    Case(BUSY, recording, Grid((3, 2, 1), (100, 1, 1)), ((0, 0, 0), (1, 1, 0)), LANES, pool, **options)
    for recording in (
        Recording(records=4),
        Recording(records=4, fill="stop"),
        Recording(records=8, strategy=AllThreads()),
    )
    for pool in (ROOM, TIGHT, Pool((Ring(5, head=40, free=-8), Ring(0))), Pool((Ring(0), Ring(3, free=3))))
    for options in (
        {"order": "lockstep"},
        {"order": "turns", "sampling": Sampling.of(warps=31)},
        {"order": "turns", "sampling": Sampling.of(blocks=range(4, 6))},
        {"order": "turns", "epoch": 0},
    )
]
"""Cases that notice most mutations at once."""


def noticed(case: Case, mutate: Callable[[str], str]) -> bool:
    """Whether the case's proofs fail on the mutated text."""
    if mutate(case.lowered().text) == case.lowered().text:
        return False
    try:
        judged(execute(case, mutate=mutate))
    except (judge.Wrong, FaultError, KeyError):  # KeyError: a slab of a lane that is none of this launch
        return True
    return False


def some_case_notices(mutate: Callable[[str], str]) -> bool:
    """Whether any case does, first of the battery, then of those that hypothesis draws."""
    if any(noticed(case, mutate) for case in BATTERY):
        return True
    try:
        find(cases(), lambda case: noticed(case, mutate), settings=search(ENOUGH))
    except NoSuchExample:
        return False
    return True


def at_words(text: str) -> str:
    """HEAD, SKIPPED and LOST as offsets from the control block's start to the words of stripe 0."""
    for name in ("head", "skipped", "lost"):
        text = text.replace(f"+{name.upper()}]", f"+{layout.GATE_BYTES + STRIPE_OFFSET[name]}]")
        text = text.replace(f"+{name.upper()}\\]", f"+{layout.GATE_BYTES + STRIPE_OFFSET[name]}\\]")
    return text


@pytest.mark.parametrize("name", TEXT)
def test_a_broken_instruction_is_noticed(name: str) -> None:
    pattern, new = (at_words(part) for part in TEXT[name])

    def mutate(text: str) -> str:
        changed = re.sub(pattern, new, text)
        return re.sub(r"\((\d+)\+(\d+)\)", lambda found: str(int(found[1]) + int(found[2])), changed)

    assert any(mutate(case.lowered().text) != case.lowered().text for case in BATTERY), (
        "no such text: rewrite the mutation"
    )
    assert some_case_notices(mutate)


def test_the_stop_fills_bound_is_noticed() -> None:
    def mutate(text: str) -> str:
        return re.sub(r"setp\.lt\.and\.u32 ks_q, ks_n, \d+, (\w+);", r"mov.pred ks_q, \1;", text)

    assert some_case_notices(mutate)


@pytest.mark.parametrize("name", ["last in, first out", "waits across branches", "value read at the store"])
def test_a_broken_plan_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutations of the pass, not of the text: the order of stores, where they stand, when values are copied."""
    if name == "last in, first out":
        flush = emitting.Emitter._flush

        def backwards(self: emitting.Emitter, **options: object) -> str:
            self.pending.reverse()
            return flush(self, **options)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(emitting.Emitter, "_flush", backwards)
    elif name == "waits across branches":
        monkeypatch.setattr(cfg.Statement, "flushes", property(lambda self: self.sort == "leave"))
    else:
        values: dict[int, str] = {}
        enter, store = ptx.enter, ptx.store

        def remember(kernel: ptx.Kernel, slot: ptx.Slot, value: str | None, *rest: object) -> str:
            values[slot.index] = value or "0"
            return enter(kernel, slot, value, *rest)  # type: ignore[arg-type]  # passed on as they came

        def late(kernel: ptx.Kernel, slot: ptx.Slot, *rest: object) -> str:
            text = store(kernel, slot, *rest)  # type: ignore[arg-type]  # passed on as they came
            return re.sub(rf"ks_v{slot.index}\b", values.get(slot.index, f"ks_v{slot.index}"), text)

        monkeypatch.setattr(ptx, "enter", remember)
        monkeypatch.setattr(ptx, "store", late)
    assert some_case_notices(lambda text: text + "\n")


def test_a_pairing_check_that_ignores_new_values_of_guards_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trust in predicates ends where they are written."""
    monkeypatch.setattr(pairing, "_writes", lambda *_: {})

    def unsound(drawn: tuple[Case, KernelText]) -> bool:
        try:
            outcome = judged(execute(replace(drawn[0], kernel=drawn[1])), pairs=False)
        except (judge.Wrong, IndexError, KeyError):  # an exit of what is not open
            return True
        return any(any(one.open.values()) for one in outcome.ideals.values())

    assert find(st.tuples(cases(threads=4, roomy=True), loose_kernels()), unsound, settings=search(ENOUGH))
