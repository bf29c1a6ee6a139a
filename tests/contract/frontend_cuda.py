"""The contract's kernels in libraries that nvcc builds, with kscope.cuh in place; a library launches them itself."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from contract.cuda_nvcc import compiled, options
from contract.cuda_programs import FUNCTIONS, SOURCE, source_of
from contract.cuda_programs import REFUSED as REFUSED
from contract.device import no_gpu
from contract.programs import PROGRAMS, Program

import kscope_cuda
from kscope.capture.model import ModuleMeta

NEEDS_GPU = True
FRONTEND = "cuda"
KEPT = "KSCOPE_CONTRACT_LIBRARIES"
_ALONE = "a buffer reserved in the middle of a kernel needs kscope's own lowering"
ABSENT = {"first": _ALONE, "any_lane": _ALONE}
KERNELS = {name: function for name, function in FUNCTIONS.items() if name not in ABSENT}

# Kernels by number, in one stream; more than one time is a captured graph, so that all have one grid id.
LAUNCHER = (
    f"static void (*const KERNELS[])(int*, int) = {{{', '.join(KERNELS.values())}}};"
    + """
extern "C" int run(const int* kernels, int count, const int* shape, int n, int times) {
  static int* out = nullptr;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  int error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (!out && !error) error = cudaMalloc(&out, 256) || cudaMemset(out, 0, 256) || cudaDeviceSynchronize();
  if (times > 1 && !error) error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < count && !error; i++) {
    void* arguments[] = {&out, &n};
    const dim3 grid(shape[0], shape[1], shape[2]), block(shape[3], shape[4], shape[5]);
    error = cudaLaunchKernel((const void*)KERNELS[kernels[i]], grid, block, arguments, 0, stream);
  }
  if (times > 1 && !error) {
    error = cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&ready, graph, 0);
    for (int i = 0; i < times && !error; i++) error = cudaGraphLaunch(ready, stream);
  }
  if (!error) error = cudaStreamSynchronize(stream);
  return error;
}
"""
)


available = no_gpu


def ready(program: Program) -> Callable[[], None]:
    library = loaded(options(program.recording, program.state), program.state == "plain")
    kernels = [list(KERNELS).index(name) for name in program.kernels]
    launched = (ctypes.c_int * len(kernels))(*kernels), len(kernels), (ctypes.c_int * 6)(*program.grid, *program.block)

    def launch(times: int) -> None:
        assert library.run(*launched, program.n, times) == 0

    launch(1)
    return lambda: launch(program.replays)


@lru_cache
def loaded(reported: tuple[str, ...], plain: bool) -> ctypes.CDLL:
    """The library that is built so, armed. Its file stays: its names are read from there."""
    path = Path(tempfile.mkdtemp(prefix="kscope-"), "contract.so")
    path.write_bytes(_building()[reported].result())
    library = ctypes.CDLL(str(path))
    if not plain:
        kscope_cuda.arm(library)
    return library


@lru_cache
def _building() -> dict[tuple[str, ...], Future[bytes]]:
    """All libraries that programs need, at once: a build is seconds of one core."""
    pool = ThreadPoolExecutor(os.cpu_count())
    expected = {options(program.recording, program.state) for program in PROGRAMS if program.name not in ABSENT}
    return {reported: pool.submit(_built, reported) for reported in expected}


def _built(reported: tuple[str, ...]) -> bytes:
    kept = _kept(reported, Path(os.environ.get(KEPT, "")))
    if KEPT in os.environ and kept.exists():
        return kept.read_bytes()
    return compiled(SOURCE + LAUNCHER, (*reported, "-arch=native", "-shared", "-Xcompiler", "-fPIC"), ".so")


def _kept(reported: tuple[str, ...], folder: Path) -> Path:
    return folder / f"{sha256(repr(reported).encode()).hexdigest()}.so"


def keep(folder: Path) -> None:
    """Build all libraries into a folder; other processes find it through the environment variable KEPT."""
    for reported, built in _building().items():
        _kept(reported, folder).write_bytes(built.result())


def compile(program: Program, arch: int) -> list[str]:
    arguments = (*options(program.recording, program.state), "-ptx", f"-arch=sm_{arch}")
    return [compiled(source_of(name), arguments, ".ptx").decode() for name in program.kernels]


def described(text: str) -> tuple[ModuleMeta, ...]:
    """Names are in the file's notes, which the header emits."""
    return kscope_cuda.describe(text.encode())
