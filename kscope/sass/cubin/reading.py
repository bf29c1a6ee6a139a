"""Reads the functions of a cubin from nvdisasm's output: encodings, and the registers that each instruction reads and
writes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ...errors import FormatError
from ...machine_code import elf
from ...machine_code.tools import find
from . import attributes, branches
from .instructions import ALWAYS, BYTES, Function, Instruction, words

_FUNCTION = re.compile(r"^\s*\.section\s+(\.text\.([^,\s]+))\s*,")
_LABEL = re.compile(r"^(\.L_[\w.]+|\.text\.\S+):")
_FIRST = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;\s*/\* (0x[0-9a-f]{16}) \*/")
_SECOND = re.compile(r"^\s*/\* (0x[0-9a-f]{16}) \*/(.*)")
_TARGET = re.compile(r"^\s*(?:\.target\s+sm_|\.headerflags.*?EF_CUDA_SM)(\d+)", re.M)
_RELEASE = re.compile(r"release (\d+)")
_NAMED = re.compile(r"`\(\s*([^)\s]+?)\s*\)")
_NUMBERS = re.compile(r"// \|\s+# 0 ")
_COMMA = re.compile(r",(?![^\[]*\])")
_DESCRIBED = {"LDG": 32, "STG": 64, "ATOMG": 64, "RED": 64}
"""Instructions of global memory, and the lowest bit of the register of its descriptor."""
_HAS_DESCRIPTOR, _DESCRIPTOR_BITS, _NO_UNIFORM, _PRINTS_DESCRIPTORS = 91, 6, 63, 90
"""The bit that marks a descriptor; a register's bits; URZ; the first architecture for which nvdisasm prints it."""
_PREDICATES = 7
_FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
_SECONDS = 120
_STYLE, _VERSION, _FLAGS = slice(7, 9), slice(20, 24), slice(48, 52)
"""Bytes of the file header: ABI and its version, the file's version, and the architecture with options."""
_OLD_STYLE, _NEW_STYLE = b"\x33\x07", b"\x41\x08"
_NOP = 0x918
_MOST = 254
"""Registers of a thread for which nvdisasm prints its table."""

_MARKS = re.compile(r"[v^x]")
Columns = dict[int, str]
"""The register at each character of the table."""


def functions(data: bytes) -> tuple[Function, ...]:
    """Every function of a cubin.

    `nvdisasm -hex -plr` prints two lines for each instruction; the second one ends in a table, one column per register,
    where `v` is read, `^` written, `x` both:

        /*0150*/  @!P1 LDC.64 R2, c[0x0][0x210] ;    /* 0x00008400ff029b82 */   // |                  |
                                                     /* 0x001e220000000a00 */   // | 11 : : ^ ^ : : |

    Args:
        data: the cubin.

    Returns:
        The functions in the order of the file.

    Raises:
        MissingError: there is no nvdisasm.
        FormatError: nvdisasm refused the file, or printed an unknown form.
    """
    file = elf.read(data)
    data = _bounded(data, file)
    tries = (
        (data, _restyled(data))
        if (data[_STYLE] == _NEW_STYLE) == _prefers_new(find("nvdisasm"))
        else (_restyled(data), data)
    )
    text = next(filter(None, map(disassembly, tries)), None)
    if text is None:
        raise FormatError("nvdisasm refused the cubin: is it older than the assembler?")
    return tuple(_completed(one, file) for one in parse(text))


def _bounded(data: bytes, file: elf.Elf) -> bytes:
    """The cubin with at most 254 registers a thread: nvdisasm prints no table for 255, the most that ptxas gives."""
    section = file.find(".nv.info")
    if section is None:
        return data
    content = attributes.with_registers(section.content, lambda symbol, count: min(count, _MOST))
    return data[: section.offset] + content + data[section.offset + len(section.content) :]


@cache
def _prefers_new(tool: str) -> bool:
    """True if an nvdisasm is of CUDA 13 or later; a refused file costs as much time as one that is read."""
    printed = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False, timeout=_SECONDS).stdout
    release = _RELEASE.search(printed)
    return release is None or int(release[1]) >= 13


def disassembly(data: bytes, *flags: str) -> str | None:
    """Run nvdisasm on a cubin; None if it refuses it. flags: instead of those for parse()."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        command = [find("nvdisasm"), *(flags or ("-c", "-hex", "-plr")), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, errors="replace")
    return None if done.returncode else done.stdout


def _restyled(data: bytes) -> bytes:
    """The cubin with the file header of the other style: CUDA 12's or CUDA 13's.

    Either nvdisasm finds no registers in cubins of the other style; this header is the only difference.
    """
    flags = int.from_bytes(data[_FLAGS], "little")
    if data[_STYLE] == _OLD_STYLE:
        arch, style, version = flags & 0xFF, _NEW_STYLE, 1
        flags = 0x09000004 | arch << 8
    else:
        arch, style, version = flags >> 8 & 0xFF, _OLD_STYLE, 0x80
        flags = arch << 16 | 0x0D00 | arch
    out = bytearray(data)
    out[_STYLE], out[_VERSION], out[_FLAGS] = style, version.to_bytes(4, "little"), flags.to_bytes(4, "little")
    return bytes(out)


def _completed(function: Function, file: elf.Elf) -> Function:
    """The function with the padding at its end, which nvdisasm leaves out of some, after a comparison with the file."""
    section = file.find(function.section)
    expected = words(section.content) if section else ()
    printed = tuple(one.word for one in function.instructions)
    if not any(one.reads or one.writes for one in function.instructions):
        raise FormatError(f"nvdisasm printed no registers of {function.name}")
    rest = expected[len(printed) :]
    if printed != expected[: len(printed)] or any(word & 0xFFF != _NOP for word in rest):
        raise FormatError(f"nvdisasm's code of {function.name} differs from the file's")
    if [one.at for one in function.instructions] != list(range(0, BYTES * len(printed), BYTES)):
        raise FormatError(f"nvdisasm printed the instructions of {function.name} in an unknown order")
    padding = tuple(Instruction(BYTES * at, word, "", "NOP", ()) for at, word in enumerate(rest, start=len(printed)))
    return replace(function, instructions=(*function.instructions, *padding))


def parse(text: str) -> Iterator[Function]:
    """The functions of a disassembly."""
    name = section = headings = ""
    target = _TARGET.search(text)
    if target is None:
        raise FormatError("nvdisasm did not print an architecture")
    arch = int(target[1])
    made, labels, columns = list[Instruction](), dict[str, int](), Columns()
    waiting, named, first = list[str](), dict[int, str](), None
    for line in [*text.splitlines(), "\t.section\t.text.end,"]:
        if header := _FUNCTION.match(line):
            if made:
                yield _linked(Function(name, section, tuple(made), arch=arch), labels, named)
            (section, name), made, labels, columns, named, waiting = header.groups(), [], {}, {}, {}, []
        elif label := _LABEL.match(line):
            waiting.append(label[1])
        elif found := _FIRST.search(line):
            first = found
            labels.update(dict.fromkeys(waiting, int(found[1], 16)))
            waiting = []
        elif first and (second := _SECOND.match(line)):
            one = _instruction(first, second, line, columns, arch)
            made.append(one)
            if "`(" in first[4] and (match := _NAMED.search(first[4])):
                named[one.at] = match[1]
            first = None
        elif _NUMBERS.search(line) and not columns:
            columns = _columns(headings, line)
        elif "GPR" in line and "// |" in line:
            headings = line
        elif _NAMED.search(line) and "/*" in line:
            raise FormatError(f"kscope does not understand this line of nvdisasm's: {line.strip()}")


def _columns(names: str, numbers: str) -> Columns:
    """The table's columns, from its two lines of headings."""
    found = Columns()
    start = numbers.index("// |") + 4
    for heading, part in zip(names[start:].split("|"), numbers[start:].split("|"), strict=False):
        if kind := _FILES.get(heading.strip()):
            tokens = list(re.finditer(r"\S+", part))[1:]  # the first one is "#", the number of live registers
            for one in tokens:
                found |= dict.fromkeys(range(start + one.start(), start + one.end()), f"{kind}{one[0]}")
        start += len(part) + 1
    return found


def _instruction(first: re.Match[str], second: re.Match[str], line: str, columns: Columns, arch: int) -> Instruction:
    at, guard, code, operands, low = first.groups()
    marks = [(columns[one.start()], one[0]) for one in _MARKS.finditer(line, second.start(2)) if one.start() in columns]
    word = int(second[1], 16) << 64 | int(low, 16)
    writes = frozenset(register for register, mark in marks if mark != "v")
    reads = frozenset(register for register, mark in marks if mark != "^")
    if code.startswith("LDGSTS"):  # nvdisasm marks the predicate that it reads as written, too
        writes = frozenset(register for register in writes if not register.startswith("P"))
    operands = described(code, operands, word, arch)
    guard = guard or ""
    if guard and guard not in ALWAYS:
        reads |= {guard.lstrip("@!")}
    parts = tuple(part.strip() for part in _COMMA.split(operands)) if operands else tuple[str, ...]()
    if code in ("P2R", "R2P"):  # all predicates at once, by a mask: missing in nvdisasm's table
        bits = int(parts[-1], 16)
        masked = frozenset(f"P{number}" for number in range(_PREDICATES) if bits >> number & 1)
        reads, writes = (reads | masked, writes) if code == "P2R" else (reads, writes | masked)
    return Instruction(int(at, 16), word, guard, code, parts, reads, writes, branches.target(word, int(at, 16), arch))


def described(code: str, operands: str, word: int, arch: int) -> str:
    """The operands with the descriptor of global memory, as nvdisasm prints the same bits for sm_90."""
    at = _DESCRIBED.get(code.partition(".")[0]) if arch < _PRINTS_DESCRIPTORS else None
    if at is None or not word >> _HAS_DESCRIPTOR & 1 or "UR" in operands:
        return operands
    number = word >> at & (1 << _DESCRIPTOR_BITS) - 1
    name = "URZ" if number == _NO_UNIFORM else f"UR{number}"
    return operands.replace("[", f"desc[{name}][", 1)


def _linked(function: Function, labels: dict[str, int], named: dict[int, str]) -> Function:
    """The function, after its targets in the encodings were compared with nvdisasm's labels."""
    unknown = list[str]()
    end = {function.size}
    for one in function.instructions:
        label = named.get(one.at)
        if label is None and one.target is None:
            continue
        if label not in labels or one.target is None:
            unknown.append(f"{one.code} {label} at {one.at:#x}")
        elif one.target != labels[label] and not {one.target} <= end:
            raise FormatError(
                f"{one.code} at {one.at:#x} of {function.name} leads to {one.target:#x} by its encoding,"
                f" and to {labels[label]:#x} by nvdisasm's text"
            )
    return replace(function, unknown=tuple(unknown))
