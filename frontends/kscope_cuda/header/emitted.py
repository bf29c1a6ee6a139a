"""Texts of kscope.ptx as inline assembly: what a header cannot know becomes an operand.

A slab's size is chosen where the header is used. Here it is a number that writes down what is done with
it: kscope.ptx computes and formats as ever, and each result stands in the text as an operand with a C++
expression. What lives here: that number, and the way from text to `asm volatile`. What does not: any
instruction (kscope/ptx), which texts there are (stored.py).
"""

from __future__ import annotations

import re


class Unknown(int):
    """A number that the C++ compiler will know: arithmetic gives the C++ expression, formatting a mark that
    assembly() turns into an operand. Comparing it would mean nothing, and is refused, as is arithmetic that no text
    needs."""

    spelling: str

    def __new__(cls, spelling: str) -> Unknown:
        made = super().__new__(cls, -1)
        made.spelling = spelling
        return made

    def __format__(self, spec: str) -> str:
        return f"<n:{self.spelling}>"

    __str__ = __repr__ = lambda self: f"{self:}"

    def _with(self, operator: str, other: object, turned: bool = False) -> Unknown:
        said = other.spelling if isinstance(other, Unknown) else str(other)
        return Unknown(f"({said} {operator} {self.spelling})" if turned else f"({self.spelling} {operator} {said})")

    def __add__(self, other: int) -> Unknown:
        return self._with("+", other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Unknown:
        return self._with("-", other)

    def __lshift__(self, other: int) -> Unknown:
        return self._with("<<", other)

    def __rlshift__(self, other: int) -> Unknown:
        return self._with("<<", other, turned=True)

    def __floordiv__(self, other: int) -> Unknown:
        return self._with("/", other)

    def __or__(self, other: int) -> Unknown:
        return self._with("|", other)

    __ror__ = __or__
    __hash__ = int.__hash__

    def _refuse(self, other: object) -> bool:
        raise TypeError(f"{self.spelling} is known to the C++ compiler alone: an instruction may not depend on it")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = __rsub__ = _refuse
    __and__ = __rand__ = __xor__ = __rxor__ = __rshift__ = __rrshift__ = __mod__ = __rmod__ = _refuse
    __truediv__ = __rtruediv__ = __rfloordiv__ = _refuse


_MACRO = re.compile(r"[A-Z_]+")
_OPERAND = re.compile(r"<(=?[a-zC]):([^<>]+(?:<<[^<>]+)*)>")


def operand(constraint: str, expression: str) -> str:
    """A C++ expression's place in a text: "n" known when compiled, "r" and "l" 32 and 64 bits, "=l" a result,
    "C" text."""
    return f"<{constraint}:{expression}>"


def assembly(text: str, indent: str = "  ") -> str:
    """The text as one C++ statement. Equal operands stand once; results first, as C++ wants them. There is always
    one: in a text without any, nvcc takes %% for two signs. A line that is a macro's name stays one."""
    found = list(dict.fromkeys(_OPERAND.findall(text))) or [("n", "0")]
    ordered = sorted(found, key=lambda one: not one[0].startswith("="))
    numbers = {one: f"%{number}" for number, one in enumerate(ordered)}
    results, inputs = (
        ", ".join(
            f'"{constraint}"({expression})' for constraint, expression in ordered if first == (constraint[0] == "=")
        )
        for first in (True, False)
    )
    lines = (_line(line.strip(), numbers) for line in text.strip().splitlines())
    body = "\n".join(f"{indent}  {line}" for line in lines if line)
    return f'{indent}asm volatile(\n{body}\n{indent}  : {results} : {inputs} : "memory");'


def quoted(line: str) -> str:
    """A line without operands as a C++ string literal."""
    return _line(line.strip(), {})


def _line(line: str, numbers: dict[tuple[str, str], str]) -> str:
    if not line or _MACRO.fullmatch(line):
        return line
    pieces = [part.replace("%", "%%") for part in _OPERAND.sub("\0", line).split("\0")]
    inner = [numbers[one] for one in _OPERAND.findall(line)]
    text = "".join(a + b for a, b in zip(pieces, [*inner, ""], strict=True))
    return f'"{text}\\n"'
