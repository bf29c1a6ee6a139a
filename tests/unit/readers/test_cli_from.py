"""`--from` on the command line: every command that reads a capture reads other profilers' data as well."""

from __future__ import annotations

import json
from pathlib import Path

import foreign
import numpy as np
import pytest
from foreign import Group

from kscope import cli, readers
from kscope.cli import view

SPANS = [(0, 1000, 1400), (1, 1500, 1700), (1, 1800, 1900)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    groups = [Group.of(SPANS, block=block, group=group) for block in range(3) for group in range(2)]
    np.save("buffer.npy", foreign.flashinfer(groups, 3, 2))
    np.save("nuggets.npy", foreign.nuggets([[(1000, 50, 1, 0)]] * 3, 4))
    Path("proton.json").write_bytes(foreign.proton([("k", 1, 0, 10, 900, [(0, "a", 5, 100)])]))
    return tmp_path


FROM = ("--from", "flashinfer", "--names", "load,dot")


@pytest.mark.parametrize(
    "argv",
    [
        ("summary", "buffer.npy", *FROM), ("gaps", "buffer.npy", *FROM), ("overlap", "buffer.npy", *FROM),
        ("occupancy", "buffer.npy", *FROM), ("compare", "buffer.npy", "buffer.npy", *FROM),
        ("assert", "buffer.npy", "load.p50 == 400ns", *FROM), ("export", "buffer.npy", *FROM, "-o", "x.pftrace"),
        ("export", "proton.json", "--from", "proton:mhz=2000", "-o", "x.html"),
        ("summary", "nuggets.npy", "--from", "nuggets:units=3,tid=block"),
    ],
    ids=lambda argv: argv[0] if isinstance(argv, tuple) else None,
)  # fmt: skip
def test_commands_read_foreign_buffers(argv: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*argv]) == 0, capsys.readouterr().err


def test_names_and_filters_apply_to_foreign_buffers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "buffer.npy", *FROM, "--region", "dot", "--block", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["regions"]
    assert (row["region"], row["count"], row["warp_time_ns"]) == ("dot", 4, 600)


def test_every_reader_is_offered(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "buffer.npy", "--from", "perf"]) == 2
    message = capsys.readouterr().err
    assert all(name in message for name in readers.READERS)
    with pytest.raises(SystemExit):
        cli.main(["summary", "--help"])
    message = capsys.readouterr().out
    assert all(name in message.replace("\n", "") for name in readers.READERS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nuggets:unit=3", "units, compact, tid"), ("nuggets:units=x", "expected a number"), ("proton:mhz=fast", "MHz"),
        ("nuggets:compact=3", "true or false"), ("nuggets:tid=lane", "'block' or 'warp'"),
        ("nuggets:units=99999999999999999999", "units=99999999999999999999): expected a number, 1 to"),
        ("nuggets:units=", "expected a number"), ("flashinfer:sm=maybe", "sm='maybe'): expected True, False"),
        ("flashinfer:stride=99999999999999999999", "expected a number, 0 to"), ("proton:mhz=true", "MHz"),
        *((f"{name}:device=99999999999999999999", "expected a number, 0 to 1,048,575") for name in readers.READERS),
        ("mirage:device=281474976710656", "device=281474976710656): expected a number, 0 to 1,048,575"),
    ],
)  # fmt: skip
def test_invalid_reader_options_are_refused(
    given: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["summary", "proton.json", "--from", given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("summary",), ("occupancy",), ("export", "-o", "x.pftrace"), ("export", "-o", "x.csv")], ids=" ".join
)
def test_the_largest_device_is_shown_by_every_command(command: tuple[str, ...], here: Path) -> None:
    assert cli.main([*command, "buffer.npy", "--from", "flashinfer:device=1048575,sm=false"]) == 0


def test_names_are_refused_for_proton_traces(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "proton.json", "--from", "proton", "--names", "a"]) == 2
    assert "already has names" in capsys.readouterr().err


def test_a_foreign_buffer_is_not_accepted_as_a_capture(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", "buffer.npy"]) == 2
    assert "not a kscope capture" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["buffer.npy", "proton.json"])
def test_foreign_buffers_open_as_a_report(name: str, here: Path) -> None:
    argv = ["view", name, "--no-browser", "--from", "proton" if name == "proton.json" else "flashinfer"]
    server, at = view.create_server(cli.parser().parse_args(argv))
    server.server_close()
    assert at == ""
