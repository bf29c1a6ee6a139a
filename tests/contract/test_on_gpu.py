"""Every frontend, every program, one verdict: launched on a GPU."""

from __future__ import annotations

import pytest
from contract import joined
from contract.device import record
from contract.programs import PROGRAMS, Program
from contract.verdict import verdict

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("name", joined.ON_GPU)
def test_a_frontend_records_what_the_simulator_records(name: str, program: Program) -> None:
    frontend = joined.load(name)
    reason = frontend.available() or joined.absent(frontend, program)
    if reason:
        pytest.skip(reason)
    assert verdict(program, record(program, frontend.ready)) == []
