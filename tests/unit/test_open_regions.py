"""Words that a warp stores when it enters a region, in kernels compiled with survive=: in the emitted text, step by
step.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from ptxvm.assemble import complaint, ptxas
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch, steps

from kscope.capture import layout, wire
from kscope.capture.heads import finished
from kscope.capture.open_words import torn
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.instrument.subset import Subset
from kscope.lowering.plan import lower
from kscope.marks.grammar import Mark, parse
from kscope.marks.operations import PIPELINE, Barrier, barrier
from kscope.marks.strategies import parse_strategy

SURVIVE = Recording(survive="shm")
HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
TRY_WAIT = "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], %r5; @!%p1 bra AGAIN;"
POLL = "POLL: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra POLL;"


def kernel(body: str) -> str:
    return (
        f"{HEAD}.visible .entry k(.param .u64 out)\n{{\n.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"
        f" .reg .f32 %f<9>;\nld.param.u64 %rd1, [out];\n{body}\nret;\n}}\n"
    )


def region(body: str, name: str = "wait", act: str = "enter", mark: str = "- - with") -> str:
    return f"//kscope {act} {name} {mark}\n{body}\n//kscope exit {name} - - with\n"


def is_open(body: str, act: str = "enter", recording: Recording = SURVIVE) -> bool:
    """True if the region around a body is stored when it is entered."""
    low = lower(kernel(region(body, act=act)), recording, frontend="t")
    return "ks_seq, 256" in low.text


@pytest.mark.parametrize(
    "body",
    [
        TRY_WAIT,
        POLL,
        "bar.sync 0;",
        "barrier.sync.aligned 1, 64;",
        "barrier.cluster.wait.aligned;",
        "cp.async.wait_group 0;",
        "wgmma.wait_group.sync.aligned 0;",
        "nanosleep.u32 100;",
        "@%p1 trap;",
        "griddepcontrol.wait;",
    ],
)
def test_a_region_whose_code_waits_is_stored_when_it_is_entered(body: str) -> None:
    assert is_open(body)
    assert not is_open(body, recording=Recording())
    assert is_open("mov.u32 %r1, 1;", act="open"), "open=True"


@pytest.mark.parametrize(
    "body", ["mov.u32 %r1, 1;", "barrier.cluster.arrive.aligned;", "ld.acquire.gpu.global.u32 %r2, [%rd1];", ""]
)
def test_other_regions_are_not(body: str) -> None:
    assert not is_open(body)


LOOP = "LOOP: {body} add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 9; @%p3 bra LOOP;"
OWN = ("cp.async.wait_group 0;", "wgmma.wait_group.sync.aligned 0;", "bar.sync 0;", "barrier.sync.aligned 0;")
OTHERS = (
    "mbarrier.test_wait.shared.b64 %p1, [%r4], %rd2;",
    "bar.sync 1, 64;",
    "ld.acquire.gpu.global.u32 %r2, [%rd1];",
)


@pytest.mark.parametrize(("wait", "expected"), [*((one, False) for one in OWN), *((one, True) for one in OTHERS)])
def test_a_region_in_a_loop_is_stored_only_if_it_waits_for_others(wait: str, expected: bool) -> None:
    looped = LOOP.replace("{body}", region(wait))
    assert ("ks_seq, 256" in lower(kernel(looped), SURVIVE, frontend="t").text) == expected
    placed_by_auto = looped.replace("- - with", "- - auto")
    assert "ks_seq, 256" in lower(kernel(placed_by_auto), SURVIVE, frontend="t").text
    around = region(LOOP.replace("{body}", wait))
    assert "ks_seq, 256" in lower(kernel(around), SURVIVE, frontend="t").text, "it begins once"


def test_ordinary_sessions_emit_the_same_text_whether_or_not_a_region_is_open() -> None:
    texts = {lower(kernel(region(POLL, act=act)), Recording(), frontend="t").text for act in ("enter", "open")}
    assert len(texts) == 1


def test_the_option_travels_with_the_mark() -> None:
    mark = Mark("enter", "load", how="call", open=True)
    assert mark.comment() == "//kscope open load - - call"
    assert parse(mark.comment()) == mark
    assert parse(Mark("exit", "load", open=True).comment()) == Mark("exit", "load")


def test_placement_schedule_is_refused() -> None:
    with pytest.raises(UsageError, match="placement='schedule'"):
        Recording(survive="shm", placement="schedule")


def rows(body: str, recording: Recording = SURVIVE) -> tuple[list[np.ndarray], Host]:
    """The second row of a warp's head, whenever it changes, and the host afterwards."""
    host = Host(Pool((Ring(12), Ring(4))), Subset(), 7, survive=True)
    out = host.memory.allocate("out", 64)
    low = lower(kernel(body), recording, frontend="t")
    launch = Launch(host.load(low.text), host.memory, "k", Grid((1, 1, 1), (32, 1, 1)), [out.base], threads=(0,))
    host.launched(Grid((1, 1, 1), (32, 1, 1)), ((0, 0, 0),))
    found = [np.zeros(4, np.uint32)]
    for _ in steps(launch.start(), "turns"):
        row = np.frombuffer(bytes(host.rings[0].data[wire.OPEN_AT : wire.HEAD_BYTES]), np.uint32)
        if (row != found[-1]).any():
            found.append(row)
    return found[1:], host


TWO = "".join(region("mov.u32 %r2, 1;", name, "open", f"u32 - with {value}") for name, value in (("a", 28), ("b", 29)))


def test_the_word_has_region_clock_value_and_sequence_and_gives_way_to_the_end() -> None:
    *words, end = rows(TWO)[0]
    found = np.array(words).view(wire.OPEN)[:, 0]
    assert (found["id"] >> 4).tolist() == [layout.name_hash("a"), layout.name_hash("b")]
    assert found["value"].tolist() == [28, 29]
    assert (found["sequence"] >> wire.SEQUENCE_SHIFT).tolist() == [1, 2]
    assert (found["id"] & wire.SEQUENCE_LOW).tolist() == [1, 2]
    heads = np.concatenate([np.ones((3, 4), np.uint32), [*words, end]], axis=1)
    assert finished(heads).tolist() == [False, False, True]


def test_a_word_whose_halves_are_of_two_stores_is_known() -> None:
    words = np.array(rows(region("mov.u32 %r2, 1;", act="open") * 9)[0][:-1])
    assert len(words) == 9
    assert not torn(words.view(wire.OPEN)[:, 0]).any()
    for one, other in pairwise(words):
        for halves in ((one, other), (other, one)):
            mixed = np.concatenate([halves[0][:2], halves[1][2:]])
            assert torn(mixed.view(wire.OPEN)).all()


def test_what_ended_before_is_stored_before_a_warp_enters_a_region_that_waits() -> None:
    host = rows(region("mov.u32 %r2, 1;", "done") + region("mov.u32 %r2, 1;", "wait", "open"))[1]
    pool = host.rings[0]
    stores = [access.address - pool.base for access in host.memory.log if pool.base <= access.address < pool.base + 96]
    assert stores == [0, wire.HEAD_BYTES, wire.OPEN_AT, wire.HEAD_BYTES + 16, wire.OPEN_AT]


def test_the_record_of_such_a_region_is_stored_where_it_ends() -> None:
    """What follows in the same basic block may hang."""
    text = lower(kernel(region("mov.u32 %r2, 1;", act="open") + "bar.sync 1, 64;"), SURVIVE, frontend="t").text
    record = text.index(f", {layout.record_id('wait', layout.Kind.SPAN)}, ks_el")
    assert text.index("ks_seq, 256") < record < text.index("bar.sync 1, 64;")


def test_a_predicate_holds_for_the_word_as_well() -> None:
    guarded = region("mov.u32 %r2, 1;", act="open", mark="- - with if %r3")
    assert [len(rows(f"mov.u32 %r3, {held};\n{guarded}")[0]) for held in ("%tid.y", "%ntid.y")] == [1, 2], (
        "the end is always there"
    )


BARRIER = "mov.u32 %r4, 64; mbarrier.init.shared::cta.b64 [%r4], 1; mov.u32 %r5, 1;\n"
PIPELINES = replace(SURVIVE, selection=Selection((PIPELINE,)))


def test_a_wait_for_a_barrier_without_a_mark_says_which_barrier_and_parity() -> None:
    low = lower(kernel(BARRIER + TRY_WAIT), PIPELINES, frontend="t")
    (name,) = [one.name for one in low.meta.regions if " wait " in one.name]
    *words, _ = rows(BARRIER + TRY_WAIT, PIPELINES)[0]
    (found,) = np.array(words).view(wire.OPEN)[:, 0]
    assert found["id"] >> 4 == layout.name_hash(name)
    assert barrier(int(found["value"])) == Barrier(address=64, parity=1, block=0)


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas: pip install triton, or put it on PATH")
def test_waits_for_barriers_assemble() -> None:
    assert not complaint(lower(kernel(BARRIER + TRY_WAIT), PIPELINES, frontend="t").text, "90")


def test_ordinary_sessions_do_not_store_that_a_warp_waits_for_a_barrier() -> None:
    assert "ks_seq" not in lower(kernel(BARRIER + TRY_WAIT), replace(PIPELINES, survive=None), frontend="t").text


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas: pip install triton, or put it on PATH")
@pytest.mark.parametrize("arch", ["80", "90", "100"])
@pytest.mark.parametrize("strategy", ["elected", "elected-any", "all", "warps:0,4"])
def test_the_emitted_text_assembles(arch: str, strategy: str) -> None:
    text = kernel(TWO + region(POLL, "poll")).replace("sm_90", f"sm_{arch}")
    low = lower(text, replace(SURVIVE, strategy=parse_strategy(strategy)), frontend="t")
    assert not complaint(low.text, arch)


LOAD, WORD = "ld.global.u32 %r2, [%rd1];", "add.u32 ks_seq, ks_seq, 256"
JUMP = "@%p1 bra SKIP; SKIP:"
BARRIERS = ("bar.sync 1, 64;", "@%p1 bar.sync 0;")
STAYS = (*BARRIERS, "cp.async.wait_group 0;", TRY_WAIT, POLL, "@%p1 trap;", "call helper;", JUMP)


@pytest.mark.parametrize("stays", STAYS)
def test_a_kernels_first_region_issues_its_loads_before_it_waits_for_the_slab(stays: str) -> None:
    text = lower(kernel(region(f"{LOAD} {stays} bar.sync 0;", act="open")), SURVIVE, frontend="t").text
    order = [text.index(part) for part in (LOAD, "KS_HAVE:", WORD, stays)]
    assert order == sorted(order)
    assert text.count(WORD) == 1


def test_a_barrier_of_the_whole_block_does_not_hold_up_the_loads_of_the_next_stage() -> None:
    """No warp stays there: all of them come to it, before any waits for anything else."""
    stages = f"{LOAD} bar.sync 0; ld.global.u32 %r3, [%rd1+4]; {TRY_WAIT}"
    text = lower(kernel(region(stages, act="open")), SURVIVE, frontend="t").text
    order = [text.index(part) for part in (LOAD, "bar.sync 0;", "[%rd1+4];", "KS_HAVE:", WORD, "AGAIN:")]
    assert order == sorted(order)


def test_words_of_nested_regions_are_stored_from_the_outermost_on() -> None:
    inner = region(f"{LOAD} bar.sync 0;", "inner", act="open")
    low = lower(kernel(region(inner, "outer", act="open")), SURVIVE, frontend="t")
    names = [low.text.index(str(layout.name_hash(name) << 4)) for name in ("outer", "inner")]
    assert names == sorted(names) and names[0] > low.text.index(LOAD)
    assert not complaint(low.text, "90")
