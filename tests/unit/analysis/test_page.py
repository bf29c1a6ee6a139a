"""docs/analysis.md lists every command, and those that need only a capture run."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from kscope import cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "analysis.md").read_text()
COMMANDS = sorted({*re.findall(r"`(kscope [^`\n]+)`", PAGE), *re.findall(r"^    (kscope .+)$", PAGE, re.M)})


def test_the_page_shows_every_command_of_the_analysis() -> None:
    shown = {command.removeprefix("kscope trust ").removeprefix("kscope ").split()[0] for command in COMMANDS}
    assert {
        "summary",
        "gaps",
        "overlap",
        "path",
        "occupancy",
        "compare",
        "assert",
        "overhead",
        "perturb",
        "ipc",
    } <= shown


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_can_be_typed(command: str) -> None:
    argv = shlex.split(command)[1:]
    needed = {"compare": ["a", "b"], "assert": ["x.kscope", "a > b"], "overlap": ["x.kscope"], "gaps": ["x.kscope"]}
    if len(argv) == 1:
        argv += needed.get(argv[0], ["x.kscope"])
    if argv == ["path", "x.kscope"]:
        argv += ["--edge", "a:b"]
    if argv[-1] == "--help" or argv[0] == "doctor":
        return
    assert callable(cli.parser().parse_args(argv).command)


def test_the_pages_examples_run_on_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "golden" / "warp_specialized.kscope", "run.kscope")
    edges = next(command for command in COMMANDS if "--edge ask:wait_ready" in command)
    assert cli.main(shlex.split(edges)[1:]) == 0
    assert "path goes through" in capsys.readouterr().out
    for command in ("summary run.kscope --by sm", "gaps run.kscope", "overlap run.kscope", "occupancy run.kscope"):
        assert f"kscope {command}" in COMMANDS
        assert cli.main(command.split()) == 0
        assert capsys.readouterr().out


def test_functions_that_the_page_names_are_there() -> None:
    elsewhere = ("trace", "run", "matmul", "load", "kscope", "cp", "wait_group")
    named = {pair for pair in re.findall(r"`([\w.]+)\.(\w+)`", PAGE) if pair[0].split(".")[0] not in elsewhere}
    assert len(named) > 10
    for module, function in named:
        assert callable(getattr(import_module(f"kscope.analysis.{module}"), function)), (module, function)
