"""The doctor's findings where a kernel language is installed and does not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kscope.cli import doctor_checks
from kscope.errors import MissingError
from kscope.instrument import registry
from kscope.instrument.registry import Entry
from kscope.machine_code import tools


def found(name: str) -> doctor_checks.Finding:
    return next(finding for finding in doctor_checks.examine() if finding.subject == name)


def test_a_language_that_cannot_be_imported_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halflang.py").write_text("raise ImportError('libhalf.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "TABLE", {"half": Entry("halflang", "halflang:Frontend", "half")})
    finding = found("half")
    assert finding.state == "broken"
    assert "libhalf.so.1" in finding.text


def test_a_language_missing_an_import_of_its_frontend_is_reported_as_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "oldlang.py").write_text("")
    (tmp_path / "oldlang_frontend.py").write_text("from oldlang import hooks")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "TABLE", {"old": Entry("oldlang", "oldlang_frontend:Frontend", "old")})
    finding = found("old")
    assert finding.state == "broken"
    assert "cannot import name 'hooks' from 'oldlang'" in finding.text
    assert "pip install '.[old]' in a checkout of kscope" in finding.text


def test_the_doctor_reports_a_frontends_limitation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowlang.py").write_text("")
    (tmp_path / "slowlang_frontend.py").write_text(
        "from kscope.instrument.frontend import Frontend\n"
        "class Slow(Frontend):\n"
        "    name = 'slow'\n"
        "    def enable(self, recording): pass\n"
        "    def disable(self): pass\n"
        "    def limitation(self): return 'no assembler: install one'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "TABLE", {"slow": Entry("slowlang", "slowlang_frontend:Slow", "slow")})
    finding = found("slow")
    assert finding.state == "ok"
    assert finding.text == "all hook points found; no assembler: install one"


def test_the_doctor_names_a_missing_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(tool: str) -> str:
        raise MissingError(f"{tool} is not installed")

    monkeypatch.setattr(tools, "find", missing)
    finding = found("nvdisasm")
    assert finding.state == "missing" and "pip install nvidia-cuda-nvdisasm" in finding.text
    monkeypatch.setattr(tools, "find", lambda tool: f"/usr/local/cuda/bin/{tool}")
    assert found("nvdisasm") == doctor_checks.Finding("nvdisasm", "ok", "/usr/local/cuda/bin/nvdisasm")


def test_cupys_limitation_names_a_missing_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    from kscope_cuda import assembler

    monkeypatch.setattr(assembler, "ptxas", lambda *most: None)
    monkeypatch.setattr(assembler, "nvjitlink", lambda: None)
    assert "the driver assembles kernels" in registry.frontend("cupy").limitation()
    monkeypatch.setattr(assembler, "nvjitlink", lambda: assembler)
    assert "more than 64 registers are slower; install nvidia-cuda-nvcc" in registry.frontend("cupy").limitation()
    monkeypatch.setattr(assembler, "ptxas", lambda *most: "/usr/local/cuda/bin/ptxas")
    assert registry.frontend("cupy").limitation() == ""
