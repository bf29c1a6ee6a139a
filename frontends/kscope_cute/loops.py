"""Marks in loops that CuTe's compiler transforms: a loop with vectorize=True may contain none."""

from __future__ import annotations

from typing import Any

from kscope.capture.model import Problem
from kscope.errors import UnsupportedError

from . import traced

_VECTORIZED = "cutlass.vectorize"
"""The attribute of a loop with vectorize=True."""


def unmark_vectorized(module: Any) -> tuple[Problem, ...]:
    """Remove the marks of a selection from vectorized loops.

    Returns:
        A problem for each region that loses marks.

    Raises:
        UnsupportedError: such a loop contains a region of the user's.
    """
    loops = [one for one in traced.walk(module.operation) if _is_vectorized(one)]
    marks = [one for loop in loops for one in traced.marks_in(loop)]
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
        traced.skipped(name, where, "it is in a loop with vectorize=True, which CuTe compiles only without marks")
        for name, where in places.items()
    )


def _is_vectorized(operation: Any) -> bool:
    return operation.name == "scf.for" and _VECTORIZED in operation.attributes
