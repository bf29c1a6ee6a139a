"""The checks of test_ptx_protocol.py detect broken text.

Each mutation changes one thing that a careless edit of kscope/ptx or kscope/lowering could change. Random cases are run
until one is judged wrong; a mutation that no case detects is a gap in the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import find
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from ptxvm import judge
from ptxvm.cases import Case, cases, execute, judged
from ptxvm.host import STRIPE_OFFSET, Pool, Ring
from ptxvm.kernels import loose_kernels
from ptxvm.machine import Clocks, Grid
from ptxvm.memory import FaultError
from ptxvm.profile import search
from ptxvm.writing import KernelText, Node, written

from kscope import ptx
from kscope.capture import wire
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering import emitting, loop_registers, pairing
from kscope.marks.strategies import AllThreads
from kscope.ptx import cfg

ENOUGH = 300
"""Cases after which a mutation counts as not noticed."""

TEXT: dict[str, tuple[str, str]] = {
    "the ring's mask is dropped": (r"and\.b32 ks_i, ks_n, \w+;", "mov.b32 ks_i, ks_n;"),
    "the ring is one record too long": (r"and\.b32 ks_i, ks_n, (\d+);", r"rem.u32 ks_i, ks_n, (\1+2);"),
    "every lane is the leader": (r"setp\.eq\.and\.u32 ks_on, ks_x, 0, ks_q", "mov.pred ks_on, ks_q"),
    "records are stored by lanes without a slab": (r"@ks_on (st\.global\.v4\.b32)", r"\1"),
    "the end is written by lanes without a slab": (r"@ks_on (st\.global\.v4\.u32)", r"\1"),
    "records are not counted": (r"add\.u32 ks_n, ks_n, 1;", ""),
    "a claim ignores that nothing is free": (r"setp\.ge\.u32 ks_room, ks_x, \w+;", "setp.ge.u32 ks_room, ks_x, 0;"),
    "a claim ignores that head is past limit": (r"setp\.le\.and\.u32 ks_room, ks_x, ks_mask, ks_room;", ""),
    "a claim ignores the ring's edge": (r"setp\.le\.and\.u32 ks_q, ks_x, ks_mask, ks_room;", "mov.pred ks_q, ks_room;"),
    "a slab is off by a unit": (r"add\.u32 ks_x, ks_at, (\w+);", r"sub.u32 ks_x, ks_at, 1; add.u32 ks_x, ks_x, \1;"),
    "a lane with a slab claims another": (r"not\.pred ks_q, ks_q; and\.pred ks_try, ks_try, ks_q;", ""),
    "a refused lane goes on": (r"and\.pred ks_on, ks_on, ks_r;", ""),
    "skipped units are not counted": (r"red\.global\.add\.u32 \[ks_line\+SKIPPED\], \w+;", ""),
    "lost lanes are not counted": (r"red\.global\.add\.u32 \[ks_line\+LOST\], 1;", ""),
    "claims are not retried": (r"bra\.uni KS_AGAIN;", "bra.uni KS_DONE;"),
    "the reserve is never tried": (r"setp\.lt\.and\.s32 ks_r, ks_x, (\w+), ks_r;", ""),
    "the reserve bound is off by one": (
        r"setp\.lt\.and\.s32 ks_r, ks_x, (\w+),",
        r"setp.le.and.s32 ks_r, ks_x, \1,",
    ),
    "a claim takes one unit too few": (r"(atom\.global\.add\.u32 ks_p, \[ks_line\+HEAD\]), \w+;", r"\1, 2;"),
    "the claim is not atomic": (
        r"atom(\.global)\.add(\.u32) ks_p, \[ks_line\+HEAD\], (\w+);",
        r"ld\1\2 ks_p, [ks_line+HEAD]; add.u32 ks_y, ks_p, \3; st\1\2 [ks_line+HEAD], ks_y;",
    ),
    "the size is not read": (r"@ks_try ld\.global\.u32 ks_last, [^;]*;", ""),
    "the ring is twice as long as the slab": (
        r"shr\.u32 ks_units, ks_last, 1;",
        "mad.lo.u32 ks_last, ks_last, 2, 1; shr.u32 ks_units, ks_last, 2;",
    ),
    "the slab has no unit for the head": (r"add\.u32 ks_units, ks_units, 2;", "add.u32 ks_units, ks_units, 1;"),
    "the head has another size": (r"popc\.b32 ks_k, ks_last;", "mov.u32 ks_k, 8;"),
    "the warp mask is ignored": (r"shr\.u32 ks_x, ks_warps, ks_x;", "mov.u32 ks_x, 1;"),
    "blocks and SMs are ignored": (r"setp\.eq\.u32 ks_q, ks_sampled, 0;", "setp.eq.u32 ks_q, 0, 0;"),
    "the epoch is ignored": (r"setp\.eq\.u32 (ks_q|ks_full), ks_epoch, 0;", r"setp.ne.u32 \1, 0, 0;"),
    "done lanes are not voted on": (
        r"vote\.sync\.any\.pred ks_full, ks_try, 0xffffffff;",
        "mov.pred ks_full, ks_try;",
    ),
    "the entry's check misses a word": (r"xor\.b32 ks_check, ks_check, ks_t;", ""),
    "every thread writes the launch's entry": (r"setp\.eq\.u32 ks_q, ks_thread, 0;", "setp.eq.u32 ks_q, ks_q, ks_q;"),
    "no thread writes the launch's entry": (r"@ks_first bra\.uni KS_LAUNCH;", ""),
    "every block writes the launch's entry": (r"or\.b32 ks_y, ks_y, ks_z; setp", "setp"),
    "the entry is in another launch's slot": (r"and\.b32 ks_z, ks_x, 65535;", "and.b32 ks_z, ks_x, 32767;"),
    "the head has another launch's slot": (r"mad\.lo\.u32 ks_t, ks_y, 65536, ks_t;", ""),
    "the seal has no bits of the launch": (r"prmt\.b32 ks_w, ks_w, ks_y, 0x3260;", ""),
    "the seal has the end's width alone": (r"max\.u32 ks_u, ks_u, ks_v;", ""),
    "the seal has the clock's end, not its turns": (r"sub\.u32 ks_t, ks_t, ks_v;", ""),
    "clock and time change places in the seal": (
        r"prmt\.b32 ks_t, ks_t, ks_y, 0x4040;",
        "prmt.b32 ks_t, ks_t, ks_y, 0x0404;",
    ),
    "the end's time is in nanoseconds": (r"shf\.r\.wrap\.b32 ks_z, ks_z, ks_t, 5;", ""),
    "the hardware's warp id is used": (r"shr\.u32 ks_t, ks_thread, 5;", "mov.u32 ks_t, %warpid;"),
    "the block's number ignores y": (r"mad\.lo\.u32 ks_z, ks_z, ks_y, ks_x; mov", "mov"),
    "the session's bit is left out": (r"mad\.lo\.u32 ks_t, ks_y, 32, ks_t;", ""),
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
        {"order": "turns", "subset": Subset.of(warp=31)},
        {"order": "turns", "subset": Subset.of(block=range(4, 6))},
        {"order": "turns", "epoch": 0},
    )
]
# a slab of three units ends past the ring, by one
BATTERY.append(replace(BATTERY[0], pool=Pool((Ring(3, head=6), Ring(5)))))
# the start's clocks are farther apart than the end's
BATTERY.append(replace(BATTERY[0], clocks=Clocks(steps=(1, 1, 400, 1, 1, 1, 1))))
# the host sets the size
BATTERY += [replace(BATTERY[0], recording=Recording(), size=4), replace(BATTERY[0], recording=Recording(), size=8)]
"""Cases that notice most mutations at once."""


SHORT = Node("loop", ("bottom", 6), ((Node("region", ("dot", None, "%n1", True), ((),)),), ()))
LONG = Node("loop", ("two ways in", 6), ((Node("region", ("a b/c", None, "%v2", True),
            (30 * (Node("assign", ("add.u32", "%v2", "%v2", "%n1")),),)),), ()))  # fmt: skip
PLAIN = Node("loop", ("bottom", 3), ((Node("region", ("load", None, None, False), ((),)),), ()))
OFTEN = written((Node("loop", ("bottom", 2), ((SHORT, LONG, PLAIN), ())),))
"""Loops that hide nothing, each entered twice: around a short region, a long one, and one without a value."""
LOOPED = [
    Case(
        kernel, replace(recording, fill=fill), Grid((3, 2, 1), (100, 1, 1)), ((0, 0, 0), (1, 1, 0)), LANES, pool,
        garbage=0x5A5A5A5A_DEADBEEF,
    )
    for kernel in (OFTEN, written((Node("point", ("tick", "lane0-warp0", None, False)), SHORT, LONG)))
    for recording in (Recording(records=64), Recording(records=4), Recording(records=4, strategy=AllThreads()))
    for fill in ("ring", "stop")
    for pool in (ROOM, TIGHT)
]  # fmt: skip
LOOPS: dict[str, tuple[str, str]] = {
    "the place's mask is dropped": (r"and\.b32 (ks_nth\d+), ks_n, \d+;", r"mov.b32 \1, ks_n;"),
    "the place's ring is one record too long": (r"and\.b32 (ks_nth\d+), ks_n, (\d+);", r"rem.u32 \1, ks_n, (\2+2);"),
    "the place stays": (r"(st\.global\.v4\.b32 \[ks_to\d+\+32\][^;]*;)\n\tand\.b32 ks_nth\d+, ks_n, \d+;", r"\1"),
    "the place is that of the next record": (r"mad\.lo\.u32 ks_low, ks_nth\d+,", "mad.lo.u32 ks_low, ks_n,"),
    "the store's guard is dropped": (r"@\w+ (st\.global\.v4\.b32 \[ks_to)", r"\1"),
    "the stop fill's bound is ignored": (r"setp\.le\.and\.u32 (ks_fits\d+), ks_n, \w+, (\w+);", r"mov.pred \1, \2;"),
    "the stop fill's bound is one too low": (r"(setp\.le\.and\.u32 ks_fits\d+, ks_n), (\d+),", r"\1, (\2+-1),"),
    "the bound is tested behind the count": (
        r"(setp\.le\.and\.u32 ks_fits\d+, [^;]*;) ((?:@\w+ )?add\.u32 ks_n, ks_n, 1;)",
        r"\2 \1",
    ),
    "no record is counted": (r"(?:@\w+ )?add\.u32 ks_n, ks_n, 1;(?= *\n\t(?:@|mov|and))", ""),
    "start and end are exchanged": (r"\{(ks_q\d+_0), (ks_q\d+_1), (ks_\w+),", r"{\3, \2, \1,"),
    "id and value are exchanged": (r"(ks_q\d+_1), (ks_\w+), (ks_q\d+_3)\}", r"\3, \2, \1}"),
    "the id is left out": (r"or\.b32 (ks_q\d+_1), (ks_nil\d+), \d+;", r"mov.b32 \1, \2;"),
    "the value is not copied at the begin": (r"(?:@\w+ )?mov\.b32 ks_v\d+, [^;]*;", ""),
    "the value is not copied at the end": (r"@\w+ shl\.b32 ks_q\d+_3,[^;]*;", ""),
    "the begin is not copied": (r"@\w+ shl\.b32 ks_q\d+_0,[^;]*;", ""),
    "the end is not copied": (r"@\w+ shl\.b32 ks_q\d+_2,[^;]*;", ""),
    "copies are misaligned": (r"and\.b32 (ks_nil\d+), ks_l, 15;", r"and.b32 \1, ks_l, 0xFFF; or.b32 \1, \1, 1;"),
    "nothing is initialized": (
        r"\{ \.reg \.b32 ks_l, ks_h;[^}]*\{[^}]*\}[^}]*\}\n\tand\.b32 ks_nth\d+, ks_n, \d+;",
        "",
    ),
    "the place is not initialized": (r"(ks_x\d+, 0; \})\n\tand\.b32 ks_nth\d+, ks_n, \d+;", r"\1"),
    "the words are not initialized": (r"mov\.b32 ks_q\d+_3, ks_nil\d+;", ""),
}
"""The same for the instructions of unoptimized loops."""


def noticed(case: Case, mutate: Callable[[str], str]) -> bool:
    """True if the case's proofs fail on the mutated text."""
    if mutate(case.lowered().text) == case.lowered().text:
        return False
    try:
        judged(execute(case, mutate=mutate))
    except (judge.Wrong, FaultError, KeyError):  # KeyError: a slab of a lane that is none of this launch
        return True
    return False


def changes(pattern: str, new: str) -> Callable[[str], str]:
    """A mutation of the text, in which sums of numbers are computed."""

    def mutate(text: str) -> str:
        changed = re.sub(pattern, new, text)
        return re.sub(r"\((\d+)\+(-?\d+)\)", lambda found: str(int(found[1]) + int(found[2])), changed)

    return mutate


def some_case_notices(mutate: Callable[[str], str]) -> bool:
    """True if any case does, first of the battery, then of those that hypothesis draws."""
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
        text = text.replace(f"+{name.upper()}]", f"+{wire.STRIPES_AT + STRIPE_OFFSET[name]}]")
        text = text.replace(f"+{name.upper()}\\]", f"+{wire.STRIPES_AT + STRIPE_OFFSET[name]}\\]")
    return text


@pytest.mark.parametrize("name", TEXT)
def test_a_broken_instruction_is_detected(name: str) -> None:
    mutate = changes(*map(at_words, TEXT[name]))
    assert any(mutate(case.lowered().text) != case.lowered().text for case in BATTERY), (
        "no such text: rewrite the mutation"
    )
    assert some_case_notices(mutate)


@pytest.mark.parametrize("case", LOOPED)
def test_unmutated_loops_pass_the_check(case: Case) -> None:
    assert "ks_nth" in case.lowered().text
    judged(execute(case))


@pytest.mark.parametrize("name", LOOPS)
def test_a_broken_loop_instruction_is_detected(name: str) -> None:
    mutate = changes(*LOOPS[name])
    assert any(mutate(case.lowered().text) != case.lowered().text for case in LOOPED), (
        "no such text: rewrite the mutation"
    )
    assert any(noticed(case, mutate) for case in LOOPED)


@pytest.mark.parametrize("missing", ["jumps", "labels"])
def test_a_missed_loop_entry_is_detected(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = loop_registers._entries

    def some(n: int, function: cfg.Function, graph: Sequence[cfg.Block]) -> frozenset[int]:
        found = entries(n, function, graph)
        return frozenset(i for i in found if (function.statements[i].sort == "jump") == (missing == "labels"))

    monkeypatch.setattr(loop_registers, "_entries", some)
    assert any(noticed(case, lambda text: text + "\n") for case in LOOPED)


def test_a_broken_stop_bound_is_detected() -> None:
    def mutate(text: str) -> str:
        return re.sub(r"setp\.le\.and\.u32 ks_q, ks_n, \w+, (\w+);", r"mov.pred ks_q, \1;", text)

    assert some_case_notices(mutate)


@pytest.mark.parametrize("name", ["waits across branches", "last in, first out", "value read at the store"])
def test_a_broken_plan_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations of the pass, not of the text: store order, placement and value copies."""
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


def test_a_pairing_check_that_ignores_redefined_guards_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicates are invalidated when they are written."""
    monkeypatch.setattr(pairing, "_writes", lambda *_: {})

    def unsound(drawn: tuple[Case, KernelText]) -> bool:
        try:
            outcome = judged(execute(replace(drawn[0], kernel=drawn[1])), pairs=False)
        except (judge.Wrong, IndexError, KeyError):  # an exit without an enter
            return True
        return any(any(one.open.values()) and not one.thread.quit for one in outcome.ideals.values())

    assert find(st.tuples(cases(threads=4, ample=True), loose_kernels()), unsound, settings=search(ENOUGH))
