"""Kernel names: kscope has the one in the binary, often mangled; CUPTI's are demangled. Both contain an identifier."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+")


def identifier(name: str) -> str:
    """The kernel's own name: ``scale`` of ``_ZN3lib5scaleIfEEvPf`` and of ``void lib::scale<float>(float*)``."""
    return _mangled(name) if name.startswith("_Z") else _demangled(name)


def _mangled(name: str) -> str:
    """The last of the nested names; the name itself if it is not of the usual form."""
    at, found = 2, ""
    while at < len(name) and name[at] in "NLKVr":
        at += 1
    while (number := _NUMBER.match(name, at)) is not None:
        at = number.end() + int(number[0])
        found = name[number.end() : at]
    return found or name


def _demangled(name: str) -> str:
    """The name without its return type, namespaces, template arguments and parameters."""
    kept, depth = list[str](), 0
    for letter in name.replace("(anonymous namespace)::", ""):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter == "(":
            break
        if depth == 0 and letter != ">":
            kept.append(letter)
    plain = "".join(kept).strip()
    return plain.rpartition(" ")[2].rpartition("::")[2] or name
