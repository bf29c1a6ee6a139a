"""Files that commands write: never one that they read.

What lives here: this check, and text as a file. What does not: formats and their own checks (export/), writing whole or
not at all (replacing.py).
"""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..util.atomic_files import replacing


def apart(flag: str, output: str | Path, *inputs: str | Path | None) -> None:
    """Raises UsageError where an output is one of the files that are read, by whatever path."""
    for one in inputs:
        if one is not None and _same(Path(output), Path(one)):
            raise UsageError(f"{flag} {output}: that is {one}, which this command reads; name another file")


def text(flag: str, output: Path, written: str) -> None:
    """Writes a text. Raises UsageError where that cannot be."""
    if not output.parent.is_dir():
        raise UsageError(f"{flag} {output}: the folder does not exist; create it first")
    if output.exists() and not output.is_file():  # a pipe, a terminal: nothing takes its place
        output.write_text(written, encoding="utf-8")
        return
    with replacing(output) as file:
        file.write(written.encode())


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False
