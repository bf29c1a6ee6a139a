"""Warnings about regions that a compiler changed: when a kernel is compiled, and when it comes from a disk cache."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from ..capture.model import Problem
from ..marks.operations import PIPELINE
from .selection.auto import UNMATCHED

_warned: set[str] = set()


def warn(problems: Iterable[Problem]) -> None:
    """Warn about the problems of a compiled kernel."""
    for problem in problems:
        _warned.add(problem.text)
        warnings.warn(f"kscope: {problem.text}", stacklevel=3)


def warn_once(problems: Iterable[Problem]) -> None:
    """Warn about the problems of a loaded kernel, except for those about which this process has warned."""
    for problem in problems:
        if problem.kind not in (UNMATCHED, PIPELINE) and problem.text not in _warned:
            _warned.add(problem.text)
            warnings.warn(f"kscope: {problem.text}", stacklevel=3)
