"""PTX text -> Module: symbols and kernels, with every register resolved to a unique name."""

from __future__ import annotations

import re
from functools import lru_cache

from kscope.marks.grammar import parse

from .syntax import (
    Addr,
    Imm,
    Instr,
    Kernel,
    Module,
    Name,
    Operand,
    Pair,
    PtxError,
    Reg,
    Scope,
    Sink,
    Special,
    Symbol,
    Vec,
)

BITS = {"pred": 1, "8": 8, "16": 16, "32": 32, "64": 64}
LINE_DIRECTIVES = (".version", ".target", ".address_size", ".file", ".loc")
_NAME = r"[A-Za-z_$%][\w$]*"
_SPACE = re.compile(r"(?:\s|//(?!kscope )[^\n]*|/\*.*?\*/)*", re.S)
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_TABLE = re.compile(rf"({_NAME})\s*:\s*\.branchtargets\s+([^;]+);")
_ENTRY = re.compile(rf"(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.entry\s+({_NAME})\s*(?:\(([^)]*)\))?[^{{;]*")
_PARAM = re.compile(rf"\.param\s+(?:\.align\s+\d+\s+)?\.([busf]\d+)\s+(?:\.ptr[.\w\s]*?)?({_NAME})(?:\[(\d+)\])?\s*$")
_SYMBOL = re.compile(
    rf"((?:\.(?:visible|weak|extern|common)\s+)*)\.(const|global|shared)\s+(?:\.align\s+(\d+)\s+)?"
    rf"\.([busf]\d+)\s+({_NAME})(?:\[(\d*)\])?\s*(?:=\s*(.*))?$",
    re.S,
)
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
_GUARD = re.compile(rf"@(!?)({_NAME})\s*")
_INT = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_FLOAT = re.compile(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DIGITS = re.compile(r"(?<!\d)(0|[1-9]\d*)$")


def parse_module(text: str) -> Module:
    """Read a whole PTX text; raises PtxError. Marks stay as instructions, other comments go."""
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.module = text, 0, Module()
        self.counted, self.lines = 0, 1
        self.kernel: Kernel | None = None
        self.scope: Scope | None = None

    def line(self) -> int:
        self.lines += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.lines

    def fail(self, message: str) -> PtxError:
        return PtxError(self.line(), message)

    def run(self) -> Module:
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.at == len(self.text):
                if self.scope is not None:
                    raise self.fail("the text ends inside braces")
                return self.module
            if self.scope is None:
                self.top()
            else:
                self.inside()

    def until(self, end: str) -> str:
        """The text up to `end`, which is consumed, without comments."""
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise self.fail(f"{self.text[self.at : self.at + 40]!r} does not end")
        piece, self.at = self.text[self.at : stop], stop + len(end)
        return _COMMENT.sub(" ", piece).strip()

    def top(self) -> None:
        entry = _ENTRY.match(self.text, self.at)
        if self.text.startswith(LINE_DIRECTIVES, self.at):
            self.until("\n")
        elif self.text.startswith(".section", self.at):
            self.until("}")
        elif entry:
            self.kernel = Kernel(entry[1], [self.param(p) for p in (entry[2] or "").split(",") if p.strip()])
            self.module.kernels[entry[1]] = self.kernel
            self.at = entry.end()
            if not self.text.startswith("{", self.at):
                raise self.fail(f"the body of {entry[1]} is missing")
            self.scope, self.at = Scope(), self.at + 1
        else:
            self.symbol(self.until(";"))

    def param(self, text: str) -> tuple[str, int]:
        found = _PARAM.match(text.strip())
        if not found:
            raise self.fail(f"parameter {text.strip()!r}")
        return found[2], int(found[1][1:]) // 8 * int(found[3] or 1)

    def symbol(self, text: str) -> None:
        found = _SYMBOL.match(text)
        if not found:
            raise self.fail(f"declaration {text!r}")
        _, space, align, kind, name, count, init = found.groups()
        size = int(kind[1:]) // 8
        values = [_integer(v.strip()) for v in (init or "").strip(" {}\n\t").split(",") if v.strip()]
        data = b"".join((v & ((1 << 8 * size) - 1)).to_bytes(size, "little") for v in values)
        self.module.symbols[name] = Symbol(
            name, space, data.ljust(size * int(count or 1), b"\0"), max(size, int(align or 1))
        )

    def inside(self) -> None:
        assert self.kernel is not None
        assert self.scope is not None
        label, table = _LABEL.match(self.text, self.at), _TABLE.match(self.text, self.at)
        if self.text.startswith("{", self.at):
            self.scope, self.at = Scope(self.scope), self.at + 1
        elif self.text.startswith("}", self.at):
            self.scope, self.at = self.scope.parent, self.at + 1
        elif self.text.startswith("//kscope ", self.at):
            line = self.line()
            self.mark(line, self.text[self.at : self.text.find("\n", self.at)])
            self.at = self.text.find("\n", self.at)
        elif table:
            self.scope.tables[table[1]] = [name.strip() for name in table[2].split(",")]
            self.at = table.end()
        elif label:
            if label[1] in self.scope.labels:
                raise self.fail(f"label {label[1]} is defined twice in one scope")
            self.kernel.blocks.append([])
            self.scope.labels[label[1]] = len(self.kernel.blocks) - 1
            self.at = label.end()
        elif self.text.startswith(LINE_DIRECTIVES, self.at):
            self.until("\n")
        else:
            line = self.line()
            statement = self.until(";")
            if statement.startswith(".reg"):
                self.registers(line, statement)
            elif statement and not statement.startswith(".pragma"):
                self.kernel.blocks[-1].append(self.instruction(line, statement))

    def mark(self, line: int, text: str) -> None:
        assert self.kernel is not None
        assert self.scope is not None
        mark = parse(text)
        assert mark is not None
        args = tuple(self.operand(line, word) for word in (mark.operand, mark.when) if word)
        self.kernel.blocks[-1].append(Instr(line, text, ("kscope",), args, self.scope, None, mark))

    def registers(self, line: int, text: str) -> None:
        found = _REG.match(text)
        if not found or (found[1] not in BITS and found[1][1:] not in BITS):
            raise PtxError(line, f"register declaration {text!r}")
        bits = BITS.get(found[1]) or BITS[found[1][1:]]
        assert self.scope is not None
        for item in found[2].split(","):
            item = item.strip()
            span = re.fullmatch(rf"({_NAME})<(\d+)>", item)
            if span:
                if span[1] in self.scope.ranges:
                    raise PtxError(line, f"registers {item} are declared twice in one scope")
                self.scope.ranges[span[1]] = (int(span[2]), bits)
            elif re.fullmatch(_NAME, item):
                if self.find(self.scope, item) is not None:
                    raise PtxError(line, f"register {item} is declared twice in one scope")
                self.scope.regs[item] = self.fresh(item, bits)
            else:
                raise PtxError(line, f"register {item!r}")

    def fresh(self, name: str, bits: int) -> Reg:
        assert self.kernel is not None
        self.kernel.regs += 1
        return Reg(f"r{self.kernel.regs - 1}", bits, name)

    def find(self, scope: Scope, name: str) -> Reg | None:
        if name in scope.regs:
            return scope.regs[name]
        prefix, number = _numbered(name)
        if prefix in scope.ranges:
            count, bits = scope.ranges[prefix]
            if number < count:
                return scope.regs.setdefault(name, self.fresh(name, bits))
        return None

    def lookup(self, name: str) -> Reg | None:
        scope = self.scope
        while scope is not None:
            reg = self.find(scope, name)
            if reg is not None:
                return reg
            scope = scope.parent
        return None

    def instruction(self, line: int, text: str) -> Instr:
        assert self.scope is not None
        (whole, negated, predicate, op, pieces), guard = _words(text), None
        if predicate:
            reg = self.lookup(predicate)
            if reg is None or reg.bits != 1:
                raise PtxError(line, f"{predicate} is no predicate: {whole}")
            guard = Reg(reg.py, 1, reg.name, negated)
        return Instr(line, whole, op, tuple(self.operand(line, piece) for piece in pieces), self.scope, guard)

    def operand(self, line: int, text: str) -> Operand:
        text = text.strip()
        if text == "_":
            return Sink()
        if text.startswith("{"):
            return Vec(tuple(self.operand(line, piece) for piece in _split(text[1:-1])))
        if text.startswith("["):
            return self.address(line, text[1:-1])
        if _INT.match(text) or _FLOAT.match(text):
            return Imm(_integer(text))
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self.operand(line, first), self.operand(line, second))
        if text.startswith("!"):
            reg = self.lookup(text[1:].strip())
            if reg is not None:
                return Reg(reg.py, reg.bits, reg.name, True)
        reg = self.lookup(text)
        if reg is not None:
            return reg
        if text.startswith("%"):
            return Special(text)
        if re.fullmatch(_NAME, text):
            return Name(text)
        raise PtxError(line, f"operand {text!r}")

    def address(self, line: int, text: str) -> Addr:
        base, plus, offset = text.partition("+")
        inner = self.operand(line, base)
        if not isinstance(inner, (Reg, Name, Imm)):
            raise PtxError(line, f"address [{text}]")
        return Addr(inner, _integer(offset.strip()) if plus else 0)


def _integer(text: str) -> int:
    floating = _FLOAT.match(text)
    return int(floating[1], 16) if floating else int(text.rstrip("U"), 0)


@lru_cache(maxsize=1 << 16)
def _words(text: str) -> tuple[str, bool, str, tuple[str, ...], list[str]]:
    """Of an instruction: its text in one line, whether its predicate is negated, the predicate, the opcode's parts, and
    its operands."""
    whole, found = " ".join(text.split()), _GUARD.match(text)
    text = text[found.end() :] if found else text
    op, _, rest = text.partition(" ") if " " in text else (text, "", "")
    op, tab, more = op.partition("\t")
    guard = (bool(found[1]), found[2]) if found else (False, "")
    return whole, *guard, tuple(op.split(".")), _split(more + tab + rest)


@lru_cache(maxsize=1 << 16)
def _numbered(name: str) -> tuple[str, int]:
    """The prefix and the number of a register of a range; else no prefix."""
    digits = _DIGITS.search(name)
    return (name[: digits.start()], int(digits[1])) if digits else ("", 0)


def _split(text: str) -> list[str]:
    """Split at commas outside braces and brackets."""
    pieces, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "{[") - (char in "}]")
        if char == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [piece for piece in [*pieces, text[start:]] if piece.strip()]
