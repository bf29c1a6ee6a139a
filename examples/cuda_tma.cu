// The scalar product of two long vectors: one thread requests chunks from the copy engine (TMA), eight warps multiply.
// A plain CUDA C++ library for sm_90 and later: examples/cuda_tma.py builds it with nvcc, and records its kernel.
#include <kscope.cuh>

constexpr int WORKERS = 256, BLOCKS = 264, CHUNK = 4 * WORKERS, STAGES = 4;

// An mbarrier counts arrivals and bytes; a phase ends when both are complete. Consecutive phases differ in parity.

__device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ void init(unsigned long long* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ void arrive(unsigned long long* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ void arrive_and_expect(unsigned long long* barrier, int bytes) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ void wait(unsigned long long* barrier, int parity) {
  unsigned over;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (!over);
}

// From global to shared memory, without a thread's help; the barrier counts the bytes as they arrive.
__device__ void copy(float* to, const float* from, int bytes, unsigned long long* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

__global__ void __launch_bounds__(WORKERS + 32) product(const float* a, const float* b, float* out, int chunks) {
  KSCOPE_KERNEL();
  __shared__ alignas(128) float left[STAGES][CHUNK], right[STAGES][CHUNK];
  __shared__ alignas(8) unsigned long long full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(&full[stage], 1);              // the thread that requests
      init(&empty[stage], WORKERS / 32);  // one lane of each warp that multiplies
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the copy engine sees the barriers, too
  }
  __syncthreads();

  if (threadIdx.x == WORKERS) {  // the first lane of the last warp
    for (int step = 0, chunk = blockIdx.x; chunk < chunks; ++step, chunk += gridDim.x) {
      const int stage = step % STAGES, parity = step / STAGES % 2;
      {
        KSCOPE_REGION_V("room", chunk);
        wait(&empty[stage], parity ^ 1);  // the phase before the first counts as over
      }
      KSCOPE_REGION("ask");
      arrive_and_expect(&full[stage], 2 * CHUNK * sizeof(float));
      copy(left[stage], a + static_cast<size_t>(chunk) * CHUNK, CHUNK * sizeof(float), &full[stage]);
      copy(right[stage], b + static_cast<size_t>(chunk) * CHUNK, CHUNK * sizeof(float), &full[stage]);
    }
  } else if (threadIdx.x < WORKERS) {
    float total = 0;
    for (int step = 0, chunk = blockIdx.x; chunk < chunks; ++step, chunk += gridDim.x) {
      const int stage = step % STAGES, parity = step / STAGES % 2;
      {
        KSCOPE_REGION_V("wait", chunk);
        wait(&full[stage], parity);
      }
      KSCOPE_REGION("multiply");
      const float4 x = reinterpret_cast<const float4*>(left[stage])[threadIdx.x];
      const float4 y = reinterpret_cast<const float4*>(right[stage])[threadIdx.x];
      total += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
    }
    KSCOPE_REGION("sum");
    for (int lane = 16; lane; lane /= 2) total += __shfl_down_sync(~0u, total, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(out, total);
  }
}

// The scalar product of two vectors in host memory; count is a multiple of CHUNK. Returns the CUDA runtime's error.
extern "C" int scalar_product(const float* left, const float* right, int count, float* result) {
  const size_t bytes = sizeof(float) * count;
  float *a = nullptr, *b = nullptr, *out = nullptr;
  int error = cudaMalloc(&a, bytes);
  if (!error) error = cudaMalloc(&b, bytes);
  if (!error) error = cudaMalloc(&out, sizeof(float));
  if (!error) error = cudaMemcpy(a, left, bytes, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemcpy(b, right, bytes, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemset(out, 0, sizeof(float));
  if (!error) {
    product<<<BLOCKS, WORKERS + 32>>>(a, b, out, count / CHUNK);
    error = cudaMemcpy(result, out, sizeof(float), cudaMemcpyDeviceToHost);
  }
  cudaFree(a);
  cudaFree(b);
  cudaFree(out);
  return error;
}
