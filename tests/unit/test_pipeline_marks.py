"""Which operations of a PTX text auto="pipeline" marks, how, and what it names as not recorded."""

from __future__ import annotations

import re

import pytest
from nvcc import PLAIN, compiled, needs_nvcc
from ptxvm.assemble import complaint, ptxas

from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope.lowering import pipeline
from kscope.lowering.plan import lower
from kscope.marks.grammar import Mark, parse
from kscope.marks.operations import PIPELINE, Named, of_name

SELECTED = Selection((PIPELINE,))
HEAD = """.version 8.7
.target sm_100a
.address_size 64
"""
TMA = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"


def kernel(body: str) -> str:
    return (
        ".visible .entry k(.param .u64 out)\n{\n"
        ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %rs<9>;\n"
        f"ld.param.u64 %rd1, [out];\n{body}\nret;\n}}\n"
    )


def found(body: str) -> pipeline.Marked:
    return pipeline.mark_operations(HEAD + kernel(body), {}, SELECTED)


def marks(body: str) -> list[Mark]:
    return [mark for line in found(body).text.splitlines() if (mark := parse(line)) is not None]


def says(body: str) -> list[Named | None]:
    """The contents of the marks' names."""
    return [of_name(mark.name) for mark in marks(body)]


@pytest.mark.parametrize(
    ("code", "said", "operand"),
    [
        ("mbarrier.init.shared.b64 [%r1], 8;", Named("init", count=8), "each:%r1"),
        ("mbarrier.arrive.shared.b64 _, [%r1+16];", Named("arrive"), "%r1+16"),
        ("mbarrier.arrive.shared::cta.b64 %rd1, [%r1], 4;", Named("arrive", count=4), "%r1"),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];", Named("arrive"), "each:%r1"),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;", Named("expect", bytes=512), "%r1"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 512;", Named("expect_tx", bytes=512), "%r1"),
        ("mbarrier.arrive.b64 _, [%rd1];", Named("arrive"), "generic:%rd1"),
        ("mbarrier.arrive.shared.b64 _, [%rd1];", Named("arrive"), "wide:%rd1"),
        (TMA, Named("copy"), "%r4"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];",
            Named("copy", bytes=64),
            "%r2",
        ),
        (
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%rd1];",
            Named("follow"),
            "wide:%rd1",
        ),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", Named("follow"), "%r1"),
        ("cp.async.mbarrier.arrive.shared.b64 [%r1];", Named("follow", count=0), "%r1"),
        ("cp.async.commit_group;", Named("commit", of="cp.async"), "0"),
    ],
)  # fmt: skip
def test_an_operation_is_marked_before_it_is_executed(code: str, said: Named, operand: str) -> None:
    (mark,) = marks(code)
    assert (mark.act, of_name(mark.name), mark.operand) == ("instant", said, operand)
    assert re.search(rf"{re.escape(mark.comment())}\s+{re.escape(code)}", found(code).text)


def test_a_predicate_of_an_operation_is_one_of_its_record() -> None:
    (mark,) = marks("@!%p1 mbarrier.arrive.shared.b64 _, [%r1];")
    assert mark.when == "!%p1"


def test_numbers_that_only_registers_have_are_records_that_follow() -> None:
    body = "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], %r2;"
    assert [one and one.operation for one in says(f"ld.global.u32 %r2, [%rd1]; {body}")] == ["expect", "bytes"]
    assert says(f"mov.b32 %r2, 96; {body}") == [Named("expect", bytes=96)]
    assert len(says(f"mov.b32 %r2, 96; @%p1 mov.b32 %r2, 64; {body}")) == 2


ELECT = "elect.sync %r1|%p1, -1; and.pred %p2, %p3, %p1;"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r4];"


def test_an_elected_lane_is_known_to_be_one() -> None:
    assert [mark.operand for mark in marks(f"{ELECT} @%p2 {TMA}")] == ["one:%r4"]
    assert [mark.operand for mark in marks(f"@%p2 {TMA}")] == ["%r4"]
    assert [mark.operand for mark in marks(f"{ELECT} @%p4 mov.pred %p2, %p4; @%p2 {TMA}")] == ["%r4"]


def test_copies_to_one_barrier_in_a_row_are_one_record() -> None:
    expect = "mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;"
    assert says(f"{expect} {BULK} {BULK}") == [Named("expect", bytes=128, copies=2, copied=128)]
    assert says(f"{BULK} {BULK} {BULK}") == [Named("copy", bytes=192, copies=3)]
    assert says(f"{TMA} {TMA}") == [Named("copy", copies=2)]
    assert says(f"@%p1 {expect} @%p1 {BULK}") == [Named("expect", bytes=128, copies=1, copied=64)]
    more = ELECT.replace("%p1", "%p4").replace("%p2", "%p5")
    assert says(f"{ELECT} {more} @%p2 {BULK} @%p5 {BULK}") == [Named("copy", bytes=128, copies=2)], "one lane each"


@pytest.mark.parametrize(
    "body",
    [
        f"{BULK} A: {BULK} @%p1 bra A;",
        f"@%p1 {BULK} @%p2 {BULK}",
        f"{BULK} {BULK.replace('%r4', '%r5')}",
        f"mov.b32 %r4, 8; {BULK} mov.b32 %r4, 16; {BULK}",
        f"{BULK} mbarrier.arrive.shared.b64 _, [%r5]; {BULK}",
    ],
)
def test_other_copies_have_their_own_records(body: str) -> None:
    assert [one and one.operation for one in says(body)].count("copy") == 2


@pytest.mark.parametrize(
    "loop",
    [
        "{ .reg .pred p; A: mbarrier.try_wait.parity.shared.b64 p, [%r4], %r5; @!p bra.uni A; }",
        "{ .reg .pred p; A: mbarrier.try_wait.parity.shared.b64 p, [%r4], %r5, 999; @p bra B; bra A; B: }",
        "$A: { .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%r4], 1; selp.u32 %r1, 1, 0, p; }"
        " setp.eq.u32 %p1, %r1, 0; @%p1 bra $A;",
    ],
)
def test_a_loop_that_only_waits_is_a_region(loop: str) -> None:
    assert [mark.act for mark in marks(loop)] == ["enter", "exit"]
    text = found(loop).text
    assert text.index("//kscope enter") < text.index("A:") < text.index("bra") < text.index("//kscope exit")


@pytest.mark.parametrize(
    "loop",
    [
        "mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r5;",  # a try that is not repeated here
        "$A: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r5; st.global.u32 [%rd1], 1; @!%p2 bra $A;",
        "$A: add.u32 %r4, %r4, 8; mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r5; @!%p2 bra $A;",
        "@%p1 bra $A; mov.u32 %r1, 1; $A: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r5; @!%p2 bra $A;",
    ],
)
def test_other_waits_begin_where_they_are_first_tried(loop: str) -> None:
    assert [mark.act for mark in marks(loop)] == ["attempt", "success"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", "waits for a token"),
        ("@%p1 mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;", "under a predicate"),
        ("mbarrier.arrive_drop.shared.b64 _, [%r1];", "changes how many arrivals"),
        (TMA.replace("bytes [", "bytes.multicast::cluster [").replace("[%r4]", "[%r4], %rs1"), "several blocks"),
        ("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 16;", "is not recorded"),
    ],
)
def test_what_is_not_recorded_is_named(code: str, why: str) -> None:
    (problem,) = found(code).problems
    assert problem.kind == PIPELINE
    assert why in problem.text
    assert problem.text.startswith("kernel k: ")


def test_functions_that_are_not_inlined_are_named() -> None:
    text = HEAD + ".func f()\n{\n.reg .b32 %r<9>;\nmbarrier.arrive.shared.b64 _, [%r1];\nret;\n}\n" + kernel("")
    made = pipeline.mark_operations(text, {}, SELECTED)
    assert made.text == text
    assert "f are not recorded" in made.problems[0].text


def test_kernels_that_are_not_selected_stay_as_they_are() -> None:
    text = HEAD + kernel("mbarrier.arrive.shared.b64 _, [%r1];")
    selection = Selection((PIPELINE,), kernels=("other",))
    assert lower(text, Recording(selection=selection), frontend="test").text is text
    assert lower(text, Recording(), frontend="test").text is text
    assert lower(text, Recording(selection=SELECTED), frontend="test").text != text


def test_a_text_without_operations_is_the_same_object() -> None:
    text = HEAD + kernel("add.u32 %r1, %r1, 1;")
    assert lower(text, Recording(selection=SELECTED), frontend="test").text is text


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas")
def test_every_form_assembles() -> None:
    body = "".join(
        f"{code}\n"
        for code in (
            "@%p1 mbarrier.init.shared::cta.b64 [%r1], %r2;",
            "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8], %r3;",
            "mbarrier.arrive.b64 _, [%rd1];",
            TMA,
            "{ .reg .pred p; A: mbarrier.try_wait.parity.shared::cta.b64 p, [%r4], %r5; @!p bra.uni A; }",
            "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], %r5;",
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;",
        )
    )
    made = lower(HEAD + kernel(body), Recording(selection=SELECTED), frontend="test")
    assert complaint(made.text, "100a") == ""


@needs_nvcc
def test_the_tma_example_is_recorded_whole() -> None:
    from pathlib import Path

    source = Path(__file__).resolve().parents[2].joinpath("examples", "cuda_tma.cu").read_text()
    text = compiled(source, PLAIN, "-lineinfo", "-arch=sm_90a", to="ptx")
    made = lower(text if isinstance(text, str) else text.decode(), Recording(selection=SELECTED), frontend="test")
    names = [of_name(region.name) for region in made.meta.regions]
    counts = sorted(one.count for one in names if one is not None and one.operation == "init")
    assert counts == [1, 8]
    (expect,) = (one for one in names if one is not None and one.operation == "expect")
    assert (expect.bytes, expect.copies, expect.copied) == (8192, 2, 8192)
    assert {one.operation for one in names if one is not None} == {"init", "expect", "wait", "arrive"}
