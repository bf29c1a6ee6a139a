"""NUMBA_ENABLE_CUDASIM=1: kernels run on the CPU and record the same as on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest
from contract.programs import PROGRAMS

SCRIPT = """
import sys
from contract import frontend_numba
from contract.device import record
from contract.programs import PROGRAMS
from contract.verdict import verdict
for program in PROGRAMS:
    if program.name in sys.argv[1:]:
        print(program.name, verdict(program, record(program, frontend_numba.ready)) or "agrees")
"""
NOT_SIMULATED = {
    "replayed": "Numba's simulator has no graphs",
    **dict.fromkeys(("first_lane", "any_lane"), "its threads run one by one: each is the first that gets there"),
    "roles": "256 threads of Python that poll for each other take most of a minute",
}

PARTS = 6  # that run side by side


def simulated(script: str, *arguments: str) -> str:
    """The output of the script with Numba's simulator."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("part", [pytest.param(n, marks=[pytest.mark.slow] if n % 2 else []) for n in range(PARTS)])
def test_a_simulated_kernel_records_what_a_compiled_one_records(part: int) -> None:
    names = [program.name for program in PROGRAMS if program.name not in NOT_SIMULATED]
    assert len(names) == len(PROGRAMS) - len(NOT_SIMULATED)
    mine = names[part::PARTS]
    assert simulated(SCRIPT, *mine).splitlines() == [f"{name} agrees" for name in mine]


def test_values_are_refused_as_for_compiled_kernels() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
@cuda.jit
def kernel(x, value):
    with kscope.region("work", value=value):
        x[0] = 1
kscope.enable()
for value in (True, "text", np.zeros(3)):
    try:
        kernel[1, 1](np.zeros(2), value)
    except kscope.UsageError as error:
        print("value= of kscope region 'work'" in str(error))
"""
    assert simulated(script) == "True\n" * 3


def test_values_of_64_bits_keep_all_their_bits() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
@cuda.jit
def kernel(x):
    kscope.instant("big", np.int64(1) << 40)
    kscope.instant("small", -(1 << 40))
    kscope.instant("unsigned", np.uint64(1 << 40))
    kscope.instant("float", np.float64(0.1))
with kscope.profile() as prof:
    kernel[1, 1](np.zeros(2))
trace = prof.trace
print({trace.region_names()[region]: value for region, value in zip(trace.region.tolist(), trace.value.tolist())})
"""
    assert eval(simulated(script)) == {
        "big": 1 << 40, "small": -(1 << 40), "unsigned": 1 << 40, "float": 0.1,
    }  # fmt: skip


def test_a_kernel_that_raises_leaves_a_lane_unfinished() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
@cuda.jit
def kernel(x):
    with kscope.region("before"):
        x[0] = 1
    with kscope.region("raises"):
        raise ValueError("so be it")
with kscope.profile() as prof:
    try:
        kernel[1, 1](np.zeros(2))
    except ValueError:
        pass
print(prof.trace.region_names(), [problem.kind for problem in prof.trace.problems])
"""
    printed = simulated(script)
    assert "before" in printed and "unfinished" in printed


def test_nothing_of_kscope_stays_in_the_simulator() -> None:
    script = """
from numba import cuda
from numba.cuda.simulator import kernel
import kscope
spaces = [vars(kernel.FakeCUDAKernel), vars(kernel.BlockThread)]
before = [dict(space) for space in spaces]
kscope.enable()
assert [dict(space) for space in spaces] != before
kscope.disable()
print([dict(space) for space in spaces] == before)
"""
    assert simulated(script) == "True\n"


def test_a_kernel_runs_plain_if_another_thread_ends_the_session_as_it_is_launched() -> None:
    script = """
import threading
from numba import cuda
import kscope
from kscope.instrument import registry

@cuda.jit
def kernel(x):
    with kscope.region("one"):
        x[0] = 5

kscope.enable()
target = registry.frontend("numba")
mark = target._mark

def ends(*arguments):
    mark(*arguments)
    thread = threading.Thread(target=kscope.disable)
    thread.start()
    thread.join()

target._mark = ends
out = cuda.to_device([0])
kernel[1, 1](out)
print(out.copy_to_host())
"""
    assert simulated(script) == "[5]\n"


def test_hooks_installed_by_other_tools_stay() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
from numba.cuda.simulator import kernel as simulator
@cuda.jit
def kernel(x):
    with kscope.region("work"):
        x[0] = 1
calls = []
def laid_over(owner, name):
    inner = getattr(owner, name)
    def theirs(*args):
        calls.append(name)
        return inner(*args)
    setattr(owner, name, theirs)
    return theirs
with kscope.profile() as prof:
    theirs = laid_over(simulator.FakeCUDAKernel, "__call__"), laid_over(simulator.BlockThread, "run")
    kernel[2, 1](np.zeros(2))
kernel[2, 1](np.zeros(2))
with kscope.profile() as again:
    kernel[2, 1](np.zeros(2))
assert theirs == (simulator.FakeCUDAKernel.__call__, simulator.BlockThread.run)
print(len(prof.trace), len(again.trace), calls.count("__call__"), calls.count("run"))
"""
    assert simulated(script) == "2 2 3 6\n"


def test_a_simulated_recording_has_a_host_clock_and_numbas_version_and_no_problem() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
@cuda.jit
def kernel(x):
    with kscope.region("work"):
        x[0] = 1
with kscope.profile() as prof:
    kernel[2, 1](np.zeros(2))
print(prof.trace.problems)
print(prof.trace.summary())
"""
    text = " ".join(simulated(script).split())
    assert text.startswith("() host clock; kscope ") and f"numba-cuda {metadata.version('numba-cuda')}" in text
    assert "aligned within" not in text


def test_a_simulated_launch_has_the_line_of_the_program() -> None:
    script = """
import numpy as np
import kscope
from numba import cuda
@cuda.jit
def kernel(x):
    with kscope.region("work"):
        x[0] = 1
def one():
    kernel[1, 1](np.zeros(2))
with kscope.profile(launch_stacks=True) as prof:
    one()
    kernel[1, 1](np.zeros(2))
print([call.line for call in prof.trace.calls])
"""
    assert simulated(script) == "['<string>(10): one', '<string>(13): <module>']\n"
