"""Instructions of a cubin, with their registers, for every assembler."""

from __future__ import annotations

import pytest

from kscope.errors import FormatError
from kscope.machine_code import elf
from kscope.sass.cubin import attributes, branches, reading
from kscope.sass.cubin.control_codes import Control, control, controlled
from kscope.sass.cubin.instructions import BYTES, words

from .kernels import BRANCHING, EACH, HEAD, assembled, functions, needs_tools

pytestmark = needs_tools


@pytest.mark.parametrize("tool", EACH)
def test_the_instructions_are_the_bytes_of_the_file(tool: str) -> None:
    data = assembled(BRANCHING, tool)
    (kernel,) = functions(data)
    code = elf.read(data).find(kernel.section)
    assert code is not None
    assert tuple(one.word for one in kernel.instructions) == words(code.content)
    assert (kernel.name, kernel.unknown) == ("branching", ())


@pytest.mark.parametrize("tool", EACH)
def test_registers_that_an_instruction_reads_and_writes(tool: str) -> None:
    (kernel,) = functions(assembled(BRANCHING, tool))
    atomic = next(one for one in kernel.instructions if one.name == "ATOMG")
    (wide, value) = (operand for operand in atomic.operands[-2:])
    pair = int(wide.partition("[R")[2].partition(".")[0])
    assert {f"R{pair}", f"R{pair + 1}", value} <= atomic.reads
    assert {one for one in atomic.writes if one[0] == "R"} == {atomic.operands[1]}
    for one in kernel.instructions:
        if one.conditional:
            assert one.guard.lstrip("@!") in one.reads


@pytest.mark.parametrize("tool", EACH)
def test_kernels_with_all_registers_are_read(tool: str) -> None:
    """nvdisasm alone prints no table for them."""
    body = "bar.sync 0; setmaxnreg.dec.sync.aligned.u32 24; bar.sync 0; ret;"
    data = assembled(f"{HEAD}.visible .entry many() .reqntid 128 .maxnreg 255 {{ {body} }}\n", tool)
    shared = elf.read(data).find(".nv.info")
    assert shared is not None
    assert [one.payload[4] for one in attributes.read(shared.content) if one.number == attributes.REGISTERS] == [255]
    assert [one.name for one in functions(data)[0].instructions].count("BAR") == 2


def test_control_codes_round_trip() -> None:
    (kernel,) = functions(assembled(BRANCHING))
    for one in kernel.instructions:
        assert controlled(one.word, control(one.word)) == one.word
    slow = Control(stall=13, stay=False, writes=2, reads=5, waits=frozenset({0, 3}), reuse=5)
    assert control(controlled(0x7918, slow)) == slow
    assert str(slow) == "B0--3-- W2 R5 Y S13"


@pytest.mark.parametrize("opcode", sorted(branches.RELATIVE))
@pytest.mark.parametrize("to", [0, 16, 4096, 1 << 24])
def test_branch_targets_round_trip(opcode: int, to: int) -> None:
    noise = controlled(0x3800000 << 64 | opcode | 0x7000, Control(stall=5))
    for at, arch in ((0, 90), (16, 90), (64000, 90), (64000, 80)):
        word = branches.with_target(noise, at, to, arch)
        assert branches.target(word, at, arch) == to
        assert branches.with_target(word, at, at + 16, arch) == branches.with_target(noise, at, at + 16, arch)


def test_a_label_elsewhere_than_the_encoding_leads_is_refused() -> None:
    text = reading.disassembly(assembled(BRANCHING), "-c", "-hex")
    assert text is not None
    lines = text.splitlines()
    label = next(number for number, line in enumerate(lines) if line.startswith(".L_x_0:"))
    lines.insert(label + 2, lines.pop(label))
    with pytest.raises(FormatError, match="by its encoding"):
        list(reading.parse("\n".join(lines)))


@pytest.mark.parametrize("text", ["P2R R0, PR, RZ, 0x12", "R2P PR, R0, 0x12"])
def test_predicates_are_read_and_written_at_once_by_a_mask(text: str) -> None:
    """nvdisasm's table of registers leaves them out."""
    printed = reading.disassembly(assembled(BRANCHING), "-c", "-hex")
    assert printed is not None
    move = next(line for line in printed.splitlines() if "IMAD.MOV.U32" in line).partition("IMAD")[2].partition(";")[0]
    (kernel,) = reading.parse(printed.replace(f"IMAD{move};", f"{text} ;", 1))
    one = next(one for one in kernel.instructions if one.name == text[:3])
    assert {name for name in (one.reads if text[0] == "P" else one.writes) if name[0] == "P"} == {"P1", "P4"}


@pytest.mark.parametrize(("bits", "second"), [(2, "P2"), (9, "!P1"), (7, "")])
def test_the_second_predicate_of_branches_and_exits(bits: int, second: str) -> None:
    """ptxas writes few of them; 7 is PT, which nvdisasm does not print."""
    data = assembled(BRANCHING)
    (kernel,) = functions(data)
    patched = [one for one in kernel.instructions if one.name in ("BRA", "EXIT") and one.conditional]
    for one in patched:
        word = one.word & ~(0xF << 87) | bits << 87
        data = data.replace(one.word.to_bytes(16, "little"), word.to_bytes(16, "little"))
    found = [functions(data)[0].instructions[one.at // BYTES] for one in patched]
    assert {one.second_condition for one in found} == {second}
    assert all(not second or second.lstrip("!") in one.reads for one in found)
