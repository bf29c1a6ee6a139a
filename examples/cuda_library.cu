// The sum of many numbers, tile by tile: the next tile is copied to shared memory while this one is added.
// A plain CUDA C++ library: examples/cuda_library.py builds it with nvcc, and records its kernel.
#include <cuda_pipeline.h>
#include <kscope.cuh>

constexpr int THREADS = 256, BLOCKS = 264, TILE = 4 * THREADS;

// The sum over all threads of a block, in its first thread.
__device__ float across(float value, float* shared) {
  KSCOPE_REGION("across");
  for (int lane = 16; lane; lane /= 2) value += __shfl_down_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < THREADS / 32 ? shared[threadIdx.x] : 0;
  for (int lane = THREADS / 64; lane; lane /= 2) value += __shfl_down_sync(~0u, value, lane);
  return value;
}

__global__ void __launch_bounds__(THREADS) sum(const float4* in, float* out, int tiles) {
  KSCOPE_KERNEL();
  __shared__ float4 tile[2][THREADS];
  __shared__ float shared[32];
  float total = 0;
  auto copy = [&](int which, int into) {
    if (which < tiles) __pipeline_memcpy_async(&tile[into][threadIdx.x], &in[which * THREADS + threadIdx.x], 16);
    __pipeline_commit();
  };
  copy(blockIdx.x, 0);
  for (int now = blockIdx.x, from = 0; now < tiles; now += gridDim.x, from ^= 1) {
    {
      KSCOPE_REGION_V("wait", now);  // a copy is issued at once; its time shows at the wait
      copy(now + gridDim.x, from ^ 1);
      __pipeline_wait_prior(1);
    }
    KSCOPE_REGION("add");
    const float4 x = tile[from][threadIdx.x];
    total += x.x + x.y + x.z + x.w;
  }
  total = across(total, shared);
  if (threadIdx.x == 0) atomicAdd(out, total);
}

// The sum of `count` numbers in host memory; count is a multiple of TILE. Returns the CUDA runtime's error.
extern "C" int total(const float* values, int count, float* result) {
  float *in = nullptr, *out = nullptr;
  int error = cudaMalloc(&in, sizeof(float) * count);
  if (!error) error = cudaMalloc(&out, sizeof(float));
  if (!error) error = cudaMemcpy(in, values, sizeof(float) * count, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemset(out, 0, sizeof(float));
  if (!error) {
    sum<<<BLOCKS, THREADS>>>(reinterpret_cast<float4*>(in), out, count / TILE);
    error = cudaMemcpy(result, out, sizeof(float), cudaMemcpyDeviceToHost);
  }
  cudaFree(in);
  cudaFree(out);
  return error;
}
