"""The PTX after link-time optimization records what the simulator does: run by the interpreter, as without LTO."""

from __future__ import annotations

from typing import Any

import pytest
from contract import frontend_numba, frontend_numba_ptx, frontend_sim, interpreted
from contract.judge import judge
from contract.programs import PROGRAMS, Program
from contract.reader import read

NAMES = ("nested", "loop", "early_exit", "helper", "partial_warps", "strategies", "values", "roles", "live")


@pytest.mark.parametrize(
    "program", [program for program in PROGRAMS if program.name in NAMES], ids=lambda one: one.name
)
def test_optimized_kernels_record_what_the_simulator_records(frontend: Any, program: Program) -> None:
    frontend.enable(program.recording)
    texts = [frontend_numba.ptx(frontend_numba.KERNELS[name], name, (9, 0), lto=True) for name in program.kernels]
    got = interpreted.record(program, texts, program.block, arguments=frontend_numba_ptx.arguments)
    assert judge(read(frontend_sim.run(program)), read(got)) == []
