"""bench/watch.py measures how soon kscope watch answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_the_time_of_an_answer_is_printed_with_its_parts() -> None:
    command = [sys.executable, str(BENCH / "watch.py"), "--blocks", "2", "--runs", "1", "--pool", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, _, *rows = done.stdout.splitlines()
    assert first.startswith("64 warps, 1 MiB, ")
    assert [row.rsplit(maxsplit=6)[0] for row in rows] == [
        "kscope watch FILE, its first answer", "kscope watch --once FILE", "an interpreter alone", "imports",
        "the answer, after imports",
    ]  # fmt: skip
    assert all(float(number) > 0 for row in rows for number in row.rsplit(maxsplit=6)[1:])
