"""kscope_cuda.assembler: the assembler's options among a compiler's, and the assembler's identity."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kscope.instrument.recording import Recording
from kscope.lowering import register_budget
from kscope_cuda import assembler, nvrtc


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (["-maxrregcount=32", "-lineinfo"], ("-maxrregcount=32", "-lineinfo")),
        (["--maxrregcount", "32", "--generate-line-info"], ("-maxrregcount=32", "-lineinfo")),
        (["-Xptxas", "-O1", "--ptxas-options=-v,-O3", "-std=c++17"], ("-Xptxas=-O1", "-Xptxas=-v,-O3")),
        (["--ptxas-options", "--def-load-cache=cg"], ("-Xptxas=--def-load-cache=cg",)),
        (["-D", "lineinfo", "-I", "maxrregcount", "-DXptxas=1"], ()),
    ],
)
def test_the_assemblers_options_are_picked_from_the_compilers(options: list[str], flags: tuple[str, ...]) -> None:
    assert assembler.flags(options) == flags


def test_ptxas_gets_each_option_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[str, ...]] = []
    monkeypatch.setattr(assembler, "ptxas", lambda *most: "ptxas")
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    monkeypatch.setattr(register_budget, "assemble", lambda text, program, words: options.append(words))
    assembler.assemble.cache_clear()
    assert assembler.assemble("text", "sm_90", ("-maxrregcount=32", "-Xptxas=-O1,-dlcm=cg")) is None
    assert options == [("-arch=sm_90", "-maxrregcount=32", "-O1", "-dlcm=cg")]


def test_caches_do_not_serve_what_another_assembler_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def options_with(path: str | None) -> tuple[str, ...]:
        monkeypatch.setattr(assembler, "ptxas", lambda *most: path)
        return nvrtc.options(Recording())

    replaced = tmp_path / "ptxas"
    replaced.write_text("old")
    old = options_with(str(replaced))
    assert options_with(str(replaced)) == old
    replaced.write_text("newer")
    assert len({options_with(None), old, options_with(str(replaced)), options_with(sys.executable)}) == 4
