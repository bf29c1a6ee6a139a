"""One call of nvdisasm for the code of many kernels: a call takes half a second, whatever it reads."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Condition
from typing import TypeVar
from unittest.mock import patch

from kscope.machine_code import elf
from kscope.machine_code.tools import find
from kscope.sass.cubin import attributes, reading

Item, Result = TypeVar("Item"), TypeVar("Result")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_PROGBITS, _SYMTAB, _STRTAB, _CODE, _GLOBAL_FUNCTION = 1, 2, 3, 6, 18
_INFO, _REGISTERS_AT, _ALIGN = 0x70000000, 24, 128
_FIRST = 5
"""Sections before those of the code: none, names of sections, names of symbols, symbols, attributes."""
_START = re.compile(r"^\s*\.section\s+\.text\.(\w+)\s*,", re.M)
_MOST_REGISTERS, _SIZED = 254, 4


@dataclass
class Batch:
    """Calls of nvdisasm from many threads, answered together once all threads wait for an answer.

    Attributes:
        running: threads that do not wait for an answer.
        calls: how often nvdisasm ran.
    """

    running: int
    calls: int = 0
    pending: list[bytes] = field(default_factory=list)
    answers: dict[bytes, str | None] = field(default_factory=dict)
    ready: Condition = field(default_factory=Condition)

    def disassembly(self, data: bytes, *flags: str) -> str | None:
        """In place of reading.disassembly()."""
        if flags:
            return _ALONE(data, *flags)
        with self.ready:
            if data not in self.answers:
                self.pending.append(data)
                self.running -= 1
                self._answer()
                self.ready.wait_for(lambda: data in self.answers)
            return self.answers[data]

    def left(self) -> None:
        """A thread has ended."""
        with self.ready:
            self.running -= 1
            self._answer()

    def _answer(self) -> None:
        if self.running or not self.pending:
            return
        pending = list(dict.fromkeys(self.pending))
        self.running, self.pending = len(self.pending), []
        self.calls += 1
        try:
            self.answers |= dict(zip(pending, together(pending), strict=True))
        except BaseException:
            self.answers |= dict.fromkeys(pending)
            raise
        finally:
            self.ready.notify_all()


_ALONE = reading.disassembly


def mapped(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The result of map(), with a thread for each item, whose calls of nvdisasm are answered together."""
    batch = Batch(len(items))

    def run(item: Item) -> Result:
        try:
            return work(item)
        finally:
            batch.left()

    with _answering(batch), ThreadPoolExecutor(max(1, len(items))) as pool:
        yield from pool.map(run, items)


@contextmanager
def _answering(batch: Batch) -> Iterator[None]:
    with patch.object(reading, "disassembly", batch.disassembly):
        yield


def together(cubins: Sequence[bytes]) -> list[str | None]:
    """nvdisasm's output for each cubin, from one call for all; one by one if it refuses them together."""
    if len(cubins) == 1:
        return [_ALONE(cubins[0])]
    new = reading._prefers_new(find("nvdisasm"))
    numbers = count()
    names = [{f"k{next(numbers)}": one.name.removeprefix(".text.") for one in _code(data)} for data in cubins]
    merged = _merged(cubins, [list(one) for one in names])
    styled = merged if (merged[reading._STYLE] == reading._NEW_STYLE) == new else reading._restyled(merged)
    text = _ALONE(styled)
    if text is None:
        return [_ALONE(data) for data in cubins]
    starts = [*_START.finditer(text)]
    parts = {
        one[1]: text[one.start() : after.start() if after else len(text)]
        for one, after in zip(starts, [*starts[1:], None], strict=True)
    }
    head = text[: starts[0].start()]
    return [
        head + "".join(re.sub(rf"\.text\.{short}\b", f".text.{name}", parts[short]) for short, name in some.items())
        for some in names
    ]


def _code(data: bytes) -> list[elf.Section]:
    return [one for one in elf.read(data).sections if one.name.startswith(".text.")]


def _merged(cubins: Sequence[bytes], names: Sequence[Sequence[str]]) -> bytes:
    """One cubin with the code of several, under other names."""
    contents: list[tuple[str, int, int, int, int, bytes]] = []  # name, kind, flags, link, info, content
    symbols, listed, strings = [bytes(_SYMBOL.size)], list[attributes.Attribute](), bytearray(b"\0")
    for data, shorts in zip(cubins, names, strict=True):
        counts = _counts(elf.read(data))
        for section, short in zip(_code(data), shorts, strict=True):
            number, symbol = len(contents) + _FIRST, len(symbols)
            registers = min(_MOST_REGISTERS, counts[section.name.removeprefix(".text.")])
            symbols.append(_SYMBOL.pack(len(strings), _GLOBAL_FUNCTION, 0, number, 0, len(section.content)))
            strings += short.encode() + b"\0"
            payload = struct.pack("<II", symbol, registers)
            listed.append(attributes.Attribute(_SIZED, attributes.REGISTERS, payload))
            word = symbol | registers << _REGISTERS_AT
            contents.append((f".text.{short}", _PROGBITS, _CODE, 3, word, section.content))
    first = [
        ("", 0, 0, 0, 0, b""),
        (".shstrtab", _STRTAB, 0, 0, 0, b""),
        (".strtab", _STRTAB, 0, 0, 0, bytes(strings)),
        (".symtab", _SYMTAB, 0, 2, 1, b"".join(symbols)),
        (".nv.info", _INFO, 0, 3, 0, attributes.write(listed)),
    ]
    return _written(cubins[0], [*first, *contents])


def _counts(file: elf.Elf) -> dict[str, int]:
    """The registers of each function."""
    section, symbols = file.find(".nv.info"), file.symbols()
    assert section is not None
    pairs = [
        struct.unpack("<II", one.payload)
        for one in attributes.read(section.content)
        if one.number == attributes.REGISTERS
    ]
    return {symbols[symbol].name: count for symbol, count in pairs}


def _written(model: bytes, sections: Sequence[tuple[str, int, int, int, int, bytes]]) -> bytes:
    """A file with these sections and another one's header."""
    names = b"\0".join(name.encode() for name, *_ in sections) + b"\0"
    out, table, at = bytearray(_HEADER.size), list[bytes](), 0
    for name, kind, flags, link, word, content in sections:
        data = names if name == ".shstrtab" else content
        out += bytes(-len(out) % _ALIGN)
        step = _SYMBOL.size if kind == _SYMTAB else 0
        align = _ALIGN if kind == _PROGBITS else 4
        table.append(_SECTION.pack(at, kind, flags, 0, len(out), len(data), link, word, align, step))
        at += len(name.encode()) + 1
        out += data
    out += bytes(-len(out) % _ALIGN)
    head = _HEADER.unpack_from(model)
    made = (*head[:4], 0, 0, len(out), head[7], _HEADER.size, head[9], 0, _SECTION.size, len(sections), 1)
    _HEADER.pack_into(out, 0, *made)
    return bytes(out + b"".join(table))
