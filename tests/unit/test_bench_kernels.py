"""The kernels of bench/everywhere_*.py with their regions compute correct results: PTX executed with numbers
(tests/simt). Those of the examples are in test_examples_compute.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from simt.block import run
from simt.machine import Machine
from simt.memory import Memory
from simt.text import parse

import kscope

from .test_examples import NEEDS, PATHS, ROOT

Floats = npt.NDArray[np.float32]
BENCH = ROOT / "bench"
NUMBERS = np.random.default_rng(0)
LANGUAGES = [
    pytest.param(name, marks=pytest.mark.skipif(name != "cupy" and find_spec(NEEDS[name]) is None, reason=f"no {name}"))
    for name in ("triton", "gluon", "cupy", "numba", "cute")
]
COLUMNS, TASKS, EACH, THREADS, WIDTH, QUERIES = 8192, 4096, 16, 256, 32, 128
"""Same as in bench/problems.py; compile-time constants in most languages."""


class Shaped:
    """The shape that an argument carries of an array of 32-bit numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.size = shape, int(np.prod(shape))
        self.strides = tuple(4 * int(np.prod(shape[n + 1 :])) for n in range(len(shape)))


Argument = tuple[int, "Shaped | Floats"] | int | float

PTX = """
import sys
from importlib import import_module
language, kernel, kept = sys.argv[1:]
compiled = import_module(f"everywhere_{language}").compiled
if language == "cute":
    text = compiled(kernel, 90, f"--keep-ptx --dump-dir {kept}").__ptx__
elif language == "numba":
    text = compiled(kernel).get_lto_ptx(cc=(9, 0))
else:
    text = compiled(kernel).asm["ptx"]
open(kept + "/kernel.ptx", "w").write(text if isinstance(text, str) else text.decode())
"""


def compiled(language: str, kernel: str, folder: Path) -> str:
    """The kernel's PTX, prepared; CUDA C++ by nvcc."""
    made = folder / "kernel.ptx"
    if language == "cupy":
        if shutil.which("nvcc") is None:
            pytest.skip("needs nvcc")
        options = [
            "-DKSCOPE=1",
            f"-I{kscope.cuda_include()}",
            "-DEPSILON=1e-5f",
            "-DEACH=16",
            "-DKEYS=16",
            "-DWIDTH=32",
        ]
        command = ["nvcc", "-O3", "-arch=sm_90", *options, "-ptx", str(BENCH / "everywhere.cu"), "-o", str(made)]
        subprocess.run(command, check=True)
    else:
        paths = ":".join([*PATHS, str(ROOT / "examples"), str(BENCH)])
        environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", "PYTHONPATH": paths}
        command = [sys.executable, "-c", PTX, language, kernel, str(folder)]
        subprocess.run(command, check=True, cwd=folder, env=environment)
    return made.read_text()


def machine(language: str, kernel: str, folder: Path, memory: Memory, *arguments: Argument) -> Machine:
    """The kernel with its arguments. An array is passed as (address, array); for Numba only its shape is used."""
    words: list[int] = []
    for one in arguments:
        if isinstance(one, tuple):
            at, array = one[0] % (1 << 64), one[1]
            words += [0, 0, array.size, 4, at, *array.shape, *array.strides] if language == "numba" else [at]
        elif language != "numba":
            words.append(int(np.float32(one).view(np.uint32)) if isinstance(one, float) else one)
    module = parse(compiled(language, kernel, folder))
    (name,) = [found for found in module.kernels if kernel in found]
    return Machine(module, name, memory, words)


def numbers(*shape: int) -> Floats:
    return NUMBERS.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_benchmark_layernorm_normalizes_rows(tmp_path: Path, language: str) -> None:
    memory, x, weight, bias = Memory(), numbers(2, COLUMNS), numbers(COLUMNS), numbers(COLUMNS)
    arguments = [(memory.put(one), one) for one in (x, weight, bias, np.zeros_like(x))]
    made = machine(language, "layernorm", tmp_path, memory, *arguments, COLUMNS, 1e-5)
    run(made, (1, 0, 0), (256, 1, 1), (2, 1, 1))
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    expected[0] = 0  # its block was not run
    np.testing.assert_allclose(memory.get(arguments[3][0], x), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_block_takes_tasks_until_the_queue_is_empty(tmp_path: Path, language: str) -> None:
    """The last three tasks: the arrays begin that far before allocated memory."""
    memory, x, first = Memory(), numbers(3, EACH, THREADS), TASKS - 3
    turn, out = memory.put(np.array([first], np.int32)), memory.put(np.zeros((3, THREADS), np.float32))
    from_x = (memory.put(x) - first * x[0].nbytes, Shaped((TASKS, EACH, THREADS)))
    from_turn, into = (turn, Shaped((1,))), (out - first * THREADS * 4, Shaped((TASKS, THREADS)))
    order = [from_x, from_turn, into] if language in ("cupy", "numba", "cute") else [from_x, into, from_turn]
    made = machine(language, "tasks", tmp_path, memory, *order, TASKS, EACH)
    run(made, (0, 0, 0), (THREADS, 1, 1), (1, 1, 1))
    np.testing.assert_allclose(memory.get(out, np.zeros((3, THREADS), np.float32)), x.sum(1), rtol=1e-4, atol=1e-5)
    assert memory.get(turn, np.zeros(1, np.int32))[0] == TASKS + 1


@pytest.mark.parametrize("language", [one for one in LANGUAGES if one.values != ("numba",)])
def test_the_benchmark_attention_computes_attention(tmp_path: Path, language: str) -> None:
    length = 1024 if language == "cute" else 256  # a compile-time constant of CuTe's layouts
    memory, (q, k, v) = Memory(), numbers(3, 2, length, WIDTH)
    arguments = [(memory.put(one), one) for one in (q, k, v, np.zeros_like(q))]
    scale = WIDTH**-0.5 * 1.4426950408889634
    made = machine(language, "attention", tmp_path, memory, *arguments, length, scale)
    threads = 256 if language in ("triton", "gluon") else QUERIES
    run(made, (1, 1, 0), (threads, 1, 1), (length // QUERIES, 2, 1))
    rows = slice(QUERIES, 2 * QUERIES)
    powers = np.exp((q[1, rows] @ k[1].T).astype(np.float64) * WIDTH**-0.5)
    expected = np.zeros_like(q)
    expected[1, rows] = powers / powers.sum(1, keepdims=True) @ v[1]
    np.testing.assert_allclose(memory.get(arguments[3][0], q), expected, rtol=1e-3, atol=1e-4)


SIMULATED = """
import types
import numpy as np
import problems
from numba.cuda.simulator.kernelapi import FakeCUDAModule

problems.KEYS, problems.WIDTH, problems.QUERIES = 4, 4, 32
problems.SCALE = 4**-0.5 * 1.4426950408889634
FakeCUDAModule.libdevice = types.SimpleNamespace(exp2f=lambda x: np.float32(2) ** np.float32(x))
import everywhere_numba
import kscope

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 32, 4), dtype=np.float32)
out = np.zeros_like(q)
with kscope.profile() as prof:
    everywhere_numba.attention[(1, 2), 32](q, k, v, out)
powers = np.exp(q.astype(np.float64) @ k.transpose(0, 2, 1) * 4**-0.5)
np.testing.assert_allclose(out, powers / powers.sum(2, keepdims=True) @ v, rtol=1e-3, atol=1e-4)
print(len(prof.trace))
"""


@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="no numba")
def test_numba_attention_works_in_the_simulator(tmp_path: Path) -> None:
    """Smaller ones, as a thread is one of Python's there. tests/simt has no local memory, which this kernel needs."""
    paths = ":".join([*PATHS, str(ROOT / "examples"), str(BENCH)])
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-c", SIMULATED]
    done = subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert int(done.stdout) == 2 * (8 * 4 + 1)  # a warp of each block: four regions in each of eight steps, and one
