"""Follows the documentation as a newcomer does: types every command of the tutorial, and runs the README's program.

    PATH=NEW_VENV/bin:$PATH python tests/newcomer.py      with the kscope that is installed there

It works on a copy of the tutorial's folder. A command that fails, or prints a traceback, ends it with exit code 1.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs" / "tutorial"
ENTER = "cd docs/tutorial"
"""The tutorial's first command; the copy is the folder that it enters."""


def commands(page: str) -> Iterator[str]:
    """Every line of the page's bash blocks, without comments."""
    for block in re.findall(r"^```bash\n(.*?)^```", page, re.S | re.M):
        yield from (line.partition("  #")[0].strip() for line in block.splitlines() if line.strip())


def programs(page: str) -> list[str]:
    """The page's Python programs that need no GPU."""
    return re.findall(r"<!-- runs -->\n```python\n(.*?)```", page, re.S)


def typed(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a command prints. The page that it serves is opened; then Ctrl-C ends it.

    Raises:
        AssertionError: it failed.
    """
    shell = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env={**environment, "BROWSER": "true"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        # a job in the background ignores Ctrl-C, and so would its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with shell:
        assert shell.stdout is not None
        printed = ""
        if command.startswith("kscope view"):
            while not (line := shell.stdout.readline()).startswith("http"):
                printed += line
                assert line, f"{command}: printed no address\n{printed}"
            printed += line
            with urlopen(line.strip()) as page:
                assert page.status == 200
            shell.send_signal(signal.SIGINT)
        printed += shell.stdout.read()
    assert shell.returncode == 0, f"{command}: exit code {shell.returncode}\n{printed}"
    assert "Traceback" not in printed, f"{command}\n{printed}"
    return printed


def follow(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Type every command of the tutorial in a copy of its folder: command -> what it printed."""
    lines = list(commands((TUTORIAL / "README.md").read_text()))
    assert lines[0] == ENTER, f"the tutorial begins with {lines[0]!r}, expected {ENTER!r}"
    shutil.copytree(TUTORIAL, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return {line: typed(line, folder, environment) for line in lines[1:]}


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        for number, program in enumerate(programs((ROOT / "README.md").read_text())):
            script = Path(made) / f"readme{number}.py"
            script.write_text(program)
            print(typed(f"python {script}", Path(made), os.environ))
        for command, printed in follow(Path(made) / "tutorial", os.environ).items():
            print(f"$ {command}\n{printed}")


if __name__ == "__main__":
    main()
