"""Traces a Python function to PTX: the function is called once with a Tracer, which records its operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_VERSIONS = {80: "7.0", 90: "7.8", 100: "8.6"}
_active: list[Tracer] = []


def tracing() -> Tracer | None:
    """The kernel that is being traced now."""
    return _active[-1] if _active else None


@dataclass(frozen=True)
class Value:
    """A 32-bit integer of the running kernel, in a register."""

    tracer: Tracer
    register: str

    def __add__(self, other: Value | int) -> Value:
        return self.tracer.arithmetic("add.s32", self, other)

    def __sub__(self, other: Value | int) -> Value:
        return self.tracer.arithmetic("sub.s32", self, other)

    def __mul__(self, other: Value | int) -> Value:
        return self.tracer.arithmetic("mul.lo.s32", self, other)

    def __mod__(self, other: Value | int) -> Value:
        return self.tracer.arithmetic("rem.u32", self, other)

    def is_(self, compared: str, other: Value | int) -> Value:
        """1 if the comparison (``ge``, ``lt`` ...) holds, otherwise 0."""
        return self.tracer.made(
            f"{{ .reg .pred %h; setp.{compared}.s32 %h, {self.register}, {_operand(other)}; selp.b32 @@, 1, 0, %h; }}"
        )


class Tracer:
    """What a kernel's function sees of its kernel, and the lines that it has become so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._used: Counter[str] = Counter()

    def add(self, line: str) -> None:
        """One line of PTX."""
        self.lines.append(line)

    # values

    def special(self, name: str) -> Value:
        """A special register such as ``ctaid.x``."""
        return self.made(f"mov.u32 @@, %{name};")

    def arithmetic(self, operation: str, left: Value | int, right: Value | int) -> Value:
        """The result of an instruction on two operands."""
        return self.made(f"{operation} @@, {_operand(left)}, {_operand(right)};")

    def store(self, out: str, index: Value | int, value: Value | int) -> None:
        """out[index] = value."""
        where = self._address(out, index)
        self.add(f"mov.b32 {(word := self._new('%r'))}, {_operand(value)};")
        self.add(f"st.global.b32 [{where}], {word};")

    def increment(self, out: str, index: Value | int) -> None:
        """out[index] += 1, at once for all threads."""
        where = self._address(out, index)
        self.made(f"atom.global.add.u32 @@, [{where}], 1;")

    def wait(self, out: str, index: Value | int, least: int) -> None:
        """Wait until out[index] is at least the value."""
        where, label = self._address(out, index), self._new("$L")
        self.add(f"{label}:")
        found = self.made(f"ld.volatile.global.b32 @@, [{where}];")
        self.add(f"setp.lt.s32 {(again := self._new('%p'))}, {found.register}, {least};")
        self.add(f"@{again} bra {label};")

    # control flow

    @contextmanager
    def when(self, left: Value, compared: str, right: Value | int) -> Iterator[None]:
        """The body runs where the comparison (``ge``, ``lt`` ...) holds."""
        behind = self._jump_unless(left, compared, right)
        yield
        self.add(f"{behind}:")

    @contextmanager
    def loop(self, end: Value | int) -> Iterator[Value]:
        """The body runs for 0, 1, ... below `end`."""
        index, top = self.made("mov.b32 @@, 0;"), self._new("$L")
        self.add(f"{top}:")
        behind = self._jump_unless(index, "lt", end)
        yield index
        self.add(f"add.s32 {index.register}, {index.register}, 1;")
        self.add(f"bra {top};")
        self.add(f"{behind}:")

    def leave(self) -> None:
        """Return from the kernel."""
        self.add("ret;")

    def _jump_unless(self, left: Value, compared: str, right: Value | int) -> str:
        holds, behind = self._new("%p"), self._new("$L")
        self.add(f"setp.{compared}.s32 {holds}, {left.register}, {_operand(right)};")
        self.add(f"@!{holds} bra {behind};")
        return behind

    # names

    def _new(self, kind: str) -> str:
        self._used[kind] += 1
        return f"{kind}{self._used[kind]}"

    def made(self, line: str) -> Value:
        """The result register of a line of PTX, written as ``@@``."""
        made = Value(self, self._new("%r"))
        self.add(line.replace("@@", made.register))
        return made

    def _address(self, out: str, index: Value | int) -> str:
        where = self._new("%rd")
        self.add(f"mov.b32 {(at := self._new('%r'))}, {_operand(index)};")
        self.add(f"mad.wide.s32 {where}, {at}, 4, {out};")
        return where

    def text(self, name: str, arch: int) -> str:
        """The kernel as a module of PTX."""
        kinds = {"%r": "b32", "%rd": "b64", "%p": "pred"}
        registers = [f".reg .{kinds[kind]} {kind}<{self._used[kind] + 1}>;" for kind in kinds]
        return "\n".join(
            [
                *(f".version {_VERSIONS[arch]}", f".target sm_{arch}", ".address_size 64"),
                f".visible .entry {name}(.param .u64 {name}_out, .param .u32 {name}_n)",
                *("{", *registers),
                f"ld.param.u64 %rd1, [{name}_out];",
                f"ld.param.u32 %r1, [{name}_n];",
                *(*self.lines, "ret;", "}", ""),
            ]
        )


def trace(function: Callable[..., None], arch: int) -> str:
    """The PTX of a function ``(tracer, out, n)``: out is the address of 32-bit words, n a number."""
    tracer = Tracer()
    out, n = tracer._new("%rd"), Value(tracer, tracer._new("%r"))
    _active.append(tracer)
    try:
        function(tracer, out, n)
    finally:
        _active.pop()
    return tracer.text(function.__name__, arch)


def _operand(value: Any) -> str:
    return value.register if isinstance(value, Value) else str(value)
