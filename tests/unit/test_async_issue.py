"""Which regions end at the issue of asynchronous work, by the code between their marks; and where the fact is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reports
import synth
from nvcc import MARKS, compiled, needs_nvcc
from synth import Rec

from kscope.analysis.summary import summarize
from kscope.capture import metadata
from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope.trace import Trace, decode

HEAD = """.version 8.7
.target sm_100a
.address_size 64
"""
CP_ASYNC = "cp.async.cg.shared.global [%r1], [%rd1], 16;"
TMA = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1, 0, 0;"
TRY_WAIT = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%r4], %r5; @!p bra AGAIN; }"
ISSUES = [
    (CP_ASYNC, "cp.async", "cp.async.commit_group; cp.async.wait_group 0;"),
    (CP_ASYNC, "cp.async", "cp.async.wait_all;"),
    (CP_ASYNC, "cp.async", f"cp.async.mbarrier.arrive.noinc.shared.b64 [%r4]; {TRY_WAIT}"),
    (TMA, "cp.async.bulk.tensor", TRY_WAIT),
    ("@%p1 " + TMA, "cp.async.bulk.tensor", "mbarrier.test_wait.shared.b64 %p2, [%r4], %rd2;"),
    (STORE, "cp.async.bulk", "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"),
    (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk",
        "cp.async.bulk.wait_group 0;",
    ),
    ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r4];", "st.async", TRY_WAIT),
    (WGMMA, "wgmma.mma_async", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"),
    (
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r3, %p1;",
        "tcgen05.mma",
        f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd1]; {TRY_WAIT}",
    ),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];", "tcgen05.ld", "tcgen05.wait::ld.sync.aligned;"),
    ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r1};", "tcgen05.st", "tcgen05.wait::st.sync.aligned;"),
]
OTHER_WAITS = {"cp.async": "wgmma.wait_group.sync.aligned 0;", "wgmma.mma_async": "cp.async.wait_all;"}


def kernel(body: str, name: str = "k") -> str:
    return (
        f".visible .entry {name}(.param .u64 out)\n{{\n.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"
        f" .reg .f32 %f<9>;\nld.param.u64 %rd1, [out];\n{body}\nret;\n}}\n"
    )


def region(body: str, name: str = "load") -> str:
    return f"//kscope enter {name} - - with\n{body}\n//kscope exit {name} - - with\n"


def issued(*bodies: str) -> dict[str, str | None]:
    """Region -> the instruction at whose issue it ends, of a module with a kernel for each body."""
    text = HEAD + "".join(kernel(body, f"k{number}") for number, body in enumerate(bodies))
    return {one.name: one.ends_at_issue_of for one in plan.lower(text, Recording(), frontend="t").meta.regions}


@pytest.mark.parametrize(("issue", "instruction", "wait"), ISSUES)
def test_a_region_without_the_wait_for_its_work_ends_at_the_issue(issue: str, instruction: str, wait: str) -> None:
    assert issued(region(issue)) == {"load": instruction}
    assert issued(region(issue) + wait) == {"load": instruction}
    assert issued(wait.replace("AGAIN", "BEFORE") + region(issue)) == {"load": instruction}
    assert issued(region(f"{issue}\n{wait}")) == {"load": None}


@pytest.mark.parametrize(("issue", "instruction", "wait"), ISSUES)
def test_a_wait_before_the_issue_is_for_something_else(issue: str, instruction: str, wait: str) -> None:
    assert issued(region(f"{wait}\n{issue}")) == {"load": instruction}


@pytest.mark.parametrize("instruction", OTHER_WAITS)
def test_a_wait_of_another_kind_does_not_count(instruction: str) -> None:
    issue = next(issue for issue, name, _ in ISSUES if name == instruction)
    assert issued(region(f"{issue}\n{OTHER_WAITS[instruction]}")) == {"load": instruction}


def test_prefetches_and_commits_are_no_work_to_wait_for() -> None:
    for line in (
        "cp.async.bulk.prefetch.L2.global [%rd1], %r1;",
        "cp.async.commit_group;",
        "prefetch.global.L2 [%rd1];",
    ):
        assert issued(region(line)) == {"load": None}
    assert issued(region("ld.global.b32 %r1, [%rd1];")) == {"load": None}


def test_a_call_may_wait() -> None:
    assert issued(region(f"{TMA}\ncall (%r1), wait_for_it, (%r2);")) == {"load": None}


def test_issues_and_waits_are_followed_through_branches() -> None:
    skipped = f"@%p1 bra SKIP;\n{TMA}\nSKIP:"
    assert issued(region(skipped)) == {"load": "cp.async.bulk.tensor"}
    assert issued(region(f"{TMA}\n@%p1 bra SKIP;\n{TRY_WAIT}\nSKIP:")) == {"load": None}


LOOP = "LOOP:\n{}\nadd.s32 %r7, %r7, 1;\nsetp.lt.s32 %p3, %r7, %r6;\n@%p3 bra LOOP;\n"


def test_a_loop_inside_the_region_waits_for_its_previous_iteration() -> None:
    pipelined = LOOP.format(f"{TRY_WAIT}\n{TMA}")
    assert issued(region(pipelined)) == {"load": None}
    assert issued(LOOP.format(f"{TRY_WAIT}\n{region(TMA)}")) == {"load": "cp.async.bulk.tensor"}
    assert issued(LOOP.format(region(f"{TRY_WAIT}\n{TMA}"))) == {"load": "cp.async.bulk.tensor"}


def test_a_region_around_the_whole_pipeline_is_not_named_for_the_issue_inside() -> None:
    both = region(f"{region(TMA)}\n{region(TRY_WAIT, 'wait')}", "tile")
    assert issued(both) == {"load": "cp.async.bulk.tensor", "tile": None, "wait": None}


def test_a_region_that_waits_for_some_of_its_work_measures_more_than_the_issue() -> None:
    assert issued(region(f"{TMA}\n{TRY_WAIT}\n{STORE}")) == {"load": None}


def test_every_place_of_a_region_has_to_end_at_the_issue() -> None:
    waits = region(f"{TMA}\n{TRY_WAIT}")
    assert issued(region(TMA) + region(CP_ASYNC)) == {"load": "cp.async.bulk.tensor"}
    assert issued(region(TMA) + waits) == {"load": None}
    assert issued(region(TMA), waits) == {"load": None}
    assert issued(region(TMA), region(CP_ASYNC)) == {"load": "cp.async.bulk.tensor"}


def test_regions_of_one_name_inside_each_other_end_apart() -> None:
    assert issued(region(f"{region(TMA)}\n{TRY_WAIT}")) == {"load": None}


LOAD = ("load", None, "a.py:7", None, "source", "cp.async.bulk.tensor")
HINT = "load: ends at the issue of cp.async.bulk.tensor, not at its arrival; time the wait"


def trace(*names: tuple[object, ...] | str) -> Trace:
    """A trace with a span of each name."""
    found = [name if isinstance(name, str) else str(name[0]) for name in names]
    slab = synth.slab([Rec(name, 2100 + 10 * n, 2105 + 10 * n) for n, name in enumerate(dict.fromkeys(found))])
    return decode(synth.capture(slab, names=names))  # type: ignore[arg-type]  # every field of a region


def test_the_summary_gives_the_hint_once_in_text_and_markdown() -> None:
    summary = summarize(trace(LOAD, "dot"), "warp")
    text = summary.text(120)
    assert text.count(HINT) == 1
    assert "dot: ends" not in text
    assert f"\n* {HINT.replace('_', chr(92) + '_')}\n" in summary.markdown()


def test_the_fact_is_a_field_of_the_region_in_json_and_csv() -> None:
    summary = summarize(trace(LOAD, "dot"))
    rows = {row["region"]: row["ends_at_issue_of"] for row in json.loads(json.dumps(summary.to_dict()))["regions"]}
    assert rows == {"load": "cp.async.bulk.tensor", "dot": None}
    header, *lines = summary.csv().splitlines()
    column = header.split(",").index("ends_at_issue_of")
    assert sorted(line.split(",")[column] for line in lines) == ["", "cp.async.bulk.tensor"]


def test_modules_that_differ_give_no_hint() -> None:
    assert "ends at the issue" not in summarize(trace(LOAD, "load", "dot")).text(120)
    assert "ends at the issue" not in summarize(trace("load", LOAD, "dot")).text(120)


@pytest.mark.parametrize("row", [["load", None, "a.py:7"], ["load", None, "a.py:7", None, "auto"]])
def test_metadata_of_earlier_captures_has_no_such_fact(row: list[object]) -> None:
    found = metadata.from_dict(metadata.to_dict(synth.module()) | {"regions": [row]})
    assert [(one.name, one.ends_at_issue_of) for one in found.regions] == [("load", None)]


@needs_nvcc
def test_cuda_kernels_are_read_as_the_compiler_writes_them() -> None:
    source = Path(__file__).resolve().parents[2] / "examples" / "cuda_tma.cu"
    text = compiled(source.read_text(), MARKS, "-std=c++17").decode()
    regions = plan.lower(text, Recording(), frontend="t").meta.regions
    assert {one.name: one.ends_at_issue_of for one in regions} == {
        "ask": "cp.async.bulk", "multiply": None, "room": None, "sum": None, "wait": None,
    }  # fmt: skip


def test_the_reports_table_has_the_hint() -> None:
    rows = {row["region"]: row["hint"] for row in reports.written(trace(LOAD, "dot")).about["table"]}
    assert rows == {"load": HINT.removeprefix("load: "), "dot": ""}
