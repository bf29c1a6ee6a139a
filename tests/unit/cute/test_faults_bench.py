"""The kernel of bench/faults.py in CuTe DSL: what waits, traps or is open is stored when a warp enters it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cuda.bindings import driver
from cutlass import Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor

from kscope.capture import layout
from kscope.instrument.recording import Recording

BENCH = Path(__file__).resolve().parents[3] / "bench"


def test_each_place_of_a_fault_is_stored_at_its_enter(
    frontend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    frontend.enable(Recording(survive="shm"))
    import faults_cute

    sizes = 2048, 2048, 8192
    words = [make_fake_compact_tensor(Int32, (size,), stride_order=(0,), assumed_align=16) for size in sizes]
    numbers = [Int32(number) for number in range(4)]
    options = f"--gpu-arch sm_90a --keep-ptx --dump-dir {tmp_path}"
    made = cute.compile(faults_cute.launched, *words, *numbers, driver.CUstream(0), options=options)
    text = made.__ptx__ if isinstance(made.__ptx__, str) else made.__ptx__.decode()
    for name in ("wait_empty", "wait_full", "check", "poke"):
        assert f"or.b32 ks_y, ks_y, {layout.name_hash(name) << 4};" in text, name
    assert "trap;" in text
