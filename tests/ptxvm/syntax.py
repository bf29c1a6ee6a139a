"""PTX as data: the parser's output and the compiler's input."""

from __future__ import annotations

from dataclasses import dataclass, field

from kscope.marks.grammar import Mark


class PtxError(Exception):
    """Text that the interpreter does not take; names the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True)
class Reg:
    """A register: `py` is unique in its kernel."""

    py: str
    bits: int
    name: str
    negated: bool = False


@dataclass(frozen=True)
class Imm:
    value: int


@dataclass(frozen=True)
class Special:
    """A special register such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Name:
    """A label or symbol, not looked up yet."""

    name: str


@dataclass(frozen=True)
class Sink:
    """The operand `_`."""


@dataclass(frozen=True)
class Vec:
    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """The destination `p|q` of setp."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Addr:
    base: Reg | Name | Imm
    offset: int


Operand = Reg | Imm | Special | Name | Sink | Vec | Pair | Addr


@dataclass(eq=False)
class Scope:
    """One pair of braces: its registers, register ranges, labels, and tables of branch targets."""

    parent: Scope | None = None
    regs: dict[str, Reg] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)  # prefix -> (count, bits)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)

    def label(self, name: str) -> int | None:
        """The block number of a label as seen from here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None


@dataclass(frozen=True)
class Instr:
    """One instruction: `@guard opcode operands`. A mark is an Instr whose opcode is ("kscope",)."""

    line: int
    text: str
    op: tuple[str, ...]
    args: tuple[Operand, ...]
    scope: Scope
    guard: Reg | None = None
    mark: Mark | None = None


@dataclass
class Kernel:
    """An entry function. `blocks` start at labels; execution falls from each into the next."""

    name: str
    params: list[tuple[str, int]]
    blocks: list[list[Instr]] = field(default_factory=lambda: [[]])
    regs: int = 0


@dataclass(frozen=True)
class Symbol:
    name: str
    space: str
    data: bytes
    align: int


@dataclass
class Module:
    kernels: dict[str, Kernel] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
