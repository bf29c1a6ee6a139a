// The kernels of everywhere_cupy.py: layer norm, a persistent loop over tasks, attention. CUDA C++, 32-bit floats.
#include <kscope.cuh>

// The sum over all threads of a block, for every thread.
__device__ float summed(float value, float* shared) {
  for (int lane = 16; lane; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[threadIdx.x % (blockDim.x / 32)];
  for (int lane = blockDim.x / 64; lane; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  __syncthreads();
  return value;
}

extern "C" __global__ void layernorm(const float* x, const float* weight, const float* bias, float* y, int columns) {
  KSCOPE_KERNEL();
  __shared__ float shared[32];
  x += (long long)blockIdx.x * columns;
  y += (long long)blockIdx.x * columns;
  float mean = 0, scale = 0;
  {
    KSCOPE_REGION("mean");
    for (int i = threadIdx.x; i < columns; i += blockDim.x) mean += x[i];
    mean = summed(mean, shared) / columns;
  }
  {
    KSCOPE_REGION("variance");
    for (int i = threadIdx.x; i < columns; i += blockDim.x) scale += (x[i] - mean) * (x[i] - mean);
    scale = rsqrtf(summed(scale, shared) / columns + EPSILON);
  }
  KSCOPE_REGION("write");
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

// The next task, for every thread of a block.
__device__ int fetched(int* turn, int* shared) {
  if (threadIdx.x == 0) *shared = atomicAdd(turn, 1);
  __syncthreads();
  int task = *shared;
  __syncthreads();
  return task;
}

extern "C" __global__ void tasks(const float* x, int* turn, float* out, int count) {
  KSCOPE_KERNEL();
  __shared__ int shared;
  int task = fetched(turn, &shared);
  while (task < count) {
    {
      KSCOPE_REGION_V("task", task);
      float total = 0;
#pragma unroll 1
      for (int step = 0; step < EACH; ++step) {
        KSCOPE_REGION("step");
        total += x[(task * EACH + step) * blockDim.x + threadIdx.x];
      }
      out[task * blockDim.x + threadIdx.x] = total;
    }
    KSCOPE_REGION("fetch");
    task = fetched(turn, &shared);
  }
}

// A thread has a query of WIDTH numbers; the block's keys and values pass through shared memory, KEYS at a time.
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* out, int length,
                                     float factor) {
  KSCOPE_KERNEL();
  __shared__ float keys[KEYS][WIDTH], values[KEYS][WIDTH];
  long long head = (long long)blockIdx.y * length * WIDTH;
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float query[WIDTH], total[WIDTH], weights[KEYS], largest = -1e30f, norm = 0;
  for (int d = 0; d < WIDTH; ++d) query[d] = q[head + row * WIDTH + d] * factor, total[d] = 0;
#pragma unroll 1
  for (int n = 0; n < length; n += KEYS) {
    {
      KSCOPE_REGION_V("load", n);
      for (int i = threadIdx.x; i < KEYS * WIDTH; i += blockDim.x) {
        keys[i / WIDTH][i % WIDTH] = k[head + n * WIDTH + i];
        values[i / WIDTH][i % WIDTH] = v[head + n * WIDTH + i];
      }
      __syncthreads();
    }
    {
      KSCOPE_REGION("scores");
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        weights[j] = 0;
#pragma unroll
        for (int d = 0; d < WIDTH; ++d) weights[j] += query[d] * keys[j][d];
      }
    }
    {
      KSCOPE_REGION("softmax");
      float larger = largest;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) larger = fmaxf(larger, weights[j]);
      float correction = exp2f(largest - larger);
      norm *= correction;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) weights[j] = exp2f(weights[j] - larger), norm += weights[j];
#pragma unroll
      for (int d = 0; d < WIDTH; ++d) total[d] *= correction;
      largest = larger;
    }
    KSCOPE_REGION("weigh");
#pragma unroll
    for (int j = 0; j < KEYS; ++j)
#pragma unroll
      for (int d = 0; d < WIDTH; ++d) total[d] += weights[j] * values[j][d];
    __syncthreads();
  }
  KSCOPE_REGION("store");
  for (int d = 0; d < WIDTH; ++d) out[head + row * WIDTH + d] = total[d] / norm;
}
