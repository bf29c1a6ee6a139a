"""kscope rates: amounts that marks declare, that a reader gives, and those of machine code, over simulated time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kscope
import kscope_sim
from kscope.analysis import rates_text
from kscope.analysis.rates import Rate, rates
from kscope.capture.capture import Capture
from kscope.capture.samples import CodeWork
from kscope.cli import main
from kscope.errors import FormatError, UsageError
from kscope.instrument.peaks import Peaks
from kscope.machine_code import disassembly
from kscope.machine_code.work import region_work
from kscope.marks import work
from kscope.marks.work import Work
from kscope.tracedata.kernel_names import of_kernels
from kscope_sim.warp import Warp

BLOCKS, WARPS, TURNS = 4, 2, 10


def moving(warp: Warp) -> None:
    """Each block moves 1,000 bytes per iteration, and then as many as the iteration's number; warps are independent."""
    for turn in range(TURNS):
        with kscope.region("load", bytes=1000):
            warp.work(100)
        with kscope.region("store", bytes=turn, flops=64):
            warp.work(50)
        with kscope.region("gather", value=turn, bytes="value"):
            warp.work(20)
        with kscope.region("plain"):
            warp.work(10)


@pytest.fixture(scope="module")
def capture() -> Capture:
    with kscope.profile() as prof:
        kscope_sim.launch(moving, BLOCKS, 32 * WARPS)
    return prof.capture


def rows(trace: kscope.Trace, **options: object) -> dict[str, Rate]:
    return {row.region: row for row in rates(trace, **options).rows}  # type: ignore[arg-type]  # passed on


def test_declared_amounts_are_those_of_a_block_whatever_its_warps(capture: Capture) -> None:
    found = rows(kscope.decode(capture))
    load, store = found["load"], found["store"]
    assert (load.executions, load.bytes, load.bytes_from) == (BLOCKS * WARPS * TURNS, 1000 * BLOCKS * TURNS, "declared")
    assert store.bytes == BLOCKS * sum(range(TURNS)) and store.flops == 64 * BLOCKS * TURNS
    assert found["gather"].bytes == BLOCKS * sum(range(TURNS))
    assert math.isnan(load.flops) and load.flops_from == ""
    assert math.isnan(found["plain"].bytes) and math.isnan(found["plain"].bandwidth)


def test_a_rate_is_the_amount_over_the_mean_time_of_an_sm_in_the_region(capture: Capture) -> None:
    trace = kscope.decode(capture)
    load = rows(trace)["load"]
    at = np.flatnonzero((trace.region_names()[trace.region] == "load") & trace.is_span)
    busy = []
    for sm in np.unique(trace.sm[at]):
        own = at[trace.sm[at] == sm]
        moments = np.unique(np.concatenate([trace.start_ns[own], trace.start_ns[own] + trace.dur_ns[own]]))
        middles = (moments[1:] + moments[:-1]) / 2
        begin, end = trace.start_ns[own], trace.start_ns[own] + trace.dur_ns[own]
        inside = ((begin[:, None] < middles) & (middles < end[:, None])).any(axis=0)
        busy.append(np.diff(moments)[inside].sum())
    assert load.busy_ns == pytest.approx(np.mean(busy))
    assert load.bandwidth == pytest.approx(1000 * BLOCKS * TURNS / np.mean(busy))


def test_given_amounts_come_before_declared_ones_and_those_before_the_code_s(capture: Capture) -> None:
    trace = kscope.decode(capture)
    [number] = of_kernels(trace)
    code = {(number, name): CodeWork(bytes=128, flops=32, most=True) for name in ("load", "store", "plain")}
    found = rows(trace, code=code, given={"store": Work(flops=1), "load": Work(bytes="value")})
    assert (found["store"].flops, found["store"].flops_from) == (BLOCKS * TURNS, "given")
    assert (found["store"].bytes_from, found["store"].most) == ("declared", False)
    assert (found["load"].bytes, found["load"].bytes_from) == (0, "given")  # it has no values
    plain = found["plain"]
    assert (plain.bytes, plain.bytes_from, plain.most) == (128 * BLOCKS * WARPS * TURNS, "code", True)
    unknown = {(number, "plain"): CodeWork(unknown="it has branches")}
    assert rows(trace, code=unknown)["plain"].unknown == "it has branches"


def test_shared_memory_s_rate_is_that_of_the_machine_code(capture: Capture) -> None:
    trace = kscope.decode(capture)
    assert "shared GB/s" not in str(rates(trace)) and np.isnan(rows(trace)["load"].shared)
    [number] = {one.kernel_id for one in trace.launches}
    found = rates(trace, code={(number, "plain"): CodeWork(shared=512)})
    row = next(one for one in found.rows if one.region == "plain")
    assert row.shared == 512 * BLOCKS * WARPS * TURNS
    assert row.shared_bandwidth == pytest.approx(row.shared / row.busy_ns)
    assert "shared GB/s" in rates_text.text(found, width=200)


def test_the_roof_is_the_nearer_limit_and_its_part_that_of_the_sms_that_recorded(capture: Capture) -> None:
    trace = kscope.decode(capture)
    store = rows(trace)["store"]
    sms = len(np.unique(trace.sm))
    peaks = Peaks("GPU", 2 * sms, bandwidth=20 * store.bandwidth, fma=4 * store.speed)
    found = rows(trace, peaks=peaks)["store"]
    assert (found.roof, found.part) == ("compute", pytest.approx(0.5))  # half of the SMs have half of the roof
    found = rows(trace, peaks=replace(peaks, bandwidth=4 * store.bandwidth, fma=20 * store.speed))["store"]
    assert (found.roof, found.part) == ("memory", pytest.approx(0.5))
    roof = min(2 * peaks.fma / 4, found.intensity * 2 * peaks.bandwidth)
    assert roof > 0 and rows(trace, peaks=peaks)["plain"].roof == ""


def test_what_only_some_warps_recorded_is_a_problem(capture: Capture) -> None:
    trace = kscope.decode(capture)
    assert rates(trace).problems == ()
    assert "selected some warps only" in rates(trace.filter(block=0)).problems[0].replace("filters left", "selected")
    one = replace(trace.recorded, strategies=("lane0-warp0",), options={"block": [0]})
    assert len(rates(replace(trace, recorded=one)).problems) == 2


def test_lanes_of_a_warp_count_once() -> None:
    with kscope.profile(strategy=kscope.AllThreads()) as prof:
        kscope_sim.launch(moving, BLOCKS, 32 * WARPS)
    found = rows(prof.trace)["load"]
    assert (found.executions, found.bytes) == (BLOCKS * WARPS * TURNS, 1000 * BLOCKS * TURNS)


def test_the_command(tmp_path: Path, capture: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    path, peaks = str(tmp_path / "a.kscope"), tmp_path / "peaks.json"
    capture.save(path)
    peaks.write_bytes(Peaks("GPU", 132, 4000.0, 60_000.0, 900_000.0).to_json())
    assert main(["rates", path, "--flops", "load=5", "--bytes", "plain=3", "--peaks", str(peaks)]) == 0
    text = capsys.readouterr().out
    assert "of the roof" in text and "4,000 GB/s read from memory" in text
    assert main(["rates", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "kscope.rates"
    assert {row["region"]: row["bytes"] for row in found["rows"]} == {
        "load": 40_000, "store": 180, "gather": 180, "plain": None,
    }  # fmt: skip
    for wrong, why in (
        ("lod=1", "did you mean load?"), ("load=-1", "REGION=N"), ("load", "REGION=N"),
        ("plain=value", "have no value"),
    ):  # fmt: skip
        assert main(["rates", path, "--bytes", wrong]) == 2
        assert why in capsys.readouterr().err
    peaks.write_text('{"schema": "kscope.peaks", "gpu": "x", "sms": 0}')
    assert main(["rates", path, "--peaks", str(peaks)]) == 2
    assert "measure again with kscope doctor --peaks" in capsys.readouterr().err


def test_amounts_that_marks_cannot_have_are_refused() -> None:
    assert work.with_work("load", None, bytes=8, flops="value") == ("bytes=8,flops=value", None)
    assert work.with_work("load", 3, bytes=None, flops=None) == ("", 3)
    runtime = object()
    assert work.with_work("load", None, bytes=runtime, flops=None) == ("bytes=value", runtime)
    for amounts in ({"bytes": -1}, {"bytes": 1.5}, {"flops": True}, {"bytes": "many"}):
        with pytest.raises(UsageError, match="expected"):
            work.with_work("load", None, **amounts)
    with pytest.raises(UsageError, match="a record has one value"):
        work.with_work("load", 3, bytes=runtime)
    with pytest.raises(UsageError, match="a record has one value"):
        work.with_work("load", None, bytes=runtime, flops=object())
    assert work.parse("bytes=8,flops=value") == Work(8, "value") and work.parse("") == Work()
    assert work.parse("bytes=8,bytes=9") is work.parse("size=8") is work.parse("bytes=x") is None
    with pytest.raises(FormatError, match="not what kscope doctor --peaks writes"):
        Peaks.from_json(b"[]", "x.json")


BEGIN, END, ID = "CS2R.32 R4, SR_CLOCKLO", "CS2R.32 R6, SR_CLOCKLO", "MOV R5, 0xde2adb61"
STORE = "STG.E.128 desc[UR4][R8.64], R4"


def counted(*inside: str, more: tuple[str, ...] = ()) -> CodeWork:
    """The work of a region with these instructions."""
    lines = ['\t.section\t.text.k,"ax",@progbits']
    code = (BEGIN, *inside, END, ID, STORE, *more, "EXIT")
    lines += [f"        /*{16 * at:04x}*/   {text} ;" for at, text in enumerate(code)]
    [function] = disassembly.functions("\n".join(lines))
    return region_work(function, disassembly.sites(function, {0xDE2ADB61: "load"}))["load"]


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("LDG.E.128 R20, desc[UR4][R2.64]", CodeWork(bytes=512)),
        ("LDG.E.U16.CONSTANT R20, desc[UR4][R2.64]", CodeWork(bytes=64)),
        ("STG.E desc[UR4][R2.64], R20", CodeWork(bytes=128)),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64]", CodeWork(bytes=512, shared=512)),
        ("LDSM.16.M88.4 R20, [R3]", CodeWork(shared=512)),
        ("LDSM.16.M88 R20, [R3]", CodeWork(shared=128)),
        ("STS.64 [R3], R20", CodeWork(shared=256)),
        ("FFMA R20, R21, R22, R23", CodeWork(flops=64)),
        ("HFMA2.MMA R20, -RZ, RZ, 1, 1", CodeWork()),
        ("HFMA2.MMA R20, R21, R22, R23", CodeWork(flops=128)),
        ("@P0 FADD R20, R21, R22", CodeWork(flops=32, most=True)),
        ("HMMA.16816.F32 R20, R24, R28, R20", CodeWork(flops=4096, matrix=True)),
        ("HGMMA.64x256x16.F32 R24, gdesc[UR4], R24", CodeWork(flops=131072, matrix=True)),
        ("MOV R20, R21", CodeWork()),
    ],
)  # fmt: skip
def test_what_an_instruction_moves_and_computes(instruction: str, expected: CodeWork) -> None:
    assert counted(instruction) == expected


def test_what_the_code_does_not_say_is_unknown() -> None:
    assert "how much UTMALDG moves" in counted("UTMALDG.2D [UR8], [UR4], desc[UR6]").unknown
    assert "it has branches" in counted("@P0 BRA 0x10").unknown
    assert "the shape of HMMA.1 is not known" in counted("HMMA.1 R20, R24, R28, R20").unknown
    twice = (BEGIN, END, ID, STORE)
    assert counted("FADD R20, R21, R22", more=twice).unknown == "its places in the code differ"


def test_stores_of_nested_records_are_not_the_region_s() -> None:
    inner = ("CS2R.32 R12, SR_CLOCKLO", "CS2R.32 R14, SR_CLOCKLO", "MOV R13, 0xde2adb61", "STG.E.128 [R8.64], R12")
    assert counted(*inner, "STG.E.128 [R30.64], R24").unknown == "its places in the code differ"
    lines = ['\t.section\t.text.k,"ax",@progbits']
    code = (BEGIN, *inner, "STG.E.128 [R30.64], R24", END, "MOV R5, 0x10", STORE, "EXIT")
    lines += [f"        /*{16 * at:04x}*/   {text} ;" for at, text in enumerate(code)]
    [function] = disassembly.functions("\n".join(lines))
    found = region_work(function, disassembly.sites(function, {0xDE2ADB61: "inner", 0x10: "outer"}))
    assert found == {"outer": CodeWork(bytes=512), "inner": CodeWork()}
