"""Compiled examples with their regions compute correct results: PTX executed with numbers (tests/simt). Runs in
Triton's interpreter and Numba's simulator are in test_examples.py; this is the text that a GPU gets."""

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
EXAMPLES = ROOT / "examples"
NUMBERS = np.random.default_rng(0)
TILE = 64

PTX = """
import sys
from importlib import import_module
example, kept = sys.argv[1:]
module = import_module(example)
if example.startswith("cute"):
    text = module.compile_only("90a", f"--keep-ptx --dump-dir {kept}").__ptx__
elif example.startswith("numba"):
    from contract import numba_offline
    from numba import float32, void
    from kscope.instrument import registry
    from kscope.instrument.recording import Recording
    registry.frontend("numba").enable(Recording())
    matrices = [float32[:, ::1]] * (2 if "softmax" in example else 3)
    kernel = module.softmax if "softmax" in example else module.gemm
    text = numba_offline.built(kernel, void(*matrices), (9, 0)).get_lto_ptx(cc=(9, 0))
else:
    text = module.compile_only().asm["ptx"]
open(kept + "/kernel.ptx", "w").write(text if isinstance(text, str) else text.decode())
"""


def compiled(example: str, folder: Path) -> str:
    """The PTX of an example's kernel, prepared; CUDA C++ by nvcc."""
    made = folder / "kernel.ptx"
    if example.startswith(("cuda", "cupy")):
        if shutil.which("nvcc") is None:
            pytest.skip("needs nvcc")
        source, options = cuda_source(example, folder)
        command = ["nvcc", "-O3", "-arch=sm_90", "-DKSCOPE=1", f"-I{kscope.cuda_include()}", *options, "-ptx"]
        subprocess.run([*command, str(source), "-o", str(made)], check=True)
    else:
        environment = {"PYTHONPATH": ":".join([*PATHS, str(EXAMPLES)]), "TRITON_DEFAULT_FP_FUSION": "1"}
        command = [sys.executable, "-c", PTX, example, str(folder)]
        subprocess.run(command, check=True, cwd=folder, env={**os.environ, **environment})
    return made.read_text()


def cuda_source(example: str, folder: Path) -> tuple[Path, list[str]]:
    """The file of a CUDA C++ example and its options: CuPy's are strings in a file that only CuPy can import."""
    if example.startswith("cuda"):
        return EXAMPLES / f"{example}.cu", []
    text = (EXAMPLES / f"{example}.py").read_text()
    source = folder / "kernel.cu"
    source.write_text(text.split('r"""')[1].split('"""')[0])
    return source, ["-DTILE=64", "-DDEPTH=16", "-DEACH=4"]


def machine(text: str, memory: Memory, *params: int) -> Machine:
    module = parse(text)
    (name,) = module.kernels
    return Machine(module, name, memory, params)


def passed(example: str, at: int, matrix: Floats) -> list[int]:
    """A matrix as an argument; nine words in Numba."""
    return [0, 0, matrix.size, 4, at, *matrix.shape, *matrix.strides] if example.startswith("numba") else [at]


def _languages(kernel: str) -> list[object]:
    found = ("triton", "gluon", "cute", "numba", "cupy")
    return [
        pytest.param(
            language + ("_tiled" if language == "cute" and kernel == "gemm" else "") + f"_{kernel}",
            id=f"{language}_{kernel}",
            marks=pytest.mark.skipif(
                language != "cupy" and find_spec(NEEDS[language]) is None, reason=f"needs {NEEDS[language]}"
            ),
        )
        for language in found
    ]


@pytest.mark.parametrize("example", _languages("softmax"))
def test_the_softmax_equals_numpys(tmp_path: Path, example: str) -> None:
    memory, x = Memory(), NUMBERS.standard_normal((2, 8192), dtype=np.float32)
    at, to = memory.put(x), memory.put(np.zeros_like(x))
    made = machine(compiled(example, tmp_path), memory, *passed(example, at, x), *passed(example, to, x), x.shape[1])
    for row in range(len(x)):
        run(made, (row, 0, 0), (256, 1, 1), (len(x), 1, 1))
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(memory.get(to, x), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("example", _languages("gemm"))
def test_a_tile_of_a_product_is_right(tmp_path: Path, example: str) -> None:
    size = 1024 if example.startswith("cute") else 128  # a compile-time constant of CuTe's layouts
    memory, threads = Memory(), (16, 16, 1) if example.startswith(("numba", "cupy")) else (256, 1, 1)
    a, b = (NUMBERS.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    places = [memory.put(matrix) for matrix in (a, b, np.zeros_like(a))]
    arguments = [word for at in places for word in passed(example, at, a)]
    made = machine(compiled(example, tmp_path), memory, *arguments, size)
    run(made, (1, 0, 0), threads, (size // TILE, size // TILE, 1))
    expected = np.zeros_like(a)
    expected[:TILE, TILE : 2 * TILE] = a[:TILE] @ b[:, TILE : 2 * TILE]
    np.testing.assert_allclose(memory.get(places[2], a), expected, rtol=1e-3, atol=1e-3)


def test_a_product_by_bulk_copies_is_right(tmp_path: Path) -> None:
    chunks, blocks = 23, 3
    memory, (a, b) = Memory(), NUMBERS.random((2, 1024 * chunks), dtype=np.float32)
    total = np.zeros(1, np.float32)
    places = [memory.put(vector) for vector in (a, b, total)]
    made = machine(compiled("cuda_tma", tmp_path), memory, *places, chunks)
    for block in range(blocks):
        run(made, (block, 0, 0), (288, 1, 1), (blocks, 1, 1))
    np.testing.assert_allclose(memory.get(places[2], total)[0], np.dot(a.astype(np.float64), b), rtol=1e-5)
