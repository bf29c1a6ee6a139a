"""The PTX after link-time optimization records what the simulator does, run by the interpreter as without LTO; and
it is assembled as a whole program, as without regions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract import frontend_numba, interpreted, numba_offline
from contract.programs import BY_NAME, Program
from contract.verdict import verdict
from numba import cuda, float32, void

import kscope
from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument.recording import Recording
from kscope.lowering import assembler
from kscope.machine_code import tools
from kscope_numba import linking

NAMES = ("nested", "loop", "early_exit", "helper", "partial_warps", "strategies", "values", "roles")


@pytest.mark.parametrize("program", [BY_NAME[name] for name in NAMES], ids=NAMES)
def test_optimized_kernels_record_what_the_simulator_records(frontend: Any, program: Program) -> None:
    frontend.enable(program.recording)
    texts = frontend_numba.compile(program, 90, lto=True)
    assert verdict(program, interpreted.record(program, texts, frontend_numba)) == []


@cuda.jit
def unmarked(x, out):
    words, thread = cuda.shared.array((8, 32), float32), cuda.threadIdx.x
    words[thread // 32, thread % 32] = x[thread]
    cuda.syncthreads()
    total = float32(0)
    for i in range(8):
        for k in range(32):
            total += words[i, k] * total
    out[thread] = total


@cuda.jit
def marked(x, out):
    words, thread = cuda.shared.array((8, 32), float32), cuda.threadIdx.x
    words[thread // 32, thread % 32] = x[thread]
    cuda.syncthreads()
    with kscope.region("sum"):
        total = float32(0)
        for i in range(8):
            for k in range(32):
                total += words[i, k] * total
    out[thread] = total


def cubin(kernel: Any) -> bytes:
    with numba_offline.device():
        built = numba_offline.built(kernel, void(float32[::1], float32[::1]))
        return bytes(built.get_cubin(cc=numba_offline.CC).code)


@pytest.fixture(params=["none", "another release"])
def no_ptxas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "none":
        monkeypatch.setattr(assembler, "ptxas", lambda most=None: None)
    else:
        monkeypatch.setattr(assembler, "release", lambda path: (11, 0))
    for cache in (linking.assemble_program, linking.usage):
        cache.cache_clear()
    yield
    for cache in (linking.assemble_program, linking.usage):
        cache.cache_clear()


def test_shared_words_are_loaded_as_wide_as_without_regions(frontend: Any, tmp_path: Path) -> None:
    if linking.matching_ptxas() is None:
        pytest.skip("no ptxas")
    frontend.enable(Recording())
    wide = []
    for kernel in (unmarked, marked):
        path = tmp_path / "kernel.cubin"
        path.write_bytes(cubin(kernel))
        wide.append(tools.disassembly(path).count("LDS.128"))
    assert wide[1] >= wide[0] >= 4
    assert frontend.limitation() == ""


@pytest.mark.usefixtures("no_ptxas")
def test_without_ptxas_the_linker_assembles_and_the_doctor_reports_it(frontend: Any) -> None:
    assert "no ptxas of CUDA" in frontend.limitation() and "install nvidia-cuda-nvcc" in frontend.limitation()
    assert linking.ptxas_identity() == ""
    frontend.enable(Recording())
    assert CTL_SYMBOL.encode() in cubin(marked)
