"""Every error that kscope raises, in one tree.

    KscopeError
    +-- UsageError (ValueError)      an invalid call: name, option, path, nested sessions
    |   +-- PairingError             unbalanced marks: open at return, open on one path, exit without enter
    +-- MissingError (ImportError)   a dependency, DSL or GPU is missing; the message names the remedy
    +-- UnsupportedError             a DSL version, hook point or kind of function that kscope cannot instrument
    +-- FormatError (ValueError)     a file that is not a capture, is truncated, or has an unknown layout version
    +-- DriverError (RuntimeError)   a CUDA driver call failed; has its name and number

Problems *in data* (overwritten records, unfinished warps, lost claims) are not errors but values in Trace.problems.
"""

from __future__ import annotations


class KscopeError(Exception):
    """Base class of all kscope errors."""


class UsageError(KscopeError, ValueError):
    """An invalid call. The message has the argument, the expected one, and a remedy.

    Attributes:
        where: place in a kernel's source with which the message begins; None if it has none.
    """

    where: str | None = None


class PairingError(UsageError):
    """Marks of a kernel that do not pair on every path."""


class MissingError(KscopeError, ImportError):
    """A dependency, kernel language or GPU is missing. The message names the command that installs it."""


class UnsupportedError(KscopeError):
    """A version, hook point or kind of function that kscope cannot instrument."""


class FormatError(KscopeError, ValueError):
    """A file that is not a valid capture or table."""


class DriverError(KscopeError, RuntimeError):
    """A CUDA driver call failed.

    Attributes:
        call: the function that failed, such as "cuMemAlloc".
        name: the error's name, such as "CUDA_ERROR_OUT_OF_MEMORY".
        number: the error's number.

    Args:
        call, name, number: see the attributes.
        advice: what to do, for the message; "" for none.
    """

    def __init__(self, call: str, name: str, number: int, advice: str = "") -> None:
        self.call, self.name, self.number = call, name, number
        super().__init__(f"{call} failed: {name} ({number})" + (f". {advice}" if advice else ""))
