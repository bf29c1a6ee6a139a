"""A loaded kernel in two forms, the plain one and the one with marks; each launch runs one. The program has the handle
of one form, sets its attributes, and may size a grid by its occupancy; the other form must then behave the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..capture.model import Problem

MAX_DYNAMIC_SHARED, CARVEOUT, NON_PORTABLE_CLUSTER, CLUSTER_SCHEDULING = 8, 9, 14, 15
CLUSTER = 11, 12, 13
"""Attributes of a CUfunction that a program may set, by the driver's numbers; a cluster has width, height and depth."""
SETTABLE = (MAX_DYNAMIC_SHARED, CARVEOUT, NON_PORTABLE_CLUSTER, CLUSTER_SCHEDULING, *CLUSTER)
REGISTERS, STATIC_SHARED = 4, 1
"""Resources that a block of a kernel needs of an SM."""
_MOST_BLOCKS = 32
"""Limit of blocks that run at once on an SM of any GPU."""


@dataclass
class Mirror:
    """Gives one form the attributes of the other.

    Attributes:
        get: returns an attribute of a function; raises for one that the driver does not know.
        set: sets the attribute of a function to a value.
        of: the handle of the program's form.
        to: the handle of the other form.
    """

    get: Callable[[int, Any], int]
    set: Callable[[Any, int, int], object]
    of: Any
    to: Any
    _known: tuple[int, ...] = field(init=False)
    _values: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._known = tuple(one for one in SETTABLE if self._is_known(one))
        self._values = [self.get(one, self.to) for one in self._known]

    def update(self) -> None:
        """Call it before a launch of the other form: there is no notification when a program sets an attribute."""
        get, of = self.get, self.of
        values = [get(one, of) for one in self._known]
        if values != self._values:
            for one, value, before in zip(self._known, values, self._values, strict=True):
                if value != before:
                    self.set(self.to, one, value)
            self._values = values

    def _is_known(self, attribute: int) -> bool:
        try:
            self.get(attribute, self.of)
            self.get(attribute, self.to)
        except Exception:  # the binding's own
            return False
        return True


def is_larger(get: Callable[[int, Any], int], one: Any, than: Any) -> bool:
    """True if a form needs more registers or shared memory than another, so that fewer of its blocks may fit.

    Args:
        get: returns an attribute of a function.
        one, than: the handles of the forms.
    """
    return any(get(needed, one) > get(needed, than) for needed in (REGISTERS, STATIC_SHARED))


@dataclass(frozen=True)
class Grid:
    """The grid of a launch.

    Attributes:
        blocks: their number, along each axis.
        sms: the SMs of its device.
        cooperative: it is launched cooperatively.
    """

    blocks: tuple[int, ...]
    sms: int
    cooperative: bool = False

    def is_sized_by(self, other: Callable[[], int], instead_of: Callable[[], int]) -> bool:
        """True if its blocks may wait for one another, which end only if they run all at once: they do in one form
        of the kernel, and do not in the other.

        Such a grid is cooperative, or has the same number of blocks for each SM.

        Args:
            other, instead_of: return how many blocks of a form fit on an SM.
        """
        count = prod(self.blocks)
        if not (self.cooperative or count % self.sms == 0) or count > self.sms * _MOST_BLOCKS:
            return False
        return instead_of() * self.sms < count <= other() * self.sms


def runs_plain_problem(kernel: str) -> Problem:
    """The problem of a kernel whose launches run plain in a session, because the other form could never end."""
    text = (
        f"kernel {kernel}: a launch is not recorded: the GPU can run all its blocks at once only without regions, so a "
        "cooperative launch would fail, and a barrier of the grid would never end; launch fewer blocks, or mark fewer "
        "regions, which need fewer registers"
    )
    return Problem("cooperative", text, kernel=kernel)
