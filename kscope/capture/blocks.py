"""Selections of blocks, as typed: coordinates, ranges of coordinates, linear numbers.

    40  #40         the block with linear number x + nx * (y + ny * z)
    0:100  #::8     a range of linear numbers: first:stop:step, without stop
    0,8  0,8,1      a block of a 2-D or 3-D grid, by its coordinates x,y,z
    0:4,8  :,8      ranges along x, y or z

Outputs write blocks in the same form: ``40`` in a 1-D grid, else ``0,8`` or ``0,8,1``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..util.text import is_number

END = 1 << 63
"""The end of a range without one: beyond every linear number."""
GRAMMAR = "40, '#40' or 0:1000:10 (linear numbers), 0,8 or 0:4,8 (coordinates x,y,z)"
Part: TypeAlias = SupportsIndex | range | slice
BlockSelection: TypeAlias = str | Part | tuple[Part, ...] | Iterable[str | Part | tuple[Part, ...]]
"""A selection of blocks in Python: text, a linear number, a range of these, a tuple of coordinates; or a list
of such.
"""
_Int64: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """One selection of blocks.

    Attributes:
        axes: one ascending range: linear numbers; two or three: coordinates along x, y, z.
    """

    axes: tuple[range, ...]

    @staticmethod
    def of(text: str) -> Blocks:
        """Read one selection. Raises UsageError."""
        linear = text.startswith("#")
        words = text[linear:].split(",")
        if len(words) > (1 if linear else 3):
            raise UsageError(f"block {text}: expected {GRAMMAR}")
        return Blocks(tuple(_range(word, text) for word in words))

    @property
    def number(self) -> int | None:
        """The linear number that this selects; None for coordinates and ranges."""
        return self.axes[0].start if len(self.axes) == 1 and _single(self.axes[0]) else None

    def mask(self, linear: _Int64, xyz: _Int64, grid: _Int64) -> npt.NDArray[np.bool_]:
        """(n,) bool: True for selected blocks.

        Args:
            linear: (n,) linear numbers.
            xyz: (n, 3) coordinates.
            grid: (n, 3) blocks of the launch along x, y, z. Two coordinates select no block of a 3-D grid.
        """
        if len(self.axes) == 1:
            return _within(linear, self.axes[0])
        found = np.ones(len(linear), bool)
        for axis in range(3):
            if axis < len(self.axes):
                found &= _within(xyz[:, axis], self.axes[axis])
            else:
                found &= grid[:, axis] == 1
        return found

    def __str__(self) -> str:
        return ",".join(_text(axis) for axis in self.axes)


def selections(typed: BlockSelection) -> tuple[Blocks, ...]:
    """The selections of blocks in a user's argument.

    Args:
        typed: text such as "0,8", "#40" or "0:100"; a linear number, a range or a slice of them; a tuple of
            coordinates, each a number, a range or a slice; or a list of these.

    Raises:
        UsageError: anything else.
    """
    if isinstance(typed, str):
        return (Blocks.of(typed),)
    if isinstance(typed, tuple):
        if not 2 <= len(typed) <= 3:
            raise UsageError(f"block={typed!r}: expected two or three coordinates x, y, z; several blocks are a list")
        return (Blocks(tuple(_axis(part, typed) for part in typed)),)
    if isinstance(typed, Iterable) and not isinstance(typed, range):
        found = tuple(one for part in typed for one in selections(part))
        if not found:
            raise UsageError(f"block={typed!r}: expected at least one block")
        return found
    return (Blocks((_axis(typed, typed),)),)


def _range(word: str, text: str) -> range:
    parts = word.split(":")
    if len(parts) > 3 or not all(part == "" or is_number(part) for part in parts) or word == "":
        raise UsageError(f"block {text}: expected {GRAMMAR}")
    numbers = [int(part) if part else None for part in parts]
    return _axis(numbers[0] or 0 if len(parts) == 1 else slice(*numbers), text)


def _axis(part: object, typed: object) -> range:
    try:
        if isinstance(part, slice):
            stop, step = END if part.stop is None else part.stop, 1 if part.step is None else part.step
            found = range(whole_number(part.start or 0), whole_number(stop), whole_number(step))
        else:
            found = part if isinstance(part, range) else range(whole_number(part), whole_number(part) + 1)
    except (TypeError, ValueError):
        raise UsageError(f"block={typed!r}: expected {GRAMMAR}") from None
    if found.start < 0 or found.step < 1 or not found.start < found.stop <= END:
        raise UsageError(f"block={typed!r}: expected an ascending range of numbers, 0 to 2^63 - 1, that is not empty")
    return found


def whole_number(typed: object) -> int:
    """A Python int, also from a numpy integer. Raises TypeError for other types."""
    if isinstance(typed, (bool, np.bool_)) or not isinstance(typed, SupportsIndex):
        raise TypeError
    return operator.index(typed)


def _single(axis: range) -> bool:
    """len() overflows for the longest ranges."""
    return axis.start + axis.step >= axis.stop


def _within(column: _Int64, axis: range) -> npt.NDArray[np.bool_]:
    found = np.asarray(column >= axis.start)
    if axis.stop < END:
        found &= column < axis.stop
    return found & ((column - axis.start) % axis.step == 0) if axis.step > 1 else found


def _text(axis: range) -> str:
    if _single(axis):
        return str(axis.start)
    ends = f"{axis.start}:{'' if axis.stop >= END else axis.stop}"
    return ends if axis.step == 1 else f"{ends}:{axis.step}"
