"""Unannotated CUDA C++ kernels: a tiled matrix product, and a sum with early exits."""

from __future__ import annotations

SOURCE = r"""
extern "C" __global__ void product(const float* a, const float* b, float* c, int size) {
    __shared__ float left[16][17], right[16][16];
    int row = 16 * blockIdx.y + threadIdx.y, column = 16 * blockIdx.x + threadIdx.x;
    float total = 0;
    for (int k = 0; k < size; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * size + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * size + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i)
            total += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[row * size + column] = total;
}

extern "C" __global__ void leaves(int* out, int n) {
    int total = 0;
    for (int k = 0; k < n; ++k) {
        if (k == 5) {
            out[blockIdx.x] = total;
            return;
        }
        if (k == 2) continue;
        total += k;
    }
    out[blockIdx.x] = -1;
}
"""
