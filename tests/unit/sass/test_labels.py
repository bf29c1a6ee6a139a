"""Labels change no instruction, and name the statement that each one comes from."""

from __future__ import annotations

import re

import pytest

from kscope.errors import UnsupportedError
from kscope.machine_code import elf
from kscope.sass.cubin.instructions import words
from kscope.sass.placing import labels

from .kernels import BRANCHING, EACH, HEAD, assembled, functions, needs_tools

pytestmark = needs_tools
MARKED = (
    BRANCHING.replace(
        "    .loc 1 30 0\n", "    //kscope enter turn - - with\n    .loc 1 30 0\n    //kscope enter odd - - with\n"
    )
    .replace("NEXT:\n", "NEXT:\n    //kscope exit odd - - with\n")
    .replace("    @%p3 bra LOOP;\n", "    //kscope exit turn - - with\n    @%p3 bra LOOP;\n")
)
STATEMENTS = {"MUFU": "ex2", "ATOMG": "atom.global.add", "BAR": "bar.sync", "STG": "st.global", "STS": "st.shared"}


def code(data: bytes) -> list[tuple[int, ...]]:
    file = elf.read(data)
    return [words(one.content) for one in file.sections if one.name.startswith(".text.")]


@pytest.mark.parametrize("tool", EACH)
def test_labels_change_no_instruction(tool: str) -> None:
    assert MARKED.count("//kscope") == 4
    made = labels.labeled(MARKED)
    assert [(one.act, one.name) for one in made.marks] == [
        ("enter", "turn"),
        ("enter", "odd"),
        ("exit", "odd"),
        ("exit", "turn"),
    ]
    assert code(assembled(made.text, tool)) == code(assembled(BRANCHING, tool))


@pytest.mark.parametrize("tool", EACH)
def test_each_instruction_has_its_statement(tool: str) -> None:
    made = labels.labeled(MARKED)
    data = assembled(made.text, tool)
    (kernel,) = functions(data)
    found = labels.statements(elf.read(data), kernel, made)
    texts = {
        at: made.kernel.text[made.kernel.statements[n].start : made.kernel.statements[n].end].split()[0]
        for at, n in found.items()
    }
    for name, statement in STATEMENTS.items():
        places = {texts[one.at] for one in kernel.instructions if one.name == name}
        assert places and all(one.startswith(statement) for one in places), (name, places)


def test_the_users_lines_are_left_out_of_the_labels_alone() -> None:
    text = MARKED.replace(".loc 1 40 0", ".loc 1 40 5, function_name $L__info, inlined_at 1 12 3")
    made = labels.labeled(text)
    assert not re.search(r'inlined_at|\.file 1 "/lines', made.text)
    assert made.plain == text


@pytest.mark.parametrize(
    ("operand", "before", "held"),
    [
        ("%r2", "", "], %r2;"),
        ("3", "", ""),
        ("%k", "    .reg .b32 %k; mov.b32 %k, 3;\n", ""),
        ("%k", "    .reg .b32 %k; mov.b32 %k, 3; @%p1 mov.b32 %k, 4;\n", "], %k;"),
        ("%f1", "", "], %f1;"),
    ],
)
def test_a_value_in_a_register_is_held_and_a_constant_is_not(operand: str, before: str, held: str) -> None:
    text = MARKED.replace("enter turn - - with", f"enter turn i32 - with {operand}").replace("LOOP:", f"{before}LOOP:")
    made = labels.labeled(text)
    (statement, *_) = made.recording
    assert made.plain.count("st.local") == bool(held)
    assert held in made.plain
    assert made.constants(statement)[0] == (None if held else 3)
    assert made.held[statement] == (statement + 1 if held else None, None)


def test_a_region_that_is_never_recorded_has_no_marks() -> None:
    made = labels.labeled(MARKED.replace("enter odd - - with", "enter odd - - with if 0"))
    assert [one.name for one in made.marks] == ["turn", "turn"]


def test_only_the_kernel_with_marks_is_labeled() -> None:
    made = labels.labeled(f"{MARKED}.visible .entry other() {{ ret; }}\n")
    assert made.kernel.name == labels.labeled(MARKED).kernel.name
    assert ".loc" not in made.text.partition(".entry other")[2]


def test_a_table_of_other_lines_is_refused() -> None:
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    with pytest.raises(UnsupportedError, match="not that of a label"):
        labels.statements(elf.read(data), kernel, labels.labeled(HEAD + ".visible .entry k() { ret; }", "k"))


def test_a_cubin_without_lines_is_refused() -> None:
    made = labels.labeled(MARKED)
    data = assembled(re.sub(r"\s*\.(loc|file) .*", "", BRANCHING), options=())
    (kernel,) = functions(data)
    with pytest.raises(UnsupportedError, match="-lineinfo"):
        labels.statements(elf.read(data), kernel, made)


def test_a_branch_by_a_table_of_targets_is_one_by_comparisons() -> None:
    """Labels cannot stand between a table and its name, and the table's addresses would be in another section."""
    text = f"""{HEAD}.visible .entry table(.param .u64 p, .param .u32 n)
{{
    .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n];
$L_brx_0:
    .branchtargets $A, $B, $C;
    brx.idx %r1, $L_brx_0;
$A: st.global.u32 [%d1], %r1; ret;
$B: st.global.u32 [%d1+4], %r1; ret;
$C:
    //kscope enter store - - with
    st.global.u32 [%d1+8], %r1;
    //kscope exit store - - with
    ret;
}}
"""
    found = labels.labeled(text)
    assert "branchtargets" not in found.text
    (kernel,) = functions(assembled(found.text))
    assert not [one for one in kernel.instructions if one.name == "BRX"] and not kernel.unknown
    assert sum(one.name == "STG" for one in kernel.instructions) == 3
    with pytest.raises(UnsupportedError, match="branch to an address"):
        labels.labeled(text.replace("brx.idx %r1, $L_brx_0", "brx.idx %r1, $other"))
