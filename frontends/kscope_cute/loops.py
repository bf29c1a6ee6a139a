"""Marks in loops that CuTe's compiler transforms: with prefetch_stages=n or vectorize=True."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, scf

from kscope.capture.model import Problem
from kscope.errors import UnsupportedError

from . import traced_module

_VECTORIZED = "cutlass.vectorize"
"""The attribute of a loop with vectorize=True."""
_PURE = ("arith", "builtin", "cute", "math", "scf")
"""Dialects whose operations with results only compute."""


def unmark_vectorized(module: Any) -> tuple[Problem, ...]:
    """Remove the marks of a selection from vectorized loops.

    Returns:
        A problem for each region that loses marks.

    Raises:
        UnsupportedError: such a loop contains a region of the user's.
    """
    loops = [one for one in traced_module.walk(module.operation) if _is_vectorized(one)]
    marks = [one for loop in loops for one in traced_module.marks_in(loop)]
    for one in marks:
        if one.mark.origin == "source":
            raise UnsupportedError(
                f"region {one.mark.display_name} ({one.where}) is in a loop with vectorize=True, which CuTe compiles "
                "only without marks: put the region around the loop"
            )
    places = {one.mark.name: one.where for one in marks}
    for one in marks:
        one.operation.erase()
    return tuple(
        traced_module.skipped(
            name, where, "it is in a loop with vectorize=True, which CuTe compiles only without marks"
        )
        for name, where in places.items()
    )


def keep_exits_with_loads(module: Any) -> None:
    """Let regions that end after the last load of a pipelined loop, before anything but arithmetic, end with it.

    With prefetch_stages=n, all code up to the last TMA load runs n iterations ahead. A region around loads only would
    begin ahead and end n iterations later, so its exit is moved into one operation with that load.
    """
    for loop in [one for one in traced_module.walk(module.operation) if traced_module.is_pipelined(one)]:
        body = traced_module.children(loop)
        last = max((at for at, one in enumerate(body) if _loads(one)), default=None)
        if last is None:
            continue
        follow = takewhile(lambda one: _is_exit(one) or _is_pure(one), body[last + 1 :])
        exits = [one for one in follow if _is_exit(one)]
        if exits and not list(body[last].results):
            _join(body[last], exits)


def _join(load: Any, exits: Iterable[Any]) -> None:
    """Put the operations into an `if` that always holds: the pipeliner keeps it whole, and later passes fold it."""
    with load.context, load.location, ir.InsertionPoint(load):
        always = scf.IfOp(arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result)
        with ir.InsertionPoint(always.then_block):
            end = scf.YieldOp([]).operation
    for one in (load, *exits):
        one.move_before(end)


def _loads(operation: Any) -> bool:
    """True if an operation is a TMA load or contains one."""
    if operation.name == "cute.copy":
        return "tma_load" in str(operation.operands[0].type)
    return any(map(_loads, traced_module.children(operation)))


def _is_exit(operation: Any) -> bool:
    placed = traced_module.placed_mark(operation)
    return placed is not None and placed.mark.act == "exit" and not list(operation.operands)


def _is_pure(operation: Any) -> bool:
    """True if an operation only computes values."""
    if operation.name == "scf.yield":
        return True
    known = operation.name.partition(".")[0] in _PURE and len(operation.results) > 0
    return known and all(map(_is_pure, traced_module.children(operation)))


def _is_vectorized(operation: Any) -> bool:
    return operation.name == "scf.for" and _VECTORIZED in operation.attributes
