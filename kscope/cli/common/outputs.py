"""Checks on files that commands write, and the exit code of doubtful data."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError
from ...util.atomic_files import replacing, target

STRICT = 3
"""Exit code of --strict if the data has problems."""


def check_distinct(flag: str, output: str | Path, *inputs: str | Path | None) -> None:
    """Check that an output file is not an input file, by any path.

    Args:
        flag: the flag that names the output, for the error.
        output: the file to write.
        *inputs: the files that the command reads; None is ignored.

    Raises:
        UsageError: the output is one of the inputs.
    """
    for one in inputs:
        if one is not None and _same(Path(output), Path(one)):
            raise UsageError(f"{flag} {output}: the same file as {one}, which this command reads; give another name")


def text(flag: str, output: Path, written: str) -> None:
    """Write text to a file, atomically if it is a regular file.

    Args:
        flag: the flag that names the output, for the error.
        output: the file to write.
        written: the text.

    Raises:
        UsageError: the folder does not exist.
    """
    if not target(output).parent.is_dir():
        raise UsageError(f"{flag} {output}: the folder does not exist; create it first")
    with replacing(output) as file:
        file.write(written.encode())


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one does not exist
        return False
