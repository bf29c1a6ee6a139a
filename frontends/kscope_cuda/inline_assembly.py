"""PTX texts of kscope.ptx as C++ inline assembly. The capacity of a slab is set when a program includes the header, so
kscope.ptx computes with an Unknown, and each result becomes an operand with a C++ expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class Unknown(int):
    """A number that the C++ compiler computes.

    Arithmetic builds a C++ expression, and formatting gives an operand for assembly(). Comparisons and other
    arithmetic raise TypeError.
    """

    expression: str

    def __new__(cls, expression: str) -> Unknown:
        made = super().__new__(cls, -1)
        made.expression = expression
        return made

    def __format__(self, spec: str) -> str:
        return f"<n:{self.expression}>"

    __str__ = __repr__ = lambda self: f"{self:}"

    def _with(self, operator: str, other: object, swapped: bool = False) -> Unknown:
        text = other.expression if isinstance(other, Unknown) else str(other)
        left, right = (text, self.expression) if swapped else (self.expression, text)
        return Unknown(f"({left} {operator} {right})")

    def __add__(self, other: int) -> Unknown:
        return self._with("+", other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Unknown:
        return self._with("-", other)

    def __lshift__(self, other: int) -> Unknown:
        return self._with("<<", other)

    def __rlshift__(self, other: int) -> Unknown:
        return self._with("<<", other, swapped=True)

    def __floordiv__(self, other: int) -> Unknown:
        return self._with("/", other)

    def __or__(self, other: int) -> Unknown:
        return self._with("|", other)

    __ror__ = __or__
    __hash__ = int.__hash__

    def _refuse(self, other: object) -> bool:
        raise TypeError(f"{self.expression} is computed by the C++ compiler: no instruction may depend on it")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = __rsub__ = _refuse
    __and__ = __rand__ = __xor__ = __rxor__ = __rshift__ = __rrshift__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __rfloordiv__ = _refuse


_AS_IS = re.compile(r"[A-Z_]+|#.*")
_OPERAND = re.compile(r"<(=?[a-zC]):([^<>]+(?:<<[^<>]+)*)>")


def operand(constraint: str, expression: str) -> str:
    """A C++ expression as an operand of a text.

    Args:
        constraint: "n" for a constant, "r" and "l" for 32 and 64 bits, "C" for text; with "=" for a result.
        expression: the C++ expression.
    """
    return f"<{constraint}:{expression}>"


def assembly(text: str, indent: str = "  ", *, volatile: bool = True) -> str:
    """A PTX text as one C++ statement.

    Equal operands are passed once, results first. There is always an operand, because nvcc reads %% as two characters
    without any. A line that is the name of a macro, or a directive, stays as it is.
    """
    numbers = numbered(text)
    results, inputs = (
        ", ".join(f'"{constraint}"({code})' for constraint, code in numbers if first == (constraint[0] == "="))
        for first in (True, False)
    )
    head, tail = ("asm volatile(", ' : "memory"') if volatile else ("asm(", "")
    return f"{indent}{head}\n{body(text, numbers, indent)}\n{indent}  : {results} : {inputs}{tail});"


def numbered(text: str) -> dict[tuple[str, str], str]:
    """The number of each operand of a text's statement, such as %0, in order."""
    found = list(dict.fromkeys(_OPERAND.findall(text))) or [("n", "0")]
    ordered = sorted(found, key=lambda one: not one[0].startswith("="))
    return {one: f"%{number}" for number, one in enumerate(ordered)}


def body(text: str, numbers: Mapping[tuple[str, str], str], indent: str = "  ") -> str:
    """A text's lines as C++ string literals, with the operands of numbered()."""
    lines = (_line(line.strip(), numbers) for line in text.strip().splitlines())
    return "\n".join(line if line.startswith("#") else f"{indent}  {line}" for line in lines if line)


def quoted(line: str) -> str:
    """A line without operands as a C++ string literal."""
    return _line(line.strip(), {})


def _line(line: str, numbers: Mapping[tuple[str, str], str]) -> str:
    if not line or _AS_IS.fullmatch(line):
        return line
    pieces = [part.replace("%", "%%") for part in _OPERAND.sub("\0", line).split("\0")]
    inner = [numbers[one] for one in _OPERAND.findall(line)]
    text = "".join(a + b for a, b in zip(pieces, [*inner, ""], strict=True))
    return f'"{text}\\n"'
