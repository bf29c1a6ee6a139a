"""Saves a session's capture without hiding an error of the program."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from pathlib import Path

from ..capture.capture import Capture
from . import capture_path

FATAL = "driver"
"""Kind of the problem of a device that failed during the session."""


def exited_normally(error: BaseException | None) -> bool:
    """True if the program exited normally."""
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))


def save(capture: Capture, path: Path, error: BaseException | None) -> Path:
    """Save a capture to `path`, or beside it if the program or a device failed.

    Args:
        capture: the capture.
        path: the file for a good capture.
        error: the exception that ended the program. A note that names the file is added to it.

    Returns:
        The file that was written.

    Raises:
        OSError: it cannot be written.
    """
    fatal = [problem for problem in capture.problems if problem.kind == FATAL]
    normally = exited_normally(error)
    target = path if normally and not fatal else capture_path.failed_path(path)
    capture.save(target)
    if normally and fatal:
        warnings.warn(f"{fatal[0].text}; saved as {target}", RuntimeWarning, stacklevel=5)
    elif sys.version_info >= (3, 11) and error is not None:
        error.add_note(f"kscope: what was recorded before the error is in {target}")
    return target


def add_failure(error: BaseException, failure: Exception) -> None:
    """Add to the program's error that nothing was saved; warn if the note would not be shown."""
    text = f"kscope: what was recorded before the error is lost: {failure}"
    if sys.version_info >= (3, 11) and not isinstance(error, SystemExit):
        error.add_note(text)
    else:
        with suppress(RuntimeWarning):  # as an error it would hide the program's
            warnings.warn(text, RuntimeWarning, stacklevel=5)
