"""The kernels of bench/faults.py in Triton and Gluon: what waits, traps or is open is stored when a warp enters it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kscope.capture import layout
from kscope.instrument.recording import Recording

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.mark.parametrize("language", ["triton", "gluon"])
def test_each_place_of_a_fault_is_stored_at_its_enter(
    language: str, plain_compiler: Any, frontend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    frontend.enable(Recording(survive="shm"))
    kernel = import_module(f"faults_{language}").pipeline
    types = {"flags": "*i32", "done": "*i32", "out": "*i32", "mode": "i32", "block": "i32", "slot": "i32"}
    text = plain_compiler(kernel, **types).asm["ptx"]
    stored = {name for name in ("wait_empty", "wait_full", "check", "poke", "load", "multiply")
              if f"or.b32 ks_y, ks_y, {layout.name_hash(name) << 4};" in text}  # fmt: skip
    assert {"wait_empty", "wait_full", "check", "poke"} <= stored
    assert "trap;" in text
