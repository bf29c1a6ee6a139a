"""Checks that a cubin has only known sections, so that its code can be moved."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...machine_code import elf
from . import attributes, branches
from .instructions import Function

DEBUG = (".debug_line", ".nv_debug_line_sass", ".debug_frame")
"""Sections with code addresses that are corrected."""
_WITHOUT_ADDRESSES = frozenset(
    {
        "", ".shstrtab", ".strtab", ".symtab", ".debug_str", ".nv_debug_ptx_txt", ".nv.callgraph",
        ".note.nv.tkinfo", ".note.nv.cuinfo", ".nv.compat",
        ".nv.constant3", ".nv.constant4", ".nv.global", ".nv.global.init",
    }
)  # fmt: skip
_CONSTANT = {".nv.rel.action": bytes.fromhex("73000000000000000000001125000536")}
"""Sections with the same content in every known cubin; those for sm_80 to sm_89 have it."""
_OF_FUNCTIONS = (".text.", ".nv.info.", ".nv.shared.", ".nv.constant0.", ".nv.local.")
_SHARED = (".nv.info", ".nv.shared.reserved.0")
_INDIRECT = frozenset({"BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "LEPC"})
_ARCHITECTURES = frozenset({80, 86, 89, 90})
_OLD_STYLE = 0x33


def architecture(file: elf.Elf) -> int:
    """The compute capability that the code is for, such as 90."""
    return file.flags & 0xFF if file.data[7] == _OLD_STYLE else file.flags >> 8 & 0xFF


def check(file: elf.Elf, function: Function) -> None:
    """Refuse code that cannot be moved.

    Raises:
        UnsupportedError: the cubin has an unknown section, relocation, attribute or instruction, or its
            architecture's encodings were not learned.
    """
    found = architecture(file)
    if found not in _ARCHITECTURES:
        raise UnsupportedError(
            f"the cubin is for sm_{found}; expected sm_80, sm_86, sm_89 or sm_90, whose encodings kscope has"
        )
    for section in file.sections:
        if not _known(section.name) and _CONSTANT.get(section.name) != section.content:
            raise UnsupportedError(f"the cubin has a section that kscope does not know: {section.name}")
    symbols, own = file.symbols(), file.number(function.section)
    for section in file.sections:
        if section.name in DEBUG:
            continue
        for _, entries in file.relocations(section.name):
            for one in entries:
                if symbols[one.symbol].section == own:
                    raise UnsupportedError(f"the cubin's section {section.name} has an address in {function.name}")
    _check_function(file, function)


def _known(name: str) -> bool:
    for prefix in (".rela", ".rel"):
        if name.startswith(prefix + "."):
            return _known(name.removeprefix(prefix))
    if name.startswith(".rela") and name.removeprefix(".rela") in DEBUG:
        return True
    return name in _WITHOUT_ADDRESSES or name in DEBUG or name in _SHARED or name.startswith(_OF_FUNCTIONS)


def _check_function(file: elf.Elf, function: Function) -> None:
    if function.unknown:
        raise UnsupportedError(f"{function.name} cannot be moved: {function.unknown[0]} names an address")
    exits = [one.at for one in function.instructions if one.name == "EXIT"]
    known = {one.at for one in function.instructions}
    for one in function.instructions:
        if one.name in _INDIRECT or (one.opcode & 0xFF0 in (0x940, 0x950) and one.name not in _DIRECT):
            raise UnsupportedError(f"{function.name} cannot be moved: {one.name} at {one.at:#x} has an unknown target")
        if one.target is not None and one.target not in known | {function.size}:
            raise UnsupportedError(f"{function.name} cannot be moved: {one.name} at {one.at:#x} branches out of it")
        if one.name in ("BRA", "BSSY") and one.opcode not in branches.RELATIVE:
            raise UnsupportedError(f"{function.name} cannot be moved: {one.name} at {one.at:#x} is of an unknown form")
    own = file.find(f".nv.info.{function.name}")
    for attribute in attributes.read(own.content) if own else ():
        places = attributes.addresses(attribute)
        if attribute.number == attributes.EXITS and sorted(places) != exits:
            raise UnsupportedError(f"the cubin lists exits of {function.name} where it has none")
        if not known.issuperset(places):
            raise UnsupportedError(f"the cubin's attribute {attribute.number:#x} is not about code of {function.name}")


_DIRECT = frozenset({"BRA", "BSSY", "BSYNC", "BREAK", "EXIT", "WARPSYNC", "YIELD", "NANOSLEEP", "BPT", "KILL"})
