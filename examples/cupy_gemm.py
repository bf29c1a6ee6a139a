"""A matrix product with tiles in shared memory, in CUDA C++ through CuPy: do loads or arithmetic dominate? The same
kernel as *_gemm.py in other languages, with the same regions.

    python examples/cupy_gemm.py

On a GPU: multiplies two 1024 x 1024 matrices, checks the product against numpy, writes gemm.kscope, and prints one
line per region. Without one: compiles the kernel for sm_90.
"""

from __future__ import annotations

import cupy
import numpy as np
from shared import show

import kscope
import kscope_cuda

SIZE, TILE, EACH = 1024, 64, 4
"""A block computes TILE x TILE numbers, each of its threads EACH x EACH of them."""

SOURCE = r"""
#include <kscope.cuh>

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int size) {
    KSCOPE_KERNEL();
    __shared__ float left[TILE][DEPTH + 1], right[DEPTH][TILE];
    int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float total[EACH][EACH] = {};
    for (int k = 0; k < size; k += DEPTH) {
        {
            KSCOPE_REGION_V("load", k);
            for (int i = thread; i < TILE * DEPTH; i += threads) {
                left[i / DEPTH][i % DEPTH] = a[(row + i / DEPTH) * size + k + i % DEPTH];
                right[i / TILE][i % TILE] = b[(k + i / TILE) * size + column + i % TILE];
            }
            __syncthreads();
        }
        KSCOPE_REGION("multiply");
        // explicit: the assembler unrolls large kernels less, and regions make kernels larger
        #pragma unroll
        for (int i = 0; i < DEPTH; ++i)
            for (int y = 0; y < EACH; ++y)
                for (int x = 0; x < EACH; ++x)
                    total[y][x] += left[threadIdx.y * EACH + y][i] * right[i][threadIdx.x * EACH + x];
        __syncthreads();
    }
    KSCOPE_REGION("store");
    for (int y = 0; y < EACH; ++y)
        for (int x = 0; x < EACH; ++x)
            c[(row + threadIdx.y * EACH + y) * size + column + threadIdx.x * EACH + x] = total[y][x];
}
"""
DEPTH = 16
OPTIONS = (f"-DTILE={TILE}", f"-DDEPTH={DEPTH}", f"-DEACH={EACH}", "-I" + kscope.cuda_include())

gemm = cupy.RawKernel(SOURCE, "gemm", options=OPTIONS)


def compile_only(arch: int = 90, name: str = "gemm", source: str = SOURCE, options: tuple[str, ...] = OPTIONS) -> bytes:
    """Without a GPU: compile the kernel, with its regions, for a given target. CuPy itself needs a driver, so this
    calls NVRTC. Returns the cubin."""
    from cuda.bindings import nvrtc

    kscope.enable()
    compilation = kscope_cuda.Compilation()
    flags = [f"-arch=compute_{arch}", *compilation.options(), *options]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], [])
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, error
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytearray(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    cubin = compilation.lower(bytes(ptx), f"sm_{arch}")
    kscope.disable()
    print(f"no GPU here: {name} compiled for sm_{arch} with its regions, {len(cubin)} bytes")
    return cubin


def run() -> int:
    """Launch once and check the result; returns the number of records."""
    numbers = np.random.default_rng(0)
    left, right = (numbers.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(2))
    a, b = cupy.asarray(left), cupy.asarray(right)
    c = cupy.empty_like(a)
    grid, block = (SIZE // TILE, SIZE // TILE), (TILE // EACH, TILE // EACH)
    gemm(grid, block, (a, b, c, np.int32(SIZE)))
    np.testing.assert_allclose(c.get(), left @ right, rtol=1e-3, atol=1e-3)
    # 8 warps of every block record the store, and two regions in each iteration
    return grid[0] * grid[1] * 8 * (1 + 2 * SIZE // DEPTH)


def main() -> None:
    if not cupy.is_available():
        compile_only()
        return
    with kscope.profile("gemm.kscope") as prof:
        expected = run()
    show(prof.trace, expected, "gemm")


if __name__ == "__main__":
    main()
