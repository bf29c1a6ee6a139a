"""The command line except `run`: output, and errors as one line with an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

import kscope
import kscope_sim
from kscope import cli
from kscope.capture import file
from kscope.cli.common.server import Server
from kscope.instrument import registry
from kscope.util import bounded_reading

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]


def kernel(warp: kscope_sim.Warp) -> None:
    for turn in range(12):
        with kscope.region("load", value=turn):
            warp.work(9000)


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with kscope.profile(tmp_path / "some.kscope"):
        kscope_sim.launch(kernel, grid=2, block=64)
    return tmp_path / "some.kscope"


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The error line of a refused command; problems of the capture may precede it."""
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if "nothing is recorded on " not in line]
    assert len(lines) == 1 and lines[0].startswith("kscope: "), captured.err
    return lines[0]


def _process(*argv: str, cwd: Path, **more: object) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "kscope", *argv], cwd=cwd, env=env, **{**pipes, **more})  # type: ignore[call-overload, no-any-return]


def test_summary_prints_a_line_per_region(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", str(capture)]) == 0
    assert "load" in capsys.readouterr().out


def test_summary_as_json_can_be_read_by_a_program(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", str(capture), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "load" in json.dumps(found)


def test_summary_with_strict_fails_where_records_were_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kscope.profile(tmp_path / "lost.kscope", records=4):
        kscope_sim.launch(kernel, grid=1, block=32)
    assert cli.main(["summary", str(tmp_path / "lost.kscope")]) == 0
    assert "overwritten" in capsys.readouterr().out
    assert cli.main(["summary", "--strict", str(tmp_path / "lost.kscope")]) == 3


@pytest.mark.parametrize("name", ["x.pftrace", "x.json", "x.json.gz"])
def test_export_writes_the_format_of_the_suffix(capture: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(capture), "-o", name]) == 0
    assert Path(name).stat().st_size > 0
    assert f"{name}: 48 records" in capsys.readouterr().out


def test_export_obeys_the_record_limit(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(capture), "-o", "x.json", "--limit", "10"]) == 0
    assert "x.json: 10 of 48 records" in capsys.readouterr().out
    assert cli.main(["export", str(capture), "-o", "x.json", "--limit", "all", "--force"]) == 0
    assert "x.json: 48 records" in capsys.readouterr().out
    assert "limit=0" in _refused(capsys, "export", str(capture), "-o", "x.json", "--limit", "0")


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nosuch.kscope" in _refused(capsys, "summary", str(tmp_path / "nosuch.kscope"))


def test_a_folder_is_not_accepted_as_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path) in _refused(capsys, "summary", str(tmp_path))


@pytest.mark.parametrize("command", [["summary"], ["export", "-o", "x.json"]], ids=["summary", "export"])
@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x00" * 100, b"PK\x03\x04 a zip"], ids=["empty", "text", "zeros", "zip"]
)
def test_a_file_that_is_not_a_capture_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], data: bytes
) -> None:
    (tmp_path / "x.kscope").write_bytes(data)
    assert "x.kscope" in _refused(capsys, *command, str(tmp_path / "x.kscope"))


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_capture_that_is_cut_short_is_refused(capture: Path, capsys: pytest.CaptureFixture[str], part: float) -> None:
    whole = capture.read_bytes()
    capture.write_bytes(whole[: int(len(whole) * part)])
    assert "some.kscope" in _refused(capsys, "summary", str(capture))


def test_a_capture_of_an_unknown_version_is_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture.write_bytes(capture.read_bytes().replace(b"kscope capture 1\n", b"kscope capture 9\n", 1))
    assert "9" in _refused(capsys, "summary", str(capture))


def test_a_capture_with_a_flipped_bit_is_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = bytearray(capture.read_bytes())
    whole[len(whole) // 2] ^= 1
    capture.write_bytes(whole)
    assert "some.kscope" in _refused(capsys, "summary", str(capture))


def test_an_unknown_suffix_lists_the_known_ones(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ".pftrace" in _refused(capsys, "export", str(capture), "-o", "x.doc")


def test_outputs_in_missing_folders_are_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in _refused(capsys, "export", str(capture), "-o", "nowhere/x.json")


def test_an_export_never_replaces_its_own_capture(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = capture.read_bytes()
    Path("soft.json").symlink_to(capture)
    Path("hard.json").hardlink_to(capture)
    for name in (str(capture), "soft.json", "hard.json"):
        assert "which this command reads; give another name" in _refused(capsys, "export", str(capture), "-o", name)
    assert capture.read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--launch", "9"), "launch 9: not in this trace, which has launch 0"),
        (("--sm", "500-502"), "sm 500-502: not in this trace, which has sm "),
        (("--device", "1"), "device 1: not in this trace, which has device 0"),
        (("--warp", "4-2"), "--warp 4-2: 4-2 has no number, expected 2-4"),
        (("--time", "5s:6s"), "time 5,000,000.000 to 6,000,000.000 us: not in this trace, which has 0."),
        (("--names", "a,b"), "--names a,b: only for other profilers' data"),
    ],
)
@pytest.mark.parametrize("command", [("summary",), ("assert", "dropped == 0")], ids=lambda command: command[0])
def test_impossible_filters_are_refused(
    command: tuple[str, ...], flags: tuple[str, ...], message: str, capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in _refused(capsys, command[0], str(capture), *command[1:], *flags)


def test_filters_without_a_common_match_are_reported(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = kscope.load(capture)
    first = trace.filter(sm=int(trace.sm[0]))
    other = next(block for block in trace.block.tolist() if block not in set(first.block.tolist()))
    assert cli.main(["summary", str(capture), "--sm", str(trace.sm[0]), "--block", str(other)]) == 0
    assert "no records: the filters matched nothing" in capsys.readouterr().out


def test_code_files_of_other_types_are_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.sh").write_text("#!/bin/sh\n")
    assert "k.sh: neither a cubin nor a disassembly" in _refused(capsys, "trust", "ipc", str(capture), "--code", "k.sh")


@pytest.mark.parametrize("name", ["report.html", "run.pftrace"])
def test_view_refuses_filters_for_exported_files(name: str, capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text("")
    assert f"{name}: --region, --sm apply only to captures" in _refused(
        capsys, "view", "--no-browser", name, "--region", "zz", "--sm", "99"
    )
    Path(name).unlink()
    Path(name).mkdir()
    assert f"{name} is a folder" in _refused(capsys, "view", "--no-browser", name)


OPENING = [
    ("summary",), ("gaps",), ("overlap",), ("occupancy",), ("pipeline",), ("path", "--edge", "load:load"),
    ("assert", "dropped == 0"),
    ("trust overhead", "--cost", "28"), ("export", "-o", "x.json"), ("compare", "some.kscope"),
    ("trust ipc", "--code", "x.sass"), ("view", "--no-browser"),
]  # fmt: skip


@pytest.mark.parametrize("command", OPENING, ids=lambda command: command[0])
def test_every_command_opens_a_capture_that_is_trusted_to_be_large(
    command: tuple[str, ...], capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.sass").write_text("\t.section .text.k,\n /*0000*/ EXIT ;\n")
    monkeypatch.setattr(file, "FREE_BYTES", 1024)
    monkeypatch.setattr(bounded_reading, "memory_budget", lambda: 1024)
    monkeypatch.setattr(Server, "serve_forever", lambda *_, **__: None)
    names, more = command[0].split(), command[1:]
    assert "pass --max-bytes" in _refused(capsys, *names, capture.name, *more)
    assert "--max-bytes much: expected a size" in _refused(capsys, *names, "--max-bytes", "much", capture.name, *more)
    assert cli.main([*names, "--max-bytes", "64MiB", capture.name, *more]) in (0, 1), capsys.readouterr().err


def test_max_bytes_is_refused_for_foreign_buffers(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = _refused(capsys, "summary", "--max-bytes", "1G", "--from", "flashinfer", str(capture))
    assert "--max-bytes 1G: only for captures" in message


def test_non_utf8_names_print_as_valid_json(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["summary", str(capture), "--json", "--rename", "load=caf\udce9"]) == 0
    assert json.loads(capsys.readouterr().out)["regions"][0]["region"] == "caf?"


def test_a_pipe_in_the_place_of_a_capture_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.kscope")
    process = _process("summary", "x.kscope", cwd=tmp_path)
    try:
        _, message = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert message == "kscope: x.kscope: not a regular file; expected a capture written by kscope\n"


def test_a_closed_output_pipe_is_not_an_error(capture: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _process("summary", str(capture), cwd=capture.parent, stdout=writing)
    os.close(writing)
    _, message = process.communicate()
    assert process.returncode == 141
    assert message == ""


@pytest.mark.parametrize("argv", [["dance"], ["summary"], ["trust", "overhead"], ["run"]], ids=" ".join)
def test_an_invalid_command_line_is_one_line_that_names_the_help(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    command = "kscope" if argv == ["dance"] else f"kscope {' '.join(argv)}"
    assert message.startswith(f"{command}: ")
    assert message.endswith(f" ({command} --help)\n")


def test_run_without_a_script_does_not_expect_arguments_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run"])
    assert "the following arguments are required: SCRIPT (" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"kscope {kscope.__version__}\n"


def test_the_demo_runs_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--on", "sim", "-o", "d.pftrace"]) == 0
    message = capsys.readouterr().out
    assert "simulated" in message
    assert "wait for tile" in message
    assert (tmp_path / "d.pftrace").stat().st_size > 1000
    assert cli.main(["summary", "kscope-demo.kscope"]) == 0


def test_the_demo_replaces_no_capture_but_its_own(capture: Path) -> None:
    before = capture.read_bytes()
    for _ in range(2):
        assert cli.main(["demo", "--on", "sim", "-o", "some.html"]) == 0
    assert capture.read_bytes() == before
    assert sorted(path.name for path in capture.parent.iterdir()) == ["kscope-demo.kscope", "some.html", "some.kscope"]


def test_the_demo_lists_missing_languages_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "installed", lambda entry: not entry.extra)
    missing = ", ".join(name for name, entry in registry.TABLE.items() if entry.extra)
    assert cli.main(["demo"]) == 0
    assert capsys.readouterr().out.startswith(f"not installed: {missing} (see kscope doctor)\nrecording ")


def test_the_demo_checks_its_output_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown suffix; expected one of" in _refused(capsys, "demo", "-o", "x.doc")


def test_unknown_demo_frontends_list_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"expected one of {', '.join(registry.TABLE)}" in _refused(capsys, "demo", "--on", "fortran")


def test_the_doctor_lists_installed_and_missing_parts(tmp_path: Path) -> None:
    process = _process("doctor", cwd=tmp_path)
    message, errors = process.communicate()
    assert process.returncode == 0, message + errors
    lines = {line[4:].split()[0]: line[:2] for line in message.splitlines()}
    assert lines["kscope"] == lines["numpy"] == lines["sim"] == "ok"
    assert {"gpu", "timer", "region", "triton"} <= {name.rstrip("0123456789") for name in lines}
