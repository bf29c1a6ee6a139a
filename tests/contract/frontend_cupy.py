"""The contract's kernels in CuPy: CUDA C++ in a RawModule, compiled by NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import cupy
from contract.cuda_programs import FUNCTIONS, source_of
from contract.cuda_programs import REFUSED as REFUSED
from contract.programs import Program
from cupy.cuda import compiler, runtime

import kscope
from kscope_cuda import nvrtc

NEEDS_GPU = True
FRONTEND = "cupy"
ABSENT: dict[str, str] = {}
KERNELS = FUNCTIONS
OPTIONS = ("-I" + kscope.cuda_include(),)


def available() -> str | None:
    try:
        return None if runtime.getDeviceCount() else "needs an NVIDIA GPU"
    except runtime.CUDARuntimeError:
        return "needs an NVIDIA GPU"


def ready(program: Program) -> Callable[[], None]:
    modules = {name: cupy.RawModule(code=source_of(name), options=OPTIONS) for name in program.kernels}
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(64, cupy.int32)
    cupy.cuda.Device().synchronize()

    def launch() -> None:
        for name in program.kernels:
            modules[name].get_function(FUNCTIONS[name])(program.grid, program.block, (out, cupy.int32(program.n)))

    with stream:
        launch()
        stream.synchronize()
        graph = None
        if program.replays > 1:
            stream.begin_capture()
            launch()
            graph = stream.end_capture()

    def go() -> None:
        with stream:
            for _ in range(program.replays):
                if graph is None:
                    launch()
                else:
                    graph.launch()
            stream.synchronize()

    return go


def compile(program: Program, arch: int) -> list[str]:
    reported = nvrtc.options(None if program.state == "plain" else program.recording)
    return [_ptx(name, (f"-arch=compute_{arch}", "-std=c++17", *reported)) for name in program.kernels]


def assemble(program: Program, arch: int) -> None:
    """Compile to cubins."""
    options = (f"-arch=sm_{arch}", "-std=c++17", *nvrtc.options(program.recording))
    for name in program.kernels:
        compiler._NVRTCProgram(source_of(name), f"{name}.cu", method="cubin").compile(options)


@lru_cache(256)
def _ptx(kernel: str, options: tuple[str, ...]) -> str:
    ptx, _ = compiler._NVRTCProgram(source_of(kernel), f"{kernel}.cu", method="ptx").compile(options)
    return str(ptx.decode())
