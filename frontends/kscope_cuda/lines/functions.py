"""The functions of a C++ text: their names, whether they are kernels, and their bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .tokens import Tokens

_SCOPES = {"namespace", "struct", "class", "union"}
_LISTS = {"__align__", "alignas", "__attribute__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "decltype",
          "noexcept", "requires", "explicit", "asm", "__declspec"}  # fmt: skip
_CONSTANT = {"constexpr", "consteval"}


@dataclass(frozen=True)
class Function:
    """A function with a body. kernel: __global__. constant: constexpr, which may hold no assembly. pointers: its
    parameters that are pointers. brace: the token that begins its body; lines: from it to the closing one."""

    name: str
    kernel: bool
    constant: bool
    pointers: frozenset[str]
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
            if (found := _function(tokens, start, at)) is not None:
                name, opening = found
                lines = tokens.line(code[at].start), tokens.line(code[close].start)
                constant = not _CONSTANT.isdisjoint(words)
                yield Function(name, "__global__" in words, constant, _pointers(tokens, opening), at, lines)
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


def _untemplated(tokens: Tokens, level: Iterable[int]) -> Iterator[int]:
    """These tokens without the parameters of templates, which may have defaults and the word class."""
    depth, waiting = 0, False
    for at in level:
        text = tokens.code[at].text
        if waiting and depth == 0 and text != "<":
            waiting = False
        if waiting:
            depth += (text == "<") - (text == ">")
            waiting = depth > 0
        elif text == "template":
            waiting = True
        else:
            yield at


def _function(tokens: Tokens, start: int, brace: int) -> tuple[str, int] | None:
    """The name of the function whose body begins at this brace, and where its parameters begin; None where something
    else does."""
    level = list(_untemplated(tokens, _level(tokens, start, brace)))
    texts = [tokens.code[at].text for at in level]
    if "=" in texts or not _SCOPES.isdisjoint(texts[-2:]):
        return None
    for place in range(1, len(level)):
        if texts[place] != "(" or tokens.code[level[place]].kind != "mark":
            continue
        before = tokens.code[level[place - 1]]
        if before.kind == "word" and before.text not in _LISTS:
            return (before.text, level[place]) if _is_body(texts[place + 1 :]) else None
        if before.text == ")" or "operator" in texts[max(0, place - 4) : place]:
            return ("operator", level[place]) if _is_body(texts[place + 1 :]) else None
    return None


def _is_body(texts: list[str]) -> bool:
    """Whether what stands between the parameters and a brace shows no member's initializer."""
    return ":" not in texts or texts[-1] in "([{"


def _pointers(tokens: Tokens, opening: int) -> frozenset[str]:
    """The names of parameters that are pointers or arrays."""
    found, pointer, name = set[str](), False, ""
    for at in [*_level(tokens, opening + 1, tokens.partners[opening]), tokens.partners[opening]]:
        token = tokens.code[at]
        if token.text in (",", ")"):
            if pointer and name:
                found.add(name)
            pointer, name = False, ""
        elif token.text in ("*", "["):
            pointer = True
        elif token.kind == "word":
            name = token.text
    return frozenset(found)
