"""Numba's LLVM IR before it is compiled: regions that an exception leaves are closed, what leads to a mark is inlined.

A function that raises (an assert, a step of zero in range(), a callee that raised) returns an error code at
once. A device function is a function of its own until LLVM inlines it, and a mark's state lives in its
kernel's registers. What lives here: both repairs, on llvmlite's modules. What does not: marks (placing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kscope.marks.grammar import PREFIX, Mark, parse

from .emit import assembly, ir

_DONE = (0, -2)
"""What Numba's device functions return where they did not fail: a value, or None."""
_APART = ("noinline", "optnone")


def marks(module: Any) -> Iterator[Mark]:
    """Every mark of a module."""
    for function in module.functions:
        yield from _marks(function)


def close(module: Any) -> None:
    """Before a return of an error code, the exits of what is open there. Doing it again changes nothing."""
    for function in module.functions:
        if next(_marks(function), None) is not None:
            _close(function)


def inline(modules: Iterable[Any], entry: str) -> Mark | None:
    """Every function on a way from the kernel to a mark becomes a part of the kernel. Returns a mark that cannot, as it
    is called by a function that calls itself; None where there is none."""
    functions = {function.name: function for module in modules for function in module.functions if function.blocks}
    calls = {name: set(_calls(function)) & functions.keys() for name, function in functions.items()}
    placed = {name: found for name, function in functions.items() if (found := next(_marks(function), None))}
    marked = set(placed)
    while more := {name for name, called in calls.items() if called & marked} - marked:
        marked |= more
    for name in marked - {entry}:
        attributes = functions[name].attributes
        for attribute in _APART:
            attributes.discard(attribute)
        attributes.add("alwaysinline")
    for name in sorted(marked):
        reached = _reached(calls, name)
        if name in reached:
            return next(placed[one] for one in sorted({name, *reached}) if one in placed)
    return None


def _reached(calls: Mapping[str, set[str]], name: str) -> set[str]:
    """What the function calls, directly or through others."""
    reached: set[str] = set()
    work = [name]
    while work:
        more = calls[work.pop()] - reached
        reached |= more
        work += more
    return reached


def _close(function: Any) -> None:
    opened: dict[Any, list[Mark]] = {function.blocks[0]: []}
    work = [function.blocks[0]]
    while work:
        block = work.pop()
        left = list(opened[block])
        for instruction in block.instructions:
            _follow(_mark(instruction), left)
        for successor in _successors(block.terminator):
            if successor not in opened:
                opened[successor] = left
                work.append(successor)
    for block, entered in opened.items():
        left = list(entered)
        for instruction in block.instructions:
            _follow(_mark(instruction), left)
        if left and _fails(block.terminator):
            builder = ir.IRBuilder(block)
            builder.position_before(block.terminator)
            for mark in reversed(left):
                made = builder.call(assembly(replace(mark, act="exit", type=None, operand=None, when=None)), [])
                made.metadata = dict(block.terminator.metadata)


def _follow(mark: Mark | None, opened: list[Mark]) -> None:
    if mark is not None and mark.act == "enter":
        opened.append(mark)
    elif mark is not None and mark.act == "exit":
        last = next((i for i in range(len(opened) - 1, -1, -1) if opened[i].name == mark.name), None)
        if last is not None:
            del opened[last]


def _fails(terminator: Any) -> bool:
    """Whether this returns an error code."""
    if not isinstance(terminator, ir.Ret) or not terminator.operands:
        return False
    code = terminator.operands[0]
    return code.type == ir.IntType(32) and not (isinstance(code, ir.Constant) and code.constant in _DONE)


def _successors(terminator: Any) -> Iterator[Any]:
    if terminator is None:
        return
    cases = (getattr(terminator, "default", None), *(block for _, block in getattr(terminator, "cases", ())))
    for operand in (*terminator.operands, *cases):
        if isinstance(operand, ir.Block):
            yield operand


def _marks(function: Any) -> Iterator[Mark]:
    for block in function.blocks:
        for instruction in block.instructions:
            found = _mark(instruction)
            if found is not None:
                yield found


def _mark(instruction: Any) -> Mark | None:
    if isinstance(instruction, ir.CallInstr) and isinstance(instruction.callee, ir.InlineAsm):
        text = instruction.callee.asm
        return parse(text) if text.startswith(PREFIX) else None
    return None


def _calls(function: Any) -> Iterator[str]:
    for block in function.blocks:
        for instruction in block.instructions:
            name = getattr(getattr(instruction, "callee", None), "name", None)
            if name is not None:
                yield name
