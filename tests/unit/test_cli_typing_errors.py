"""Typing errors of beginners, and the command line's answers: one line with the remedy, and no traceback."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import kscope
import kscope_sim
from kscope import cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with run.kscope, train.py and README.md."""
    path = tmp_path_factory.mktemp("typed")

    def work(warp: kscope_sim.Warp) -> None:
        with kscope.region("load"):
            warp.work(10)

    with kscope.profile(path / "run.kscope"):
        kscope_sim.launch(work, grid=2, block=32)
    (path / "train.py").write_text("print('trained')\n")
    (path / "README.md").write_text("# kernels\n")
    return path


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        ("run trian.py", "trian.py: no such file; did you mean train.py?"),
        ("run python train.py", "python: no such file; leave out the interpreter: kscope run SCRIPT"),
        ("run torchrun train.py", "torchrun: no such file, and no such launcher on the PATH"),
        ("run json", "json: no such file; for a module: kscope run -m json"),
        ("run nothing.txt", "nothing.txt: no such file"),
        ("run -m train.py", "-m train.py: no such module; for a file leave out -m"),
        ("run -m nothing_here", "-m nothing_here: no such module"),
        ("trust perturb trian.py", "trian.py: no such file; did you mean train.py?"),
        ("summary .", ".: is a folder, expected a capture; captures here: run.kscope"),
        ("summary README.md", "README.md: not a kscope capture (begins with b'# kernel'); record one with kscope run"),
        ("summary run.kscope --kernel=", "kernel '': not in this trace, which has kernel work"),
        ("summary run.kscope --by region", "by='region': each row is a region already; expected kernel, device"),
        ("assert run.kscope load<2us", "load: is a region; expected one of its numbers, such as load.p99"),
        ("assert run.kscope work<2us", "work: is a kernel; expected one of its numbers, such as work.mean_time"),
        (
            "rates run.kscope --bytes load=value",
            "--bytes load=value: its records have no value; expected load=N with a number",
        ),
        (
            "summary run.kscope --from flashinfer",
            "--from flashinfer: run.kscope is a capture of kscope; leave out --from",
        ),
        (
            "export run.kscope -o - --format cvs",
            "--format cvs: expected one of pftrace, speedscope.json, json, parquet",
        ),
        ("stalls run.kscope", "run.kscope: no samples of stalls; record with kscope run --stalls SCRIPT"),
    ],
)
def test_the_error_says_what_to_type_instead(
    typed: str, printed: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(folder))
    assert cli.main(typed.split(" ")) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"kscope: {printed}")


def test_an_empty_stdin_is_named_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert cli.main(["summary", "-"]) == 2
    assert capsys.readouterr().err == "kscope: -: truncated or empty: copy it again, or record again\n"
