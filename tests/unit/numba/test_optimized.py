"""The PTX after link-time optimization records what the simulator does: run by the interpreter, as without LTO."""

from __future__ import annotations

from typing import Any

import pytest
from contract import frontend_numba, interpreted
from contract.programs import BY_NAME, Program
from contract.verdict import verdict

NAMES = ("nested", "loop", "early_exit", "helper", "partial_warps", "strategies", "values", "roles", "live")


@pytest.mark.parametrize("program", [BY_NAME[name] for name in NAMES], ids=NAMES)
def test_optimized_kernels_record_what_the_simulator_records(frontend: Any, program: Program) -> None:
    frontend.enable(program.recording)
    texts = frontend_numba.compile(program, 90, lto=True)
    assert verdict(program, interpreted.record(program, texts, frontend_numba)) == []
