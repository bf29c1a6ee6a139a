"""Error constructors for invalid values and predicates of marks, the same for every kernel language."""

from __future__ import annotations

from ..errors import UsageError
from .grammar import Mark


def value_refused(mark: Mark, given: str, instead: str) -> UsageError:
    """The error for a `value=` that does not fit a record.

    Args:
        mark: the mark with the value.
        given: a description of the argument, as in "a tensor of fp32[64]".
        instead: the remedy, as in "value=x.to(tl.int32)".
    """
    return UsageError(
        f"value= of kscope {mark.noun} {mark.display_name} is {given}: a record holds one integer or float of 32 or 64 "
        f"bits; pass {instead}"
    )


def predicate_refused(mark: Mark, given: str, expected: str = "one bool or integer, such as k % 8 == 0") -> UsageError:
    """The error for a `when=` that cannot be recorded.

    Args:
        mark: the mark with the predicate.
        given: a description of the argument.
        expected: a description of valid arguments.
    """
    return UsageError(f"when= of kscope {mark.noun} {mark.display_name} is {given}: expected {expected}")


def outside_kernel(name: str) -> UsageError:
    """The error for a kernel-only function called on the host.

    Args:
        name: as typed, such as "kscope.clock".
    """
    return UsageError(f"{name}() can only be called inside a kernel")
