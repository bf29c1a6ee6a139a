"""Statements, scopes and blocks of PTX text; which regions are open where."""

from __future__ import annotations

import pytest
from hypothesis import given
from ptxvm.kernels import kernels
from ptxvm.parser import parse_module
from ptxvm.profile import examples
from ptxvm.writing import KernelText

from kscope.lowering import pairing
from kscope.ptx import cfg

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"


def function(body: str) -> tuple[cfg.Function, str]:
    text = f"{HEAD}.visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n"
    (found,) = cfg.functions(text)
    return found, text


def sorts(body: str) -> list[str]:
    return [statement.sort for statement in function(body)[0].statements]


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("bra.uni $L1;", "jump"),
        ("@%p1 bra $L1;", "jump"),
        ("@!%p1\tbra\t$L1;", "jump"),
        ("brx.idx %r1, table;", "jump"),
        ("trap;", "jump"),
        ("ret.uni;", "leave"),
        ("@%p1 exit;", "leave"),
        ("call.uni (retval0), f, (param0);", "call"),
        ("@%p1 call f;", "call"),
        ("brkpt;", "call"),
        ("FROB.x 1;", "call"),
        ("????;", "call"),
        ("bar.sync 0;", "access"),
        (".reg .b32 %r<9>;", "other"),
        ('.pragma "nounroll";', "other"),
        ("mov.b64 {%r1, _}, %rd1;", "other"),
        ("cp.async.bulk.tensor.1d.shared::cluster.global.tile.bulk_group [%r1], [%rd1, {%r2}], [%r4];", "access"),
        ("//kscope enter load - - with", "mark"),
    ],
)  # fmt: skip
def test_statements_are_classified(text: str, sort: str) -> None:
    assert sorts(f"{text}\nret;") == [sort, "leave"]


def test_pending_records_are_stored_before_unknown_text() -> None:
    assert function("????;\nret;")[0].statements[0].flushes


@pytest.mark.parametrize("label", ["$L__BB0_1", "L1", "_x", "%l", "LAB_WAIT"])
@pytest.mark.parametrize("line", ["{0}: ret;", "add.u32 %r1, %r1, 1; {0} :\nret;", "/* {{ */ {0}:// }}\n ret;"])
def test_a_label_is_found_anywhere_on_the_line(label: str, line: str) -> None:
    found = [s.name for s in function(f"@%p1 bra {label};\n" + line.format(label))[0].statements if s.sort == "label"]
    assert found == [label]


def test_unreferenced_labels_are_ignored() -> None:
    assert sorts("$L__tmp0:\nadd.u32 %r1, %r1, 1;\n$L__func_end0:\nret;") == ["other", "leave"]


def test_commented_code_is_ignored() -> None:
    assert sorts("// bra L; }\n/* ret;\n } */ add.u32 %r1, %r1, 1; // { exit;\nret;") == ["other", "leave"]


def test_falling_through_the_closing_brace_leaves_the_kernel() -> None:
    found, text = function("add.u32 %r1, %r1, 1;")
    assert [s.sort for s in found.statements] == ["other", "leave"]
    assert found.statements[-1].start == found.close
    assert text[found.close] == "}"
    assert sorts("@%p1 ret;") == ["leave", "leave"]
    assert sorts("L: bra L;") == ["label", "jump"]


def test_functions_are_distinguished_from_declarations() -> None:
    text = HEAD + (
        ".extern .func (.param .b32 r) vprintf(.param .b64 a);\n"
        ".visible .global .align 1 .b8 data[3] = {1, 2, 3};\n"
        ".func (.param .b32 func_retval0) helper(.param .b32 a)\n{\nret;\n}\n"
        ".weak .entry one(.param .u64 p)\n.maxntid 128, 1, 1\n{\nret;\n}\n.entry two(){ret;}"
    )
    assert [(f.kind, f.name) for f in cfg.functions(text)] == [("func", "helper"), ("entry", "one"), ("entry", "two")]


def edges(body: str) -> list[list[int]]:
    return [sorted(block.successors) for block in cfg.blocks(function(body)[0])]


def test_jumps_and_labels_define_the_control_flow() -> None:
    assert edges("@%p1 bra B; A: bra C; B: bra A; C: ret;") == [[1, 2], [3], [1], []]


def test_a_jump_in_braces_goes_to_the_innermost_label() -> None:
    assert edges("W: { W: bra W; } bra W;") == [[1], [1], [0]]


def test_a_branch_table_may_reach_every_entry() -> None:
    assert edges("T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret;")[0] == [1, 2]


def test_branch_tables_are_resolved_within_their_kernel() -> None:
    first = ".entry k(){ T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret; }\n"
    second = ".entry j(){ T: .branchtargets B, C; brx.idx %r1, T; A: ret; B: ret; C: bra A; }\n"
    text = HEAD + first + second
    blocks = cfg.blocks(cfg.functions(text)[1])
    assert sorted(blocks[0].successors) == [2, 3]


def test_an_unresolved_jump_may_reach_every_block() -> None:
    assert edges("brx.idx %r1, nowhere; A: bra A; B: bra B;")[0] == [0, 1, 2]


def test_blocks_on_a_cycle_are_flagged() -> None:
    found, _ = function("A: @%p1 bra C; B: bra A; C: @%p2 bra C; ret;")
    graph = cfg.blocks(found)
    looped = {found.statements[block.first].name or "end": block.looped for block in graph}
    assert looped["A"]
    assert looped["C"]
    assert not looped["end"]


@examples(60)
@given(kernels(depth=3))
def test_two_readers_of_ptx_agree_on_marks_jumps_and_ends(kernel: KernelText) -> None:
    """The pass's scanner and the interpreter's parser, which share no line."""
    text = kernel.text()
    (found,) = cfg.functions(text)
    instructions = [i for block in parse_module(text).kernels["k"].blocks for i in block]
    ours = [s for s in found.statements if s.sort in ("mark", "jump", "leave") and s.start < found.close]
    theirs = [i for i in instructions if i.op[0] in ("kscope", "bra", "brx", "trap", "ret", "exit")]
    assert [text.count("\n", 0, s.start) + 1 for s in ours] == [i.line for i in theirs]
    assert [s.mark for s in ours] == [i.mark for i in theirs]


@examples(60)
@given(kernels(depth=3))
def test_kernels_whose_regions_pair_have_no_faults(kernel: KernelText) -> None:
    text = kernel.text()
    (found,) = cfg.functions(text)
    assert not pairing.check(found, cfg.blocks(found)).faults


def faults(body: str) -> list[str]:
    found, _ = function(body.replace("<", "//kscope enter ").replace(">", "//kscope exit ").replace("|", " - - with\n"))
    return [f"{f.name} {f.text}" for f in pairing.check(found, cfg.blocks(found)).faults]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<a| ret;", "a is still open where the kernel returns"),
        ("<a| @%p1 ret; >a| ret;", "a is still open where the kernel returns"),
        ("<a| @%p1 bra E; >a| E: ret;", "a is still open where the kernel returns"),
        ("<a| exit;", "a is still open where the kernel returns"),
        ("<a| @%p1 exit; ret;", "a is still open where the kernel returns"),
        ("@%p1 bra E; <a| exit; E: ret;", "a is still open where the kernel returns"),
        ("A: <a| @%p1 bra A; >a| ret;", "a is open on one path and closed on another where they meet"),
        (">a| ret;", "a is left without having been entered"),
        ("<a| >a| >a| ret;", "a is left without having been entered"),
        ("<a| @%p1 bra B; <b| B: >b| >a| ret;", "b is open on one path and closed on another where they meet"),
        ("<a|", "a is still open where the kernel returns"),
    ],
)
def test_a_region_that_does_not_pair_is_named(body: str, fault: str) -> None:
    assert fault in faults(body)


@pytest.mark.parametrize(
    "body",
    [
        "<a| >a| <a| >a| ret;",
        "<a| <a| >a| >a| ret;",
        "<a| <b| >a| >b| ret;",
        "<a| @%p1 bra E; >a| bra F; E: >a| F: ret;",
        "A: <a| >a| @%p1 bra A; ret;",
        "<a| A: @%p1 bra A; >a| ret;",
        "ret; <a| >a|",
        "<a| trap;",
        "<a| @%p1 exit; >a| ret;",
        "<a| @%p1 bra E; exit; E: >a| ret;",
        "<a| @%p1 bra E; F: >a| ret; E: exit; bra F;",
        "@%p1 bra E; <a| >a| exit; E: <b| >b| exit;",
        "<a| @%p1 bra E; >a| exit; E: >a| exit;",
    ],
)
def test_regions_that_pair_on_every_path_have_no_fault(body: str) -> None:
    assert not faults(body)


def test_depth_counts_open_regions_of_one_name() -> None:
    marks = "//kscope enter a - - with\n" * 2 + "//kscope exit a - - with\n" * 2
    found, _ = function(marks + "ret;")
    assert list(pairing.check(found, cfg.blocks(found)).depths.values()) == [0, 1, 1, 0]
