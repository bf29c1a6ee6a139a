"""The contract's programs with placement="schedule": in every language the records are those of placement="fence".

What cannot be recorded in machine code is recorded as with "fence"; the reasons are listed at the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from contract import joined
from contract.device import record
from contract.judge import compare
from contract.programs import PROGRAMS, Program
from contract.verdict import lanes, verdict

import kscope
from kscope.capture.capture import Capture
from kscope.sass.encoding import forms
from kscope.tracedata.info import info

from .conftest import ROW

LANGUAGES = ("triton", "gluon", "cupy", "core", "numba", "cute")
MARKED = [one for one in PROGRAMS if one.state != "plain" and not one.recording.survive]


@pytest.fixture(scope="module", autouse=True)
def _known() -> None:
    import torch

    major, minor = torch.cuda.get_device_capability()
    if not forms.has_forms(10 * major + minor):
        pytest.skip("its encodings are not known")


def refused(capture: Capture) -> dict[str, str]:
    """Kernel -> why it is not recorded in machine code. Every kernel that recorded is, or has a reason."""
    trace = kscope.decode(capture)
    why = {
        one.kernel: one.text.partition("placement='schedule' ")[2] for one in trace.problems if one.kind == "placement"
    }
    found = {kernel: why.get(kernel, "") for kernel, one in info(trace).placement.items() if one == "fence"}
    assert all(found.values()), f"kernels without a reason: {found}"
    return found


@pytest.mark.filterwarnings("ignore:(?s)kscope.*is recorded with placement='fence':UserWarning")
@pytest.mark.filterwarnings("ignore:(?s)kscope.*never ran on a device:UserWarning")
@pytest.mark.parametrize(
    "program", [one for one in PROGRAMS if one.state != "plain" and not one.recording.survive], ids=lambda one: one.name
)
@pytest.mark.parametrize("name", LANGUAGES)
def test_the_records_are_those_of_the_other_placement(
    name: str, program: Program, record_property: Callable[[str, object], None]
) -> None:
    frontend = joined.load(name)
    if reason := frontend.available() or joined.absent(frontend, program):
        pytest.skip(reason)
    schedule = replace(program, recording=replace(program.recording, placement="schedule"))
    fence, got = record(program, frontend.ready), record(schedule, frontend.ready)
    assert verdict(schedule, got) == []
    if not program.some:  # where the machine decides which lanes record
        assert list(compare(lanes(program, fence), lanes(schedule, got))) == []
    for kernel, why in refused(got).items():
        record_property(ROW, (f"{name} {program.name} {kernel}", f"refused: {why}"))
