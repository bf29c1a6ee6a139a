"""Every frontend, every program, one verdict: compiled, assembled and interpreted, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from contract import frontend_sim, interpreted, joined
from contract.programs import BY_NAME, PROGRAMS, Program
from contract.verdict import verdict
from ptxvm import assemble

from kscope.capture.wire import CTL_SYMBOL

INTERPRETED = 90
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@each_program
@pytest.mark.parametrize("name", joined.COMPILERS)
def test_emitted_ptx_records_what_the_simulator_records(name: str, program: Program) -> None:
    frontend = joined.load(name)
    unknown = getattr(frontend, "NOT_INTERPRETED", {})
    reason = joined.absent(frontend, program) or "; ".join(unknown[k] for k in program.kernels if k in unknown)
    if reason:
        pytest.skip(reason)
    texts = joined.compiled(name, program, INTERPRETED)
    assert verdict(program, interpreted.record(program, texts, frontend)) == []


def _for_architectures() -> Iterator[Any]:
    """Each program for the interpreted architecture and, in turn, one other; the rest are slow tests."""
    others = [arch for arch in joined.ARCHITECTURES if arch != INTERPRETED]
    for (number, program), arch in product(enumerate(PROGRAMS), joined.ARCHITECTURES):
        often = arch in (INTERPRETED, others[number % len(others)])
        marks = () if often else (pytest.mark.slow,)
        yield pytest.param(program, arch, id=f"{program.name}-{arch}", marks=marks)


@pytest.mark.parametrize(("program", "arch"), list(_for_architectures()))
@pytest.mark.parametrize("name", joined.COMPILERS)
def test_a_program_becomes_ptx_and_sass_for(name: str, program: Program, arch: int) -> None:
    frontend = joined.load(name)
    reason = joined.absent(frontend, program)
    if arch < joined.least(frontend, program):
        reason = f"{', '.join(program.kernels)} of {name} needs sm_{joined.least(frontend, program)}"
    if reason:
        pytest.skip(reason)
    for kernel, ptx in zip(program.kernels, joined.compiled(name, program, arch), strict=True):
        marked = program.state != "plain" and kernel != "unmarked"
        assert ("%clock64" in ptx, "//kscope " in ptx) == (marked, False)
        assert program.state != "plain" or CTL_SYMBOL not in ptx
        target = re.search(r"^\.target\s+sm_(\w+)", ptx, re.M)
        assert target is not None and target[1].rstrip("af") == str(arch)
        if assemble.ptxas() is not None and not getattr(frontend, "OWN_ASSEMBLER", False):
            assert assemble.complaint(ptx, target[1]) == ""


@pytest.mark.parametrize("name", sorted({*joined.COMPILERS, *joined.ON_GPU}))
def test_every_frontend_has_exactly_the_contracts_kernels(name: str) -> None:
    frontend = joined.load(name)
    absent = {*frontend.ABSENT} - ({*BY_NAME} - {*frontend_sim.KERNELS})
    assert {*frontend.KERNELS, *absent} == {*frontend_sim.KERNELS}
    assert not {*frontend.KERNELS} & {*frontend.ABSENT}
    assert {*getattr(frontend, "NOT_INTERPRETED", {}), *getattr(frontend, "LATER", {})} <= {*frontend.KERNELS}


@each_program
def test_the_definition_is_the_same_every_time(program: Program) -> None:
    first, second = frontend_sim.run(program), frontend_sim.run(program)
    assert (first.devices[0].lines == second.devices[0].lines).all()
