"""The work of a region: bytes and floating-point operations of one execution, as its mark declares them.

It is part of the mark's name, after WORK: ``load<WORK>bytes=4096,flops=value``, where `value` is the record's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import UsageError

VALUE: Literal["value"] = "value"
"""An amount that is known only when the kernel runs: the value of each record."""
Amount = int | Literal["value"]
_KINDS = ("bytes", "flops")
_MOST = 1 << 62


@dataclass(frozen=True)
class Work:
    """The work of one execution; None for undeclared amounts.

    Attributes:
        bytes: from and to memory.
        flops: floating-point operations; a multiply-add is two.
    """

    bytes: Amount | None = None
    flops: Amount | None = None

    def __str__(self) -> str:
        """``bytes=4096,flops=value``; empty without work."""
        return ",".join(f"{kind}={amount}" for kind in _KINDS if (amount := getattr(self, kind)) is not None)


def parse(text: str) -> Work | None:
    """Inverse of str(Work()); None for other text."""
    found: dict[str, Amount] = {}
    for part in text.split(",") if text else ():
        kind, _, amount = part.partition("=")
        if kind not in _KINDS or kind in found or not (amount == VALUE or (amount.isascii() and amount.isdecimal())):
            return None
        found[kind] = VALUE if amount == VALUE else min(int(amount), _MOST)
    return Work(**found)


def with_work(name: object, value: Any, **amounts: Any) -> tuple[str, Any]:
    """The text of a mark's work, and the value that its records have.

    Args:
        name: the region's, for messages.
        value: the user's value=.
        amounts: bytes and flops: integers known at compile time, or values that are known when the kernel runs.

    Raises:
        UsageError: a negative or fractional amount, or more run-time values than a record has.
    """
    found: dict[str, Amount] = {}
    for kind, amount in amounts.items():
        constant = getattr(amount, "value", amount)
        if amount is None or constant is None:
            continue
        of_value = isinstance(constant, str) and constant == VALUE
        if isinstance(constant, (bool, np.bool_, float, np.floating, str)) and not of_value:
            raise UsageError(f"kscope.region({name!r}, {kind}={constant!r}): expected a whole number of {kind}")
        if isinstance(constant, (int, np.integer)):
            if not 0 <= int(constant) <= _MOST:
                raise UsageError(f"kscope.region({name!r}, {kind}={constant}): expected 0 or more, and at most 2^62")
            found[kind] = int(constant)
            continue
        if not of_value:
            if value is not None:
                raise UsageError(
                    f"kscope.region({name!r}): a record has one value, and value= and {kind}= are both known only when "
                    f"the kernel runs; pass {kind}='value' if they are the same"
                )
            value = amount
        found[kind] = VALUE
    return str(Work(**found)), value
