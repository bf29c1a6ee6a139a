"""Runs code in a forked child, which exits before pytest notices; its output."""

from __future__ import annotations

import os
from collections.abc import Callable


def refusal(attempt: Callable[[], object], refused: type[Exception]) -> str:
    """The text of the error that a forked child gets, or "no error"."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            attempt()
            os.write(write, b"no error")
        except refused as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as message:
        return message.read()
