"""The functions of a C++ text: their names, whether they are kernels, and their bodies.

What lives here: finding them among namespaces, classes, templates and what else stands outside of functions. What
does not: what is in them (statements.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .tokens import Tokens

_SCOPES = {"namespace", "struct", "class", "union"}
_LISTS = {"__align__", "alignas", "__attribute__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "decltype",
          "noexcept", "requires", "explicit", "asm", "__declspec"}  # fmt: skip
_CONSTANT = {"constexpr", "consteval"}


@dataclass(frozen=True)
class Function:
    """A function with a body. kernel: __global__. constant: constexpr, which may hold no assembly. brace: the token
    that begins its body; lines: from that brace to the closing one."""

    name: str
    kernel: bool
    constant: bool
    brace: int
    lines: tuple[int, int]


def functions(tokens: Tokens) -> tuple[Function, ...]:
    """Every function of the text, in its order. Raises UnreadableError."""
    return tuple(_inside(tokens, 0, len(tokens.code)))


def _inside(tokens: Tokens, at: int, end: int) -> Iterator[Function]:
    code, partner = tokens.code, tokens.partners
    start = at
    while at < end:
        text = code[at].text if code[at].kind in ("word", "mark") else ""
        if text in (";", "}") or (text == ":" and code[at - 1].text in ("public", "private", "protected")):
            start = at + 1
        elif text in ("(", "["):
            at = partner[at]
        elif text == "{":
            close = partner[at]
            words = [code[i].text for i in _level(tokens, start, at)]
            if (name := _function(tokens, start, at)) is not None:
                lines = tokens.line(code[at].start), tokens.line(code[close].start)
                yield Function(name, "__global__" in words, not _CONSTANT.isdisjoint(words), at, lines)
                start = close + 1
            elif not _SCOPES.isdisjoint(words) or words[:1] == ["extern"] or "extern" in words[-2:]:
                yield from _inside(tokens, at + 1, close)
                start = close + 1 if "namespace" in words or "extern" in words else start
            at = close
        at += 1


def _level(tokens: Tokens, start: int, end: int) -> Iterator[int]:
    """The tokens between these two that stand in no brackets."""
    at = start
    while at < end:
        yield at
        at = tokens.partners[at] if tokens.code[at].text in "([{" and tokens.code[at].kind == "mark" else at
        at += 1


def _function(tokens: Tokens, start: int, brace: int) -> str | None:
    """The name of the function whose body begins at this brace; None where something else does."""
    level = list(_level(tokens, start, brace))
    texts = [tokens.code[at].text for at in level]
    if "=" in texts or not _SCOPES.isdisjoint(texts[-2:]):
        return None
    for place in range(1, len(level)):
        if texts[place] != "(" or tokens.code[level[place]].kind != "mark":
            continue
        before = tokens.code[level[place - 1]]
        if before.kind == "word" and before.text not in _LISTS:
            return _behind(texts[place + 1 :], before.text)
        if before.text == ")" or "operator" in texts[max(0, place - 4) : place]:
            return _behind(texts[place + 1 :], "operator")
    return None


def _behind(texts: list[str], name: str) -> str | None:
    """The name, unless what stands between the parameters and the brace shows a member's initializer."""
    colons = [at for at, text in enumerate(texts) if text == ":"]
    if colons and texts[-1] not in (")", "}"):
        return None
    return name
