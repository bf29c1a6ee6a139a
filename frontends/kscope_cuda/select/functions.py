"""Finds the functions of a C++ text: names, kernels, and bodies."""

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
    """A function with a body, from the token `brace` over `lines`. constant: it is constexpr, so it permits no
    assembly. pointers: parameters that are pointers or arrays.
    """

    name: str
    kernel: bool
    constant: bool
    pointers: frozenset[str]
    brace: int
    lines: tuple[int, int]

    def in_kernel(self, name: str) -> bool:
        """True if the kernel of that name may run it: device functions belong to all."""
        return not self.kernel or self.name == name


def functions(tokens: Tokens) -> tuple[Function, ...]:
    """Every function of the text, in order. Raises UnreadableError."""
    return tuple(_inside(tokens, 0, len(tokens.code)))


def _inside(tokens: Tokens, at: int, end: int) -> Iterator[Function]:
    code, partner = tokens.code, tokens.partners
    start = at
    while at < end:
        text = code[at].text if code[at].kind in ("identifier", "punctuation") else ""
        if text in (";", "}") or (text == ":" and code[at - 1].text in ("public", "private", "protected")):
            start = at + 1
        elif text in ("(", "["):
            at = partner[at]
        elif text == "{":
            close = partner[at]
            names = [code[i].text for i in _level(tokens, start, at)]
            if (found := _function(tokens, start, at)) is not None:
                name, opening = found
                lines = tokens.line(code[at].start), tokens.line(code[close].start)
                constant = not _CONSTANT.isdisjoint(names)
                yield Function(name, "__global__" in names, constant, _pointers(tokens, opening), at, lines)
                start = close + 1
            elif not _SCOPES.isdisjoint(names) or names[:1] == ["extern"] or "extern" in names[-2:]:
                yield from _inside(tokens, at + 1, close)
                start = close + 1 if "namespace" in names or "extern" in names else start
            at = close
        at += 1


def _level(tokens: Tokens, start: int, end: int) -> Iterator[int]:
    """The tokens in this range that are not inside brackets."""
    at = start
    while at < end:
        yield at
        at = tokens.partners[at] if tokens.code[at].text in "([{" and tokens.code[at].kind == "punctuation" else at
        at += 1


def _untemplated(tokens: Tokens, level: Iterable[int]) -> Iterator[int]:
    """These tokens without template parameters, which may contain defaults and `class`."""
    depth, skipping = 0, False
    for at in level:
        text = tokens.code[at].text
        if skipping and depth == 0 and text != "<":
            skipping = False
        if skipping:
            depth += (text == "<") - (text == ">")
            skipping = depth > 0
        elif text == "template":
            skipping = True
        else:
            yield at


def _function(tokens: Tokens, start: int, brace: int) -> tuple[str, int] | None:
    """Name of the function whose body this brace opens, and the token that opens its parameters; None if it opens
    something else."""
    level = list(_untemplated(tokens, _level(tokens, start, brace)))
    texts = [tokens.code[at].text for at in level]
    if "=" in texts or not _SCOPES.isdisjoint(texts[-2:]):
        return None
    for place in range(1, len(level)):
        if texts[place] != "(" or tokens.code[level[place]].kind != "punctuation":
            continue
        before = tokens.code[level[place - 1]]
        if before.kind == "identifier" and before.text not in _LISTS:
            return (before.text, level[place]) if _is_body(texts[place + 1 :]) else None
        if before.text == ")" or "operator" in texts[max(0, place - 4) : place]:
            return ("operator", level[place]) if _is_body(texts[place + 1 :]) else None
    return None


def _is_body(texts: list[str]) -> bool:
    """True if a brace after these tokens opens a body, not a member's initializer."""
    return ":" not in texts or texts[-1] in "([{"


def _pointers(tokens: Tokens, opening: int) -> frozenset[str]:
    """Parameters that are pointers or arrays."""
    found, pointer, name = set[str](), False, ""
    for at in [*_level(tokens, opening + 1, tokens.partners[opening]), tokens.partners[opening]]:
        token = tokens.code[at]
        if token.text in (",", ")"):
            if pointer and name:
                found.add(name)
            pointer, name = False, ""
        elif token.text in ("*", "["):
            pointer = True
        elif token.kind == "identifier":
            name = token.text
    return frozenset(found)
