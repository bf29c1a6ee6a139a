"""The contract's kernels in CuPy: CUDA C++ in a RawModule, compiled by NVRTC."""

from __future__ import annotations

from dataclasses import replace

import cupy
from contract import interpreted
from contract.cuda_programs import FUNCTIONS, SOURCE, source_of
from contract.programs import Program
from cupy.cuda import compiler, runtime

import kscope
from kscope import frontends
from kscope.capture import Capture
from kscope_cuda import nvrtc

NEEDS_GPU = True
ABSENT: dict[str, str] = {}
KERNELS = FUNCTIONS
OPTIONS = ("-I" + kscope.cuda_include(),)


def available() -> str | None:
    try:
        return None if runtime.getDeviceCount() else "needs an NVIDIA GPU"
    except runtime.CUDARuntimeError:
        return "needs an NVIDIA GPU"


def run(program: Program) -> Capture:
    return record(program, cupy.RawModule(code=SOURCE, options=OPTIONS))


def record(program: Program, module: cupy.RawModule) -> Capture:
    """Prepared and launched once before the session, so that a graph can be captured."""
    recording, sampling = program.recording, program.sampling
    compiled = {name: getattr(recording, name) for name in ("strategy", "records", "fill", "clock", "live")}
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(64, cupy.int32)
    cupy.cuda.Device().synchronize()

    def launch() -> None:
        for name in program.kernels:
            module.get_function(FUNCTIONS[name])(program.grid, program.block, (out, cupy.int32(program.n)))

    kscope.enable(**compiled)
    try:
        with stream:
            launch()
            stream.synchronize()
            graph = None
            if program.replays > 1:
                stream.begin_capture()
                launch()
                graph = stream.end_capture()
            with kscope.profile(**compiled, blocks=sampling.blocks, warps=sampling.warps) as prof:
                for _ in range(program.replays):
                    if graph is None:
                        launch()
                    else:
                        graph.launch()
                stream.synchronize()
    finally:
        kscope.disable()
    return named(prof.capture)


def named(capture: Capture) -> Capture:
    """The capture with the kernels called as in the contract."""
    names = {theirs: ours for ours, theirs in FUNCTIONS.items()}
    return replace(capture, modules=tuple(interpreted.renamed(module, names) for module in capture.modules))


def compile(program: Program, arch: int) -> list[str]:
    """The program's kernels as PTX with every mark lowered, without a GPU."""
    frontend = frontends.frontend("cupy")
    frontend.enable(program.recording)
    options = (f"-arch=compute_{arch}", "-std=c++17", *nvrtc.options(program.recording))
    try:
        return [_ptx(name, options) for name in program.kernels]
    finally:
        frontend.disable()


def _ptx(kernel: str, options: tuple[str, ...]) -> str:
    ptx, _ = compiler._NVRTCProgram(source_of(kernel), f"{kernel}.cu", method="ptx").compile(options)
    return str(ptx.decode())
