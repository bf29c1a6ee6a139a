"""Every error that kscope raises, in one tree.

    KscopeError
    +-- UsageError (ValueError)      a call that cannot mean anything: bad name, option, path, nesting of sessions
    |   +-- PairingError             marks that do not pair: open at return, open on one path, exit without enter
    +-- MissingError (ImportError)   a dependency, DSL or GPU that is not there; says the command that cures it
    +-- UnsupportedError             a DSL version, hook point or kind of function that kscope cannot instrument
    +-- FormatError (ValueError)     a file that is no capture, is cut short, or has an unknown layout version
    +-- DriverError (RuntimeError)   the CUDA driver said no; carries its name and number

Problems *in data* (overwritten records, unfinished warps, lost claims) are no errors: they are
values in Trace.problems. What lives here: classes. What does not: messages, which stand where the
facts are.
"""

from __future__ import annotations


class KscopeError(Exception):
    """Base of everything that kscope raises on purpose."""


class UsageError(KscopeError, ValueError):
    """A call that cannot mean anything; the message says what was typed, what was expected, what to do."""


class PairingError(UsageError):
    """Marks of a kernel that do not pair on every path."""


class MissingError(KscopeError, ImportError):
    """Something that is not installed or not present; the message says the command that cures it."""


class UnsupportedError(KscopeError):
    """A version, hook point or kind of function that cannot be instrumented."""


class FormatError(KscopeError, ValueError):
    """A file that cannot be read as a capture."""


class DriverError(KscopeError, RuntimeError):
    """The CUDA driver refused a call."""

    def __init__(self, call: str, name: str, number: int, advice: str = "") -> None:
        self.call, self.name, self.number = call, name, number
        super().__init__(f"{call} failed: {name} ({number})" + (f". {advice}" if advice else ""))
