"""Repairs Numba's LLVM IR: closes regions on error returns (of a function that raises, or whose callee raised), and
inlines every function that leads to a mark, because a region's state is in its kernel's registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kscope.marks.grammar import PREFIX, Mark, parse
from kscope.util.graph_walks import reached

from .emit import assembly, ir

_SUCCESS = (0, -2)
"""Return codes of Numba's device functions that did not fail: with a value, or None."""
_NO_INLINE = ("noinline", "optnone")


def marks(module: Any) -> Iterator[Mark]:
    """Every mark of a module."""
    for function in module.functions:
        yield from _marks(function)


def close_regions(module: Any) -> None:
    """Insert exits of the open regions before each return of an error code. Idempotent."""
    for function in module.functions:
        if next(_marks(function), None) is not None:
            _close_in(function)


def inline(modules: Iterable[Any], entry: str) -> Mark | None:
    """Mark every function on a path from the kernel to a mark as always-inline, except recursive ones.

    Returns:
        A mark in the source that cannot be inlined because a recursive function leads to it; None if there is none.
    """
    functions = {function.name: function for module in modules for function in module.functions if function.blocks}
    calls = {name: set(_calls(function)) & functions.keys() for name, function in functions.items()}
    marks_of = {name: found for name, function in functions.items() if (found := list(_marks(function)))}
    marked = set(marks_of)
    while more := {name for name, called in calls.items() if called & marked} - marked:
        marked |= more
    called_by = {name: reached(calls[name], calls.__getitem__) for name in marked}
    recursive = {name for name in marked if name in called_by[name]}
    for name in marked - recursive - {entry}:
        attributes = functions[name].attributes
        for attribute in _NO_INLINE:
            attributes.discard(attribute)
        attributes.add("alwaysinline")
    beyond = sorted({one for name in recursive for one in called_by[name]})
    return next((mark for one in beyond for mark in marks_of.get(one, ()) if mark.origin == "source"), None)


def _close_in(function: Any) -> None:
    open_at: dict[Any, list[Mark]] = {function.blocks[0]: []}
    work = [function.blocks[0]]
    while work:
        block = work.pop()
        regions = list(open_at[block])
        for instruction in block.instructions:
            _update_open(regions, _mark(instruction))
        for successor in _successors(block.terminator):
            if successor not in open_at:
                open_at[successor] = regions
                work.append(successor)
    for block, entered in open_at.items():
        regions = list(entered)
        for instruction in block.instructions:
            _update_open(regions, _mark(instruction))
        if regions and _returns_error(block.terminator):
            builder = ir.IRBuilder(block)
            builder.position_before(block.terminator)
            for mark in reversed(regions):
                call = builder.call(assembly(replace(mark, act="exit", type=None, operand=None, when=None)), [])
                call.metadata = dict(block.terminator.metadata)


def _update_open(regions: list[Mark], mark: Mark | None) -> None:
    if mark is not None and mark.act == "enter":
        regions.append(mark)
    elif mark is not None and mark.act == "exit":
        last = next((i for i in range(len(regions) - 1, -1, -1) if regions[i].name == mark.name), None)
        if last is not None:
            del regions[last]


def _returns_error(terminator: Any) -> bool:
    if not isinstance(terminator, ir.Ret) or not terminator.operands:
        return False
    code = terminator.operands[0]
    return code.type == ir.IntType(32) and not (isinstance(code, ir.Constant) and code.constant in _SUCCESS)


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
