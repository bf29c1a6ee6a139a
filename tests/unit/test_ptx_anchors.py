"""Anchors in the emitted text, executed: where they are, what they hold, and that they change nothing else."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxvm.assemble import ptxas
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Clocks, Grid, Launch, Order, run
from ptxvm.writing import HEAD, KernelText, Node, written

from kscope.capture import layout, wire
from kscope.errors import MissingError
from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.machine_code import tools
from kscope.marks.strategies import AllThreads, Elected

EDGE, STEP, U32 = wire.ANCHOR_STEPS << wire.STEP_SHIFT, 1 << wire.STEP_SHIFT, 0xFFFFFFFF
REGIONS = Node("region", ("load", None, None, False), ((),)), Node("region", ("dot", None, "%n0", False), ((),))
LOAD, DOT = layout.record_id("load", layout.Kind.SPAN), layout.record_id("dot", layout.Kind.SPAN_VALUE)
Row = tuple[int, int, int, int]


def looped(rounds: int) -> KernelText:
    return written((Node("loop", ("bottom", rounds), (REGIONS, ())),))


def ran(kernel: KernelText, recording: Recording, clocks: Clocks, order: Order = "turns") -> Host:
    host = Host(Pool((Ring(14), Ring(14))))
    out = host.memory.allocate("out", 64)
    shape = Grid((1, 1, 1), (64, 1, 1))
    text = lower(kernel.text(), recording, frontend="test").text
    launch = Launch(host.load(text), host.memory, kernel.name, shape, [out.base], clocks=clocks)
    host.launched(shape, ((0, 0, 0),))
    run(launch.start(), order, 1)
    return host


def expected(thread: int, rounds: int, recording: Recording, clocks: Clocks, capacity: int) -> tuple[list[Row], int]:
    """The rows that a thread writes, by the protocol's page, and its count."""
    step, elapsed = clocks.steps[0], 0

    def read() -> int:
        nonlocal elapsed
        elapsed += step
        return elapsed + thread * 7

    rows: list[Row] = []
    edge, anchors, count = (clocks.cycles + read()) // STEP, 0, 0
    for _ in range(2):
        read()
    for number in range(rounds):
        for ident, value in ((LOAD, 0), (DOT, number)):
            start = clocks.cycles + read()
            end = clocks.cycles + read()
            if recording.fill == "ring" or count < capacity:
                rows.append((start & U32, ident, end & U32, value))
            count += 1
        full = recording.fill == "stop" and count >= capacity
        if (end // STEP - edge) % (1 << 16) >= wire.ANCHOR_STEPS and not full:
            before, time, after = clocks.cycles + read(), clocks.time + read(), clocks.cycles + read()
            rows.append((before & U32, layout.ANCHOR_ID, after & U32, time & U32))
            edge, anchors, count = before // STEP, anchors + 1, count + 1
    if recording.fill == "ring" and anchors and count > capacity:
        end = clocks.cycles + read() & U32
        rows.append((end, layout.LAST_ANCHOR_ID, end, anchors))
        count += 1
    return rows, count


@pytest.mark.parametrize("strategy", [Elected(), AllThreads()])
@pytest.mark.parametrize("fill", ["ring", "stop"])
@pytest.mark.parametrize(("records", "rounds"), [(256, 40), (64, 40), (16, 40), (4, 12)])
@pytest.mark.parametrize(
    ("cycles", "step"), [((1 << 32) - 50, EDGE // 20), (5 * EDGE - 3, EDGE // 3), ((1 << 40) + 7, 3 * EDGE), (0, 1)]
)
def test_rows_are_those_of_the_protocol_page(
    strategy: Any, fill: Any, records: int, rounds: int, cycles: int, step: int
) -> None:
    recording = Recording(strategy=strategy, records=records, fill=fill)
    clocks = Clocks(cycles, (1 << 32) - 9 * step, (step,))
    slabs = ran(looped(rounds), recording, clocks).slabs()
    assert len(slabs) == (2 if strategy == Elected() else 64)
    for slab in slabs[:: 1 if strategy == Elected() else 21]:
        rows, count = expected(slab.key[3], rounds, recording, clocks, len(slab.ring))
        assert slab.count == count
        found = [tuple(int(word) for word in row) for row in slab.records()]
        assert found == (rows[: len(slab.ring)] if fill == "stop" else rows[-len(slab.ring) :])
        if fill == "ring":
            assert (step == 1) == (layout.ANCHOR_ID not in {row[1] for row in rows})


def test_the_host_counts_them_with_and_without_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(0, 0, (EDGE // 8,))
    for records, fill in ((256, "ring"), (16, "ring"), (16, "stop")):
        recording = Recording(records=records, fill=fill)  # type: ignore[arg-type]  # one of the two fills
        host = ran(looped(40), recording, clocks)
        lines = host.lines()
        header = lines.reshape(-1)[: layout.HEADER_BYTES // 4].view(layout.HEADER)[0]
        rows, count = expected(0, 40, recording, clocks, records)
        assert int(header["count"]) == count
        kinds = [row[1] for row in rows]
        assert int(header["anchors"]) == sum(kinds.count(one) for one in (layout.ANCHOR_ID, layout.LAST_ANCHOR_ID))
        with monkeypatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", "0")
            assert np.array_equal(host.lines(), lines)


@pytest.mark.parametrize("order", ["lockstep", "random"])
def test_lanes_that_record_in_turn_have_separate_anchors(order: Order) -> None:
    recording = Recording(strategy=Elected(any_lane=True), records=256)
    host = ran(looped(40), recording, Clocks(0, 0, (EDGE // 8,)), order)
    for slab in host.slabs():
        rows = slab.records()
        anchors = rows[rows["id"] == layout.ANCHOR_ID]
        assert len(anchors) > 10 and slab.count == len(rows) == len(anchors) + 80
        assert (anchors["start"] < anchors["value"]).all() and (anchors["value"] < anchors["end"]).all()


def test_a_lane_that_claims_late_counts_no_anchors_before_its_claim() -> None:
    later = tuple(Node("region", (name, None, None, False, "%n0"), ((),)) for name in ("load", "dot"))
    kernel = written((Node("loop", ("bottom", 4), ((Node("loop", ("bottom", 5), (later, ())),), ())),))
    recording = Recording(strategy=Elected(any_lane=True), records=256)
    for slab in ran(kernel, recording, Clocks(0, 0, (EDGE // 2,))).slabs():
        rows = slab.records()
        assert rows["id"].all() and slab.count == len(rows)
        assert np.count_nonzero(rows["id"] != layout.ANCHOR_ID) == 3 * 5 * 2
    for slab in ran(kernel, replace(recording, records=16), Clocks(0, 0, (EDGE // 2,))).slabs():
        last = slab.records()[-1]
        assert last["id"] == layout.LAST_ANCHOR_ID and slab.count - int(last["value"]) - 1 == 3 * 5 * 2


@pytest.mark.parametrize(
    ("nodes", "recording"),
    [
        (REGIONS, Recording()),
        ((Node("loop", ("bottom", 9), ((REGIONS[0],), ())),), Recording()),  # has loop registers
        ((Node("loop", ("bottom", 9), (REGIONS, ())),), Recording(clock="globaltimer")),
    ],
)
def test_where_no_loop_needs_them_they_cost_nothing(nodes: Any, recording: Recording) -> None:
    text = lower(written(tuple(nodes)).text(), recording, frontend="test").text
    assert "ks_edge" not in text and "KS_SOON" not in text


def test_a_loop_has_one_site_after_its_last_block_with_records() -> None:
    inner = Node("loop", ("bottom", 3), (REGIONS * 3, ()))
    outer = Node("loop", ("bottom", 4), ((*REGIONS, inner, *REGIONS), ()))
    text = lower(written((outer,)).text(), Recording(), frontend="test").text
    assert text.count("KS_SOON:") == 2  # the inner loop's and the outer one's


def test_a_loop_around_a_loop_with_one_region_has_one_per_turn() -> None:
    inner = Node("loop", ("bottom", 2), ((REGIONS[0],), ()))
    kernel = written((Node("loop", ("bottom", 40), ((inner,), ())),))
    text = lower(kernel.text(), Recording(), frontend="test").text
    assert text.count("KS_SOON:") == 1 and "ks_nth0" in text
    (slab, _) = ran(kernel, Recording(records=256), Clocks(0, 0, (EDGE // 8,))).slabs()
    rows = slab.records()
    assert np.count_nonzero(rows["id"] == layout.ANCHOR_ID) > 10 and np.count_nonzero(rows["id"] == LOAD) == 80


def _has_disassembler() -> bool:
    try:
        return bool(tools.find("cuobjdump") or tools.find("nvdisasm"))
    except MissingError:
        return False


LOOP = """.visible .entry k(.param .u64 p, .param .u32 n) {
    .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .pred %p<2>; .reg .f32 %f<3>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, 0; mov.f32 %f1, 0f00000000;
L:
    //kscope enter load - - with
    ld.global.f32 %f2, [%d1];
    //kscope exit load - - with
    //kscope enter math - - with
    fma.rn.f32 %f1, %f1, %f2, %f2;
    //kscope exit math - - with
    add.u64 %d1, %d1, 1024; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra L;
    st.global.f32 [%d1], %f1;
    ret;
}
"""


@pytest.mark.skipif(ptxas() is None or not _has_disassembler(), reason="needs ptxas and nvdisasm: pip install triton")
def test_no_clock_is_read_twice_or_slowly_and_no_lane_waits(tmp_path: Path) -> None:
    """ptxas reads a clock once more, by S2UR, for an instruction that it gives uniform registers."""
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(lower(HEAD.format(arch="90") + LOOP, Recording(), frontend="test").text)
    subprocess.run([str(ptxas()), "-arch=sm_90", str(source), "-o", str(cubin)], check=True)
    code = tools.disassembly(cubin)
    assert len(re.findall(r"SR_CLOCKLO", code)) == 2 + 4 + 2 + 2  # entry, two regions, anchor, end
    assert not re.search(r"(?<!C)S2U?R[^;]*CLOCK", code)
    loop = code[code.rindex("IDP.2A", 0, code.rindex("IDP.2A")) :]
    assert "BSSY" not in loop[: loop.index("STG")]
