"""Knocks at one door for as long as it is told, with what coverage teaches it: `make fuzz DOOR=capture SECONDS=60`.

Needs atheris (a venv of its own). What it found stands in .cache/fuzz/<door>; a defect leaves its bytes there as
crash-..., and `python tests/torture/fuzz.py DOOR FILE` runs them again.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kscope", "kscope_cuda"]):
    from torture import doors


def main() -> None:
    name, rest = sys.argv[1], sys.argv[2:]
    door = doors.DOORS[name]
    warnings.simplefilter("error")  # as in the tests: numpy's overflows are defects
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def knock(data: bytes) -> None:
            door(data, work)

        spelled = work / "dictionary"
        spelled.write_text("".join(f'"{escaped(word)}"\n' for word in sorted(vocabulary(name)) or [b"kscope"]))
        atheris.Setup([sys.argv[0], f"-dict={spelled}", *rest], knock)
        atheris.Fuzz()


def vocabulary(name: str) -> set[bytes]:
    """The corpus' words, as a fuzzing dictionary."""
    files = (path for path in doors.corpus() if path.parent.name == name)
    return {word for file in files for word in re.findall(rb"[\w.:=,<>*%+-]{2,40}", file.read_bytes())}


def escaped(word: bytes) -> str:
    """As libFuzzer's dictionaries have it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
