"""Coverage-guided fuzzing of one target for a given time: `make fuzz TARGET=capture SECONDS=60`.

Needs atheris (in its own venv). Inputs with new coverage are kept in .cache/fuzz/<target>; a defect leaves its input
there as crash-..., and `python tests/torture/fuzz.py TARGET FILE` runs it again.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kscope", "kscope_cuda"]):
    from torture import targets


def main() -> None:
    name, rest = sys.argv[1], sys.argv[2:]
    target = targets.TARGETS[name]
    warnings.simplefilter("error")  # as in the tests: numpy's overflows are defects
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def test_input(data: bytes) -> None:
            target(data, work)

        spelled = work / "dictionary"
        spelled.write_text("".join(f'"{escaped(word)}"\n' for word in sorted(vocabulary(name)) or [b"kscope"]))
        atheris.Setup([sys.argv[0], f"-dict={spelled}", *rest], test_input)
        atheris.Fuzz()


def vocabulary(name: str) -> set[bytes]:
    """The corpus' words, as a fuzzing dictionary."""
    files = (path for path in targets.corpus() if path.parent.name == name)
    return {word for file in files for word in re.findall(rb"[\w.:=,<>*%+-]{2,40}", file.read_bytes())}


def escaped(word: bytes) -> str:
    """Escaped for libFuzzer's dictionaries."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
