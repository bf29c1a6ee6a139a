"""The plain form of a kernel that CuPy loaded with marks, for launches outside sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from kscope.instrument.two_forms import Grid, Mirror, is_larger

from .hook_points import driver, runtime

_SMS = 16
"""cudaDevAttrMultiProcessorCount."""


@dataclass(frozen=True)
class PlainForm:
    """The plain form, and the data that makes it interchangeable.

    Attributes:
        function: CuPy's function.
        mirror: gives it the attributes of the form with marks.
        is_larger: it needs more registers or shared memory than the form with marks, so fewer of its blocks may fit.
    """

    function: Any
    mirror: Mirror
    is_larger: bool

    @staticmethod
    def of(function: Any, marked: int) -> PlainForm:
        """marked: the handle of the form with marks."""
        get = driver.funcGetAttribute
        mirror = Mirror(get, driver.funcSetAttribute, marked, function.ptr)
        return PlainForm(function, mirror, is_larger(get, function.ptr, than=marked))


def grid_of(args: tuple[Any, ...], options: dict[str, Any]) -> Grid:
    """The grid of a launch, from the arguments of CuPy's function."""
    blocks = args[0] if args else options["grid"]
    cooperative = args[5] if len(args) > 5 else options.get("enable_cooperative_groups", False)
    blocks = tuple(max(1, count) for count in blocks)
    return Grid(blocks, runtime.deviceGetAttribute(_SMS, runtime.getDevice()), bool(cooperative))


def fitting(handle: int, args: tuple[Any, ...], options: dict[str, Any]) -> Callable[[], int]:
    """A function that returns how many blocks of a launch fit on an SM in this form."""

    def count() -> int:
        block = args[1] if len(args) > 1 else options["block"]
        shared = args[3] if len(args) > 3 else options.get("shared_mem", 0)
        return int(driver.occupancyMaxActiveBlocksPerMultiprocessor(handle, prod(block), shared))

    return count
