"""The CUDA C++ kernel of `kscope demo`: a tiled matrix product."""

SIZE, TILE = 512, 32
TITLE = f"{SIZE} x {SIZE} x {SIZE} in fp32, {(SIZE // TILE) ** 2} blocks of {TILE * TILE // 32} warps"
SOURCE = r"""
#include <kscope.cuh>

extern "C" __global__ void product(const float* a, const float* b, float* c, int size) {
    KSCOPE_KERNEL();
    __shared__ float left[32][33], right[32][32];
    int row = 32 * blockIdx.y + threadIdx.y, column = 32 * blockIdx.x + threadIdx.x;
    float total = 0;
    {
        KSCOPE_REGION("mainloop");
        for (int k = 0; k < size; k += 32) {
            {
                KSCOPE_REGION_V("load", k);
                left[threadIdx.y][threadIdx.x] = a[row * size + k + threadIdx.x];
                right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * size + column];
                __syncthreads();
            }
            KSCOPE_REGION("multiply");
            for (int i = 0; i < 32; ++i) total += left[threadIdx.y][i] * right[i][threadIdx.x];
            __syncthreads();
        }
    }
    KSCOPE_REGION("store");
    c[row * size + column] = total;
}
"""
