"""A corpus on disk: for each kernel its PTX without marks, with marks, and how it is assembled."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kscope.marks.grammar import PREFIX

_LEAVES = re.compile(r"@!?%\w+\s+(?:ret|exit)\b")
_ACCESS = re.compile(r"\s*(ld|st|atom|red)\.(?:volatile\.|relaxed\.|weak\.)?global[^\n]*;\s*$")
_HEAD = re.compile(r"^(?:\.(?:visible|weak)\s+)*\.entry\s+([\w$]+)", re.M)
_BRACES = re.compile(r"//[^\n]*|\"[^\"\n]*\"|[{}]")
_FUNCTION = re.compile(r"^(?:\.(?:visible|weak)\s+)*\.func\s*(?:\([^)]*\))?\s*([\w$]+)", re.M)
_DOES = re.compile(r"\s+(?!\.|//|\{|\})\S[^\n]*;")


@dataclass(frozen=True)
class Kept:
    """Facts about a kernel besides its texts.

    Attributes:
        name: of the kernel.
        frontend: of its language.
        flags: of ptxas.
        shared: bytes of shared memory per block, None if unknown.
        whole: nothing was selected in it, so a region is around all of it.
    """

    name: str
    frontend: str
    flags: tuple[str, ...] = ("-lineinfo", "--gpu-name=sm_90a")
    shared: int | None = None
    whole: bool = False


def keep(folder: Path, about: Kept, plain: str, marked: str) -> None:
    """Write a kernel. A text without marks gets regions around its body, loads and stores."""
    folder.mkdir(parents=True, exist_ok=True)
    if PREFIX not in marked:
        about, marked = replace(about, whole=True), around(marked)
    at = folder / re.sub(r"[^\w.]", "_", about.name)[:120]
    if plain:
        Path(f"{at}.plain").write_text(plain)
    Path(f"{at}.marked").write_text(marked)
    Path(f"{at}.json").write_text(json.dumps(asdict(about)))


def split(text: str) -> Iterator[tuple[str, str]]:
    """Each kernel of a module by its name, as a module without the other ones."""
    spans = [(one.start(), _body(text, one.end())[1] + 1) for one in _HEAD.finditer(text)]
    names = [one[1] for one in _HEAD.finditer(text)]
    for name, mine in zip(names, spans, strict=True):
        left = text
        for first, last in reversed(spans):
            if (first, last) != mine:
                left = left[:first] + left[last:]
        yield name, _without_unused(left)


def _without_unused(text: str) -> str:
    """A module without the functions that nothing in it calls."""
    for one in reversed([*_FUNCTION.finditer(text)]):
        begin, declared = text.find("{", one.end()), text.find(";", one.end())
        if not 0 <= declared < begin and len(re.findall(rf"(?<![\w$]){re.escape(one[1])}(?![\w$])", text)) == 1:
            text = text[: one.start()] + text[_body(text, one.end())[1] + 1 :]
    return text


def around(text: str, some: int = 4) -> str:
    """A text of one kernel with a region around its body, and around some loads and stores; a statement is a line.

    Of kernels that leave under a predicate, only the accesses.
    """
    begin, end = _body(text, next(one.end() for one in _HEAD.finditer(text)))
    body = text[begin:end]
    whole, counts, lines, begun = not _LEAVES.search(body), Counter[str](), list[str](), False
    for line in body.split("\n"):
        if whole and not begun and _DOES.match(line):
            begun = True
            lines.append(_mark("enter", "body"))
        kind = _ACCESS.match(line)
        if kind is not None and counts[kind[1]] < some:
            counts[kind[1]] += 1
            name = f"{kind[1]}{counts[kind[1]]}"
            lines += [_mark("enter", name), line, _mark("exit", name)]
            continue
        if begun and line.strip().startswith(("ret;", "exit;")):
            lines.append(_mark("exit", "body"))
        lines.append(line)
    return text[:begin] + "\n".join(lines) + text[end:]


def _body(text: str, start: int) -> tuple[int, int]:
    """Where the body of a kernel begins and ends, without its braces. start: after the kernel's name."""
    depth, begin = 0, 0
    for brace in _BRACES.finditer(text, start):
        if brace[0] == "{":
            begin = begin or brace.end()
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if not depth:
                return begin, brace.start()
    raise ValueError("a kernel without an end")


def _mark(act: str, name: str) -> str:
    return f"{PREFIX}{act} {name} - - lines"
