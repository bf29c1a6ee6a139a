"""`kscope demo --on cuda`: a matrix product, built by nvcc and loaded as a library."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from kscope.errors import UsageError

from . import demo_kernel
from .demo_kernel import SIZE, SOURCE, TILE
from .frontend import arm
from .nvcc_flags import flags

TITLE = f"a CUDA C++ matrix product on this GPU, built by nvcc: {demo_kernel.TITLE}"

RUN = f"""
extern "C" int run() {{
  const int size = {SIZE}, tile = {TILE};
  float* memory = nullptr;
  if (int error = cudaMalloc(&memory, 3 * sizeof(float) * size * size)) return error;
  cudaMemset(memory, 0, 3 * sizeof(float) * size * size);
  float *a = memory, *b = a + size * size, *c = b + size * size;
  product<<<dim3(size / tile, size / tile), dim3(tile, tile)>>>(a, b, c, size);
  const cudaError_t error = cudaDeviceSynchronize();
  cudaFree(memory);
  return error;
}}
"""


def obstacle() -> str:
    """Reason why the demo cannot run; empty if it can."""
    return "" if shutil.which("nvcc") else "nvcc is not on PATH"


def run() -> None:
    """Build the library, arm it, and launch its kernel once."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        source, built = Path(folder, "product.cu"), Path(folder, "product.so")
        source.write_text(SOURCE + RUN, encoding="utf-8")
        options = "-O3", "-arch=native", *flags(), "-shared", "-Xcompiler", "-fPIC"
        command = ["nvcc", *options, str(source), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        library = ctypes.CDLL(str(built))
        arm(library)
        if error := library.run():
            raise UsageError(f"the kernel failed: cudaError {error}")
