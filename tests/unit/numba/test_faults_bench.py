"""The kernel of bench/faults.py in Numba: what waits or is open is stored when a warp enters it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from contract import numba_offline
from numba import int32, int64, void

from kscope.capture import layout
from kscope.instrument.recording import Recording

BENCH = Path(__file__).resolve().parents[3] / "bench"


def test_each_place_of_a_fault_is_stored_at_its_enter(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    frontend.enable(Recording(survive="shm"))
    import faults_numba

    words = int32[::1]
    signature = void(words, words, words, int64, int64, int64, int64)
    text = numba_offline.built(faults_numba.pipeline, signature, (9, 0)).get_lto_ptx(cc=(9, 0))
    for name in ("wait_empty", "wait_full", "check", "poke"):
        assert f"or.b32 ks_y, ks_y, {layout.name_hash(name) << 4};" in text, name
