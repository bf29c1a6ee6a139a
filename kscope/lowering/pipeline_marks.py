"""The lanes that record the marks of auto="pipeline", and the marks' operands."""

from __future__ import annotations

from collections import Counter

from ..marks import operations
from ..marks.grammar import Mark
from ..ptx.cfg import Function
from ..ptx.operations import FIRST, ONE


def waits(mark: Mark) -> bool:
    """True if a mark is a wait of a pipeline, which each lane with a slab records: lane 0, and those that arrived or
    copied before.
    """
    return mark.how == "pipeline" and mark.act in ("enter", "exit", "success")


def is_wait(mark: Mark) -> bool:
    """True if a mark is a wait for a barrier."""
    known = operations.of_name(mark.name) if mark.how == "pipeline" else None
    return known is not None and known.operation == "wait"


def is_of_lane_0(mark: Mark) -> bool:
    """True if lane 0 records a mark of a pipeline: only it executes the operation, or the warp does so together."""
    if mark.how != "pipeline":
        return False
    known = operations.of_name(mark.name)
    return (known is not None and known.of == operations.OF_WARP) or (mark.operand or "").startswith(FIRST)


def gets_buffer(mark: Mark) -> bool:
    """True if a lane that records a mark, and has no slab yet, claims one. Waits, and commits that are not known to be
    one lane's, are recorded by lanes that have one: the other lanes usually execute the same operations.
    """
    known = operations.of_name(mark.name) if mark.how == "pipeline" else None
    if known is None or waits(mark) or is_of_lane_0(mark):
        return known is None
    return known.operation != "commit" or (mark.operand or "").startswith(ONE)


def is_number(mark: Mark) -> bool:
    """True if a mark of a pipeline has a number for its value, and no barrier."""
    known = operations.of_name(mark.name)
    return known is not None and known.operation == "bytes"


def numbers(function: Function) -> dict[int, int]:
    """A number for each mark among those of its name, by the index of its statement: with separate registers, records
    of one name can be pending together. Attempts to wait, which may continue elsewhere, are not numbered.
    """
    found: dict[int, int] = {}
    last = Counter[tuple[str, str]]()
    for i, statement in enumerate(function.statements):
        mark = statement.mark
        if mark is None or mark.how != "pipeline" or mark.act not in ("enter", "exit", "instant"):
            continue
        key = mark.name, "" if mark.act == "exit" else mark.act.replace("enter", "")
        last[key] += mark.act != "exit"
        found[i] = last[key] - 1
    return found
