"""The command line as a newcomer types it: groups, misspellings, missing files, stdin and stdout, remote sessions."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kscope import cli
from kscope.cli import view

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
WS = str(GOLDEN / "warp_specialized.kscope")
MOST_COMMANDS = 25


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser by name."""
    (found,) = (one.choices for one in parser._actions if isinstance(one.choices, dict))
    return dict(found)


def failed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The stderr of a command line that fails."""
    try:
        code: object = cli.main(argv)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_help_lists_every_command_once_in_a_group() -> None:
    for parser in (cli.parser(), commands(cli.parser())["trust"]):
        text = parser.format_help()
        listed = re.findall(r"^  ([a-z]+)  ", parser.epilog or "", re.M)
        assert sorted(listed) == sorted(commands(parser))
        assert all(f"  {name}  " in text for name in listed)
    assert len(commands(cli.parser())) <= MOST_COMMANDS
    titles = re.findall(r"^(\w.*):$", cli.parser().epilog or "", re.M)
    assert titles == [title for title, members in cli.GROUPS.items() if members]


def test_the_list_of_commands_imports_none() -> None:
    code = "import sys; from kscope import cli; print(cli.parser('').format_help()); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{cli.parser().format_help()}\nFalse\n"


def test_each_command_alone_has_the_flags_and_the_help_that_it_has_among_all() -> None:
    every = commands(cli.parser())
    for members in cli.GROUPS.values():
        for name in members:
            assert commands(cli.parser(name))[name].format_help() == every.pop(name).format_help()
    assert not every


@pytest.mark.parametrize("argv", [(), ("trust",)])
def test_a_line_without_a_command_prints_the_help(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    assert "what recording cost" in (text := capsys.readouterr().out) or "where the time went" in text


def test_the_page_of_commands_has_the_parsers_groups_and_commands() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert (cli.parser().epilog or "?") in page
    rows = dict(re.findall(r"^\| ([^|`]+) \| (`[^|]+`) \|", page, re.M))
    named = {word for cells in rows.values() for word in re.findall(r"`([a-z ]+)`", cells)}
    top = commands(cli.parser())
    assert list(rows) == list(cli.GROUPS)
    assert named == (top.keys() - {"trust"}) | {f"trust {name}" for name in commands(top["trust"])}


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (("sumary", WS), "did you mean summary?"),
        (("trust", "overhed", WS), "did you mean overhead?"),
        (("perturb", WS), "did you mean trust perturb?"),
        (("summary", WS, "--markdwn"), "did you mean --markdown?"),
        (("summary", WS, "--regoin=load"), "did you mean --region?"),
        (("trust", "overhead", WS, "--mesure"), "did you mean --measure?"),
        (("summary", WS, "--region", "multipy"), "did you mean multiply?"),
    ],
)
def test_a_misspelled_word_is_answered_with_the_nearest(
    argv: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert meant in failed(capsys, *argv)


def test_a_missing_file_is_answered_with_the_captures_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = failed(capsys, "summary", str(GOLDEN / "matmu.kscope"))
    assert "no such file" in error and "ring.kscope" in error and "did you mean matmul.kscope?" in error
    monkeypatch.chdir(tmp_path)
    (tmp_path / "only.kscope").touch()
    for command in (("summary",), ("info",), ("view",), ("compare", WS)):
        assert "captures here: only.kscope" in failed(capsys, *command, "nosuch.kscope")
    assert "there is no folder nowhere" in failed(capsys, "summary", "nowhere/x.kscope")


@pytest.mark.parametrize(
    ("argv", "offered"),
    [
        (
            ("path", WS),
            'expected --edge SIGNAL:WAIT, such as --edge load:wait_full, or a capture with auto="pipeline"; this trace '
            "has waits wait_empty, wait_ready, and regions ask, multiply, store",
        ),
        (("trust", "overhead", WS), "spans of multiply (512), wait_ready (512)"),
        (("export", WS), "-o FILE for these 1,296 records, with a suffix of .pftrace"),
    ],
)
def test_a_command_without_a_needed_option_says_what_the_capture_offers(
    argv: tuple[str, ...], offered: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert offered in failed(capsys, *argv)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(WS).read_bytes())))


@pytest.mark.usefixtures("stdin")
def test_a_capture_is_read_from_stdin(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "-"]) == 0
    from_stdin = capsys.readouterr().out
    assert cli.main(["summary", WS]) == 0
    assert from_stdin == capsys.readouterr().out


def test_an_export_to_stdout_is_the_file_and_nothing_else(tmp_path: Path) -> None:
    assert cli.main(["export", WS, "-o", str(tmp_path / "x.csv")]) == 0
    command = [sys.executable, "-m", "kscope", "export", "-", "-o", "-", "--format", "csv"]
    with open(WS, "rb") as capture:
        process = subprocess.run(command, stdin=capture, capture_output=True, check=True)
    assert process.stdout == (tmp_path / "x.csv").read_bytes()
    assert b"records" in process.stderr


def test_an_export_to_stdout_without_a_format_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected --format SUFFIX" in failed(capsys, "export", WS, "-o", "-")
    assert "--format csv: only for -o -" in failed(capsys, "export", WS, "-o", "x.csv", "--format", "csv")


def test_a_remote_session_gets_the_line_that_forwards_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert view.tunnel("http://127.0.0.1:8123/token/") == ""
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 22")
    assert view.tunnel("http://127.0.0.1:8123/token/").endswith("ssh -N -L 8123:127.0.0.1:8123 ada@10.0.0.5")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 2222")
    assert view.tunnel("http://127.0.0.1:8123/token/").endswith("8123:127.0.0.1:8123 -p 2222 ada@10.0.0.5")
