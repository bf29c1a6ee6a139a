"""The code that a driver would load: its metadata, and its records."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kscope.capture import layout, metadata
from kscope.capture.model import ModuleMeta
from kscope.sass.checks import hazards
from kscope.sass.cubin.instructions import Function, Instruction

from .kernels import functions

_IN_TEXT = re.compile(rf"{layout.META_SYMBOL}\[\d+\] = \{{([^}}]*)\}}".encode())
_ENTRY = 24
"""Instructions among which are the stores of a launch's entry."""
_IN_CUBIN = re.compile(rb'(\{"frontend"[^\0]*)\0')


def meta(code: bytes) -> ModuleMeta:
    """The only metadata in a cubin or PTX text."""
    (found,) = (_IN_CUBIN if code.startswith(b"\x7fELF") else _IN_TEXT).findall(code)
    return metadata.from_json(found if found.startswith(b"{") else bytes(map(int, found.split(b","))).rstrip(b"\0"))


def stores(cubin: bytes) -> int:
    """How many instructions of the only function store records in machine code."""
    (function,) = functions(cubin)
    return stored(function)


def stored(function: Function) -> int:
    """How many instructions of a function store records: 16 bytes at their place in the slab."""
    assert hazards.check(function) == ()
    return len(record_stores(function.instructions))


def record_stores(code: Sequence[Instruction]) -> list[int]:
    """The instructions that store records."""
    return slab_stores(code, 0x20)


def slab_stores(code: Sequence[Instruction], offset: int) -> list[int]:
    """The stores of 16 bytes at such an offset, without those of the launch's entry: three rows beside each other."""
    rows = {n: one.operands[0] for n, one in enumerate(code) if one.code == "STG.E.128"}
    found = []
    for n, place in rows.items():
        base = place.removesuffix(f"+{offset:#x}]")
        near = {other for m, other in rows.items() if abs(m - n) < _ENTRY}
        if base != place and not {f"{base}]", f"{base}+0x10]", f"{base}+0x20]"} <= near:
            found.append(n)
    return found
