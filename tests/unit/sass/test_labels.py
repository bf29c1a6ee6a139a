"""Labels change no instruction, and say between which marks each one lies, and from which line of the user's it is."""

from __future__ import annotations

import re

import pytest

from kscope.errors import UnsupportedError
from kscope.sass import elf, labels
from kscope.sass.instructions import words

from .kernels import ASSEMBLERS, BRANCHING, HEAD, assembled, functions, needs_tools
from .stripping import lines

pytestmark = needs_tools
MARKED = (
    BRANCHING.replace(
        "    .loc 1 30 0\n", "    //kscope enter turn - - with\n    .loc 1 30 0\n    //kscope enter odd - - with\n"
    )
    .replace("NEXT:\n", "NEXT:\n    //kscope exit odd - - with\n")
    .replace("    @%p3 bra LOOP;\n", "    //kscope exit turn - - with\n    @%p3 bra LOOP;\n")
)
SEGMENTS = {"LDG": 0, "MUFU": 2, "ATOMG": 2, "BAR": 3, "STG": 4}
"""Between which marks an instruction stands in MARKED. The last store stands behind all four."""


def code(data: bytes) -> list[tuple[int, ...]]:
    file = elf.read(data)
    return [words(one.content) for one in file.sections if one.name.startswith(".text.")]


@pytest.mark.parametrize("tool", ASSEMBLERS)
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


@pytest.mark.parametrize("tool", ASSEMBLERS)
def test_each_instruction_lies_between_its_marks(tool: str) -> None:
    made = labels.labeled(MARKED)
    data = assembled(made.text, tool)
    (kernel,) = functions(data)
    found = labels.places(elf.read(data), kernel, made)
    assert len(set(made.blocks)) == 2  # the first three marks are in one block, NEXT begins another
    for name, segment in SEGMENTS.items():
        places = {found[one.at].segment for one in kernel.instructions if one.name == name}
        assert segment in places, name
        assert places <= ({segment, 2} if name == "LDG" else {segment}), name


@pytest.mark.parametrize("tool", ASSEMBLERS)
def test_the_lines_of_the_user_are_those_of_the_plain_text(tool: str) -> None:
    made = labels.labeled(MARKED)
    data = assembled(made.text, tool)
    (kernel,) = functions(data)
    plain = lines(assembled(BRANCHING, tool))
    restored = labels.places(elf.read(data), kernel, made)
    for at, place in restored.items():
        if place.line:
            assert place.line.split()[1] == plain[at][1], hex(at)
    assert len({place.line for place in restored.values()}) > 4


def test_inlined_calls_are_kept_with_the_line() -> None:
    text = MARKED.replace(".loc 1 40 0", ".loc 1 40 5, function_name $L__info, inlined_at 1 12 3")
    made = labels.labeled(text)
    assert "1 40 5, function_name $L__info, inlined_at 1 12 3" in {place.line for place in made.places}
    assert not re.search(r"inlined_at|\.file 1 \"/lines", made.text)


def test_a_table_of_other_lines_is_refused() -> None:
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    with pytest.raises(UnsupportedError, match="not that of a label"):
        labels.places(elf.read(data), kernel, labels.labeled(HEAD + ".visible .entry k() { ret; }"))


def test_a_cubin_without_lines_is_refused() -> None:
    made = labels.labeled(MARKED)
    data = assembled(re.sub(r"\s*\.(loc|file) .*", "", BRANCHING), options=())
    (kernel,) = functions(data)
    with pytest.raises(UnsupportedError, match="-lineinfo"):
        labels.places(elf.read(data), kernel, made)
