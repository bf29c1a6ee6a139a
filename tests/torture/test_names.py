"""Hostile names print as text and never become paths."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import synth

from kscope import cli
from kscope.capture.model import KernelMeta, Problem, RegionMeta

ODD = (
    "\x1b[2J\x1b]0;owned\x07",
    "line\nbreak\rback",
    "\x9b31m",
    "\u202eright to left",
    "tab\tbell\x07",
    "nul\0nul",
    "\x7f\x08\x08",
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMMANDS = (
    ["summary", "x.kscope"], ["summary", "x.kscope", "--by", "sm"], ["summary", "x.kscope", "--markdown"],
    ["gaps", "x.kscope"], ["overlap", "x.kscope"], ["occupancy", "x.kscope"], ["compare", "x.kscope", "x.kscope"],
    ["trust", "overhead", "x.kscope", "--cost", "28"], ["assert", "x.kscope", "dropped == 0"],
    ["assert", "x.kscope", "nobody.p99 < 1us"], ["path", "x.kscope", "--edge", f"{ODD[0]}:{ODD[1]}"],
    ["summary", "x.kscope", "--region", "nothing"], ["summary", "x.kscope", "--kernel", ODD[0]],
    ["export", "x.kscope", "-o", "x.csv"], ["trust", "ipc", "x.kscope", "--code", "x.sass"],
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a capture of hostile names, and code of a kernel with such a name."""
    records = [synth.Rec(name, 2000 + 100 * at, 2050 + 100 * at) for at, name in enumerate(ODD)]
    capture = synth.capture(synth.slab(records), names=ODD)
    module = capture.modules[0]
    module = replace(
        module,
        kernels=(KernelMeta(ODD[0], module.kernels[0].id, 3),),
        regions=tuple(RegionMeta(name, None, ODD[1]) for name in ODD),
    )
    device = replace(capture.devices[0], name=ODD[2])
    problems = tuple(Problem("odd", name) for name in ODD)
    replace(capture, modules=(module,), devices=(device,), problems=problems).save(tmp_path / "x.kscope")
    (tmp_path / "x.sass").write_text("\t.section .text.k\x1b[2J,\n /*0000*/ EXIT ;\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words)))
def test_no_command_sends_control_characters_to_a_terminal(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) in (0, 1, 2)
    out, err = capsys.readouterr()
    assert out or err
    assert not CONTROL.findall(out), out
    assert not CONTROL.findall(err), err
