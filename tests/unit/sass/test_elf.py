"""A cubin is read into parts, and written with other contents, without a change elsewhere."""

from __future__ import annotations

import pytest

from kscope.errors import FormatError
from kscope.machine_code import elf

from .kernels import BRANCHING, EACH, assembled, needs_tools

pytestmark = needs_tools


@pytest.mark.parametrize("tool", EACH)
def test_a_cubin_without_changes_keeps_every_byte(tool: str) -> None:
    data = assembled(BRANCHING, tool)
    file = elf.read(data)
    assert elf.write(file, {}) == data
    assert elf.write(file, {one.name: one.content for one in file.sections}) == data


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("more", [16, 128, 1000])
def test_a_section_grows_and_the_others_keep_content_and_alignment(tool: str, more: int) -> None:
    file = elf.read(assembled(BRANCHING, tool))
    code = file.find(".text.branching")
    assert code is not None
    grown = elf.read(elf.write(file, {code.name: code.content + bytes(more)}))
    assert [one.name for one in grown.sections] == [one.name for one in file.sections]
    for before, after in zip(file.sections, grown.sections, strict=True):
        assert after.content == (before.content + bytes(more) if before.name == code.name else before.content)
        assert after.offset % max(1, before.align) == before.offset % max(1, before.align)


def test_the_kernel_is_a_symbol_of_its_section() -> None:
    file = elf.read(assembled(BRANCHING))
    (kernel,) = [one for one in file.symbols() if one.name == "branching"]
    code = file.find(".text.branching")
    assert code is not None
    assert kernel.function and kernel.section == file.number(code.name) and kernel.size == len(code.content)


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02", b"\x7fELF\x01" + bytes(100), b"\x7fELF\x02" + bytes(100)])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="cubin"):
        elf.read(data)


def test_a_truncated_cubin_is_refused_wherever_it_ends() -> None:
    data = assembled(BRANCHING)
    for end in range(0, len(data), 97):
        with pytest.raises(FormatError):
            elf.read(data[:end])
