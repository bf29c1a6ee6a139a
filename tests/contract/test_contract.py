"""Every frontend, every program, one judge. Frontends that need a GPU are skipped where there is none."""

from __future__ import annotations

import pytest
from contract import frontend_sim, joined
from contract.judge import judge
from contract.programs import PROGRAMS, Program
from contract.reader import read

ARCHITECTURES = (80, 90, 100)
RUNNING = [pytest.param(name, marks=[pytest.mark.gpu] * (name in joined.ON_GPU)) for name in joined.NAMES]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("name", RUNNING)
def test_a_frontend_records_what_the_simulator_records(name: str, program: Program) -> None:
    frontend = pytest.importorskip(f"contract.frontend_{name}", exc_type=ImportError)
    reason = frontend.available() or joined.absent(frontend, program.kernels)
    if reason:
        pytest.skip(reason)
    expected, got = read(frontend_sim.run(program)), frontend.run(program)
    assert judge(expected, read(got)) == []
    assert [device.lost for device in got.devices if device.lost] == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("name", joined.COMPILERS)
def test_a_frontend_compiles_every_program_without_a_gpu(name: str, program: Program, arch: int) -> None:
    frontend = pytest.importorskip(f"contract.frontend_{name}", exc_type=ImportError)
    reason = joined.absent(frontend, program.kernels)
    if arch not in getattr(frontend, "ARCHITECTURES", ARCHITECTURES):
        reason = f"sm_{arch} is not one of its architectures"
    if reason:
        pytest.skip(reason)
    for ptx in frontend.compile(program, arch):
        assert "//kscope " not in ptx


def test_the_definition_is_the_same_every_time() -> None:
    for program in PROGRAMS:
        first, second = frontend_sim.run(program), frontend_sim.run(program)
        assert (first.devices[0].lines == second.devices[0].lines).all()
