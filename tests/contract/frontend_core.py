"""The contract's kernels through cuda.core: CUDA C++, compiled and armed by kscope_cuda.core.

Without a GPU nothing is compiled here, because cuda.core queries the driver's version before it calls NVRTC. The source
is the same as CuPy's NVRTC gets; tests/unit/cupy/test_core.py compiles some of it over a fake driver.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from contract.cuda_programs import FUNCTIONS, source_of
from contract.device import no_gpu, with_stream
from contract.programs import Program, State
from cuda import core as cuda_core
from cuda.bindings import driver

from kscope.instrument.recording import Recording
from kscope_cuda import core

NEEDS_GPU = True
ABSENT: dict[str, str] = {}
KERNELS = FUNCTIONS


available = no_gpu


@lru_cache(256)
def _kernel(name: str, arch: str, recording: Recording, state: State) -> Any:
    """Compile with the current recording state, and arm."""
    code = core.compile(source_of(name), cuda_core.ProgramOptions(std="c++17", arch=arch))
    core.arm(code)
    return code.get_kernel(FUNCTIONS[name])


def ready(program: Program) -> Callable[[], None]:
    device: Any = cuda_core.Device(0)
    device.set_current()
    stream = device.create_stream()
    kernels = {name: _kernel(name, f"sm_{device.arch}", program.recording, program.state) for name in program.kernels}
    out = device.allocate(256, stream=stream)
    stream.sync()
    driver.cuMemsetD32(int(out.handle), 0, 64)
    config = cuda_core.LaunchConfig(grid=program.grid, block=program.block)

    def launch() -> None:
        for name in program.kernels:
            cuda_core.launch(stream, config, kernels[name], int(out.handle), np.int32(program.n))

    return with_stream(launch, int(stream.handle), program.replays)
