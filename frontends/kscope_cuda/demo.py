"""The kernel of `kscope demo --on cuda`: a matmul through shared memory, built by nvcc and loaded as a library.

What lives here: that kernel, and building it. What does not: recording and showing it (kscope/cli/demo.py).
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from kscope.errors import UsageError

from .building import flags
from .libraries import arm

TITLE = "a CUDA C++ matmul on this GPU, built by nvcc: 512 x 512 x 512 in fp32, 256 blocks of 32 warps"

SOURCE = r"""
#include <kscope.cuh>
constexpr int SIZE = 512, TILE = 32;

__global__ void matmul(const float* a, const float* b, float* c) {
  KSCOPE_KERNEL();
  __shared__ float x[TILE][TILE], y[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float total = 0;
  {
    KSCOPE_REGION("mainloop");
    for (int k = 0; k < SIZE; k += TILE) {
      {
        KSCOPE_REGION_V("load", k);
        x[threadIdx.y][threadIdx.x] = a[row * SIZE + k + threadIdx.x];
        y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * SIZE + column];
        __syncthreads();
      }
      KSCOPE_REGION("multiply");
      for (int i = 0; i < TILE; i++) total += x[threadIdx.y][i] * y[i][threadIdx.x];
      __syncthreads();
    }
  }
  KSCOPE_REGION("store");
  c[row * SIZE + column] = total;
}

extern "C" int run() {
  float* memory = nullptr;
  const size_t bytes = sizeof(float) * SIZE * SIZE;
  if (cudaMalloc(&memory, 3 * bytes)) return cudaGetLastError();
  cudaMemset(memory, 0, 3 * bytes);
  matmul<<<dim3(SIZE / TILE, SIZE / TILE), dim3(TILE, TILE)>>>(memory, memory + SIZE * SIZE, memory + 2 * SIZE * SIZE);
  const cudaError_t error = cudaDeviceSynchronize();
  cudaFree(memory);
  return error;
}
"""


def obstacle() -> str:
    """Why it cannot run here, "" where it can."""
    return "" if shutil.which("nvcc") else "nvcc is not on PATH"


def run() -> None:
    """Build the library, arm it, and launch its kernel once."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        source, built = Path(folder, "matmul.cu"), Path(folder, "matmul.so")
        source.write_text(SOURCE)
        command = [
            "nvcc",
            "-O3",
            "-arch=native",
            *flags(),
            "-shared",
            "-Xcompiler",
            "-fPIC",
            str(source),
            "-o",
            str(built),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        library = ctypes.CDLL(str(built))
        arm(library)
        if error := library.run():
            raise UsageError(f"the matmul did not run: cudaError {error}")
