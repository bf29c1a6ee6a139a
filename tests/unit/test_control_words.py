"""The control block's address in machine code: zero where cubins are kept, written into the copy that is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from control_addresses import addresses, constant
from unit.sass.kernels import ASSEMBLERS, EACH, assembled, functions, needs_tools
from unit.sass.test_recording import KERNEL, MARKED, made
from unit.sass.test_several_kernels import made as made_of_two

from kscope.errors import FormatError
from kscope.machine_code import control_words, elf
from kscope.machine_code.control_words import UNPATCHED, Moves, moves, patched

pytestmark = needs_tools
FIRST, SECOND = 0x7F34_1234_5678, 0x7FA0_8800_0200


@cache
def cubin(tool: str = ASSEMBLERS[0]) -> bytes:
    return made(tool, moved=True).data


@pytest.mark.parametrize("tool", EACH)
def test_a_cubin_as_it_is_built_has_no_address(tool: str) -> None:
    (found,) = moves(cubin(tool))
    assert found.kernel == "sums"
    assert addresses(cubin(tool)) == [0] and constant(cubin(tool)) == UNPATCHED
    (kernel,) = functions(cubin(tool))
    low, high = (kernel.instructions[at // 16] for at in (found.low, found.high))
    assert [(one.code, one.operands[1]) for one in (low, high)] == [("MOV", "0x0")] * 2
    loads = [one for one in kernel.instructions if one.code == "LDC.64" and "c[0x3]" in one.operands[-1]]
    assert loads == []


@pytest.mark.parametrize("tool", EACH)
def test_the_copy_for_a_context_differs_in_the_moves_and_the_constant(tool: str) -> None:
    copy = patched(cubin(tool), FIRST)
    assert addresses(copy) == [FIRST] and constant(copy) == FIRST
    assert len(copy) == len(cubin(tool))
    assert sum(one != other for one, other in zip(copy, cubin(tool), strict=True)) <= 2 * 8
    (found,), (before,), (after,) = moves(copy), functions(cubin(tool)), functions(copy)
    changed = [one.at for one, other in zip(before.instructions, after.instructions, strict=True) if one != other]
    assert sorted(changed) == sorted((found.low, found.high))
    words = [after.instructions[at // 16].operands[1] for at in (found.low, found.high)]
    assert words == [hex(FIRST & 0xFFFFFFFF), hex(FIRST >> 32)]


def test_each_context_has_a_copy_with_its_address() -> None:
    before = bytes(cubin())
    copies = [patched(cubin(), address) for address in (FIRST, SECOND)]
    assert [addresses(one) for one in copies] == [[FIRST], [SECOND]]
    assert cubin() == before
    assert patched(copies[0], SECOND) == copies[1]


def test_every_kernel_of_a_module_has_the_address() -> None:
    data = made_of_two(ASSEMBLERS[0], True)["leaving"].data
    assert [one.kernel for one in moves(data)] == ["turns", "leaving"]
    assert addresses(data) == [0, 0] and addresses(patched(data, FIRST)) == [FIRST, FIRST]


def test_other_code_comes_back_unchanged() -> None:
    for code in (made(ASSEMBLERS[0]).data, assembled(MARKED), b".version 8.0", b""):
        assert patched(code, FIRST) is code
    assert constant(made(ASSEMBLERS[0]).data) == 0


def test_the_place_of_the_constant_is_that_of_its_symbol() -> None:
    """Here it stands behind another one."""
    text = MARKED.replace(".weak .const", ".visible .const .align 8 .u64 mine = 77;\n.weak .const", 1)
    copy = patched(made(ASSEMBLERS[0], text, KERNEL, True).data, FIRST)
    file = elf.read(copy)
    (mine,) = [one for one in file.symbols() if one.name == "mine"]
    assert file.sections[mine.section].content[mine.value] == 77
    assert constant(copy) == FIRST


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (Moves("another", 0, 16), "no code of another"),
        (Moves("sums", 0, 1 << 20), "no instruction at 0x100000"),
    ],
)
def test_notes_that_do_not_fit_the_code_are_refused(note: Moves, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        patched(control_words.noted(made(ASSEMBLERS[0]).data, note), FIRST)


def test_damaged_notes_are_refused() -> None:
    with pytest.raises(FormatError, match="damaged cubin"):
        moves(cubin().replace(b'{"kernel":"sums","moves"', b'{"kernel":"sums","mover"'))


PROGRAM = """
import sys
from pathlib import Path
from control_addresses import addresses
from kscope.machine_code.control_words import patched
kept = Path(sys.argv[1])
assert addresses(kept.read_bytes()) == [0]
print(addresses(patched(kept.read_bytes(), int(sys.argv[2]))))
"""


def test_processes_share_what_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kernel.cubin"
    kept.write_bytes(cubin())
    for address in (FIRST, SECOND):
        command = [sys.executable, "-c", PROGRAM, str(kept), str(address)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"[{address}]"
    assert kept.read_bytes() == cubin()
