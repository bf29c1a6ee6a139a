// The loop of cuda_header_cost.py, with one profiler's marks around the work of each iteration: -DPEER=1 to 11, or
// kscope.cuh's (0). Each peer's instructions per event are restated here from what it does on the device, for lane 0
// of each warp; only flashinfer's header is compiled as it ships.
#include <cstdint>

#if PEER == 0
#include <kscope.cuh>
#define marked_FIRST KSCOPE_KERNEL();
#define marked_BEFORE KSCOPE_REGION("work");
#define marked_AFTER
#else
#define marked_FIRST Peer peer(iterations);
#define marked_BEFORE peer.start();
#define marked_AFTER peer.end();
#endif
#define plain_FIRST
#define plain_BEFORE
#define plain_AFTER

[[maybe_unused]] constexpr uint32_t SHARED_BYTES = 4096;  // of a warp's ring in shared memory
[[maybe_unused]] constexpr uint32_t GLOBAL_BYTES = 32768;  // of a warp's ring in global memory
__device__ unsigned char memory[96 << 20];
__device__ unsigned int counters[4096];

__device__ __forceinline__ uint32_t warps() { return blockDim.x / 32; }
__device__ __forceinline__ uint32_t warp() { return blockIdx.x * warps() + threadIdx.x / 32; }
__device__ __forceinline__ bool leads() { return threadIdx.x % 32 == 0; }
__device__ __forceinline__ uint32_t clock32() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}
__device__ __forceinline__ uint32_t clock_high() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(now)::"memory");
  return now;
}
__device__ __forceinline__ uint32_t timer32() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now)::"memory");
  return now;
}
__device__ __forceinline__ uint64_t timer64() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

#if PEER >= 1 && PEER <= 5
// Proton (1, 2 in shared memory, 3, 4 in global memory; 32-bit and 64-bit clock), Mosaic GPU (5): a ring of pairs
// {tag, clock} per warp, one at the begin and one at the end, behind a predicate
struct Peer {
  unsigned char* base;
  uint32_t shared, at = 0;
  __device__ __forceinline__ Peer(int) : base(memory + size_t(warp()) * GLOBAL_BYTES) {
    __shared__ __align__(16) unsigned char rings[8 * SHARED_BYTES];  // of the largest block's warps
    shared = uint32_t(__cvta_generic_to_shared(rings)) + threadIdx.x / 32 * SHARED_BYTES;
  }
  __device__ __forceinline__ void put(uint32_t tag) {
    const uint32_t low = clock32();
    if (PEER == 2 || PEER == 4) tag |= clock_high() & 0x7FF;
    if (PEER == 3 || PEER == 4)
      asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.cg.v2.b32 [%1], {%2, %3}; }" ::"r"(int(leads())),
                   "l"(base + at % GLOBAL_BYTES), "r"(tag), "r"(low)
                   : "memory");
    else
      asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.shared.v2.b32 [%1], {%2, %3}; }" ::"r"(int(leads())),
                   "r"(shared + at % SHARED_BYTES), "r"(tag), "r"(low)
                   : "memory");
    at += 8;
  }
  __device__ __forceinline__ void start() { put(3u << 23); }
  __device__ __forceinline__ void end() { put(3u << 23 | 1u << 31); }
};
#elif PEER == 6
// IKET: a word per event, the timer with an id in its low bits, to shared memory
struct Peer {
  uint32_t shared, at = 0;
  __device__ __forceinline__ Peer(int) {
    __shared__ __align__(16) unsigned char rings[8 * SHARED_BYTES];  // of the largest block's warps
    shared = uint32_t(__cvta_generic_to_shared(rings)) + threadIdx.x / 32 * SHARED_BYTES;
  }
  __device__ __forceinline__ void put(uint32_t id) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.weak.shared.u32 [%1], %2; }" ::"r"(int(leads())),
                 "r"(shared + at % SHARED_BYTES), "r"(timer32() | id)
                 : "memory");
    at += 4;
  }
  __device__ __forceinline__ void start() { put(3); }
  __device__ __forceinline__ void end() { put(31); }
};
#elif PEER == 7
// transformer_nuggets, compact in global memory: start, 24 bits of duration and a tag in 8 bytes, at the end
struct Peer {
  uint64_t* next;
  uint32_t begun;
  __device__ __forceinline__ Peer(int iterations)
      : next(reinterpret_cast<uint64_t*>(memory) + size_t(warp()) * iterations) {}
  __device__ __forceinline__ void start() { begun = timer32(); }
  __device__ __forceinline__ void end() {
    const uint32_t now = timer32();
    if (leads()) {
      const uint64_t both = begun | uint64_t((now - begun) & 0xFFFFFF) << 32 | uint64_t(3) << 56;
      asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(next), "l"(both) : "memory");
    }
    next++;
  }
};
#elif PEER == 8 || PEER == 9
// transformer_nuggets, 32 bytes a range in global memory: slots in turn (8), or from an atomic counter (9, its default)
struct Peer {
  uint64_t *base, begun = 0;
  uint32_t slot = 0, most;
  __device__ __forceinline__ Peer(int iterations)
      : base(reinterpret_cast<uint64_t*>(memory) + size_t(warp()) * iterations * 4), most(iterations) {
    if (leads()) counters[warp()] = 0;
  }
  __device__ __forceinline__ void start() {
    if (leads()) {
      if (PEER == 9) slot = atomicAdd(&counters[warp()], 1u);
      if (slot < most) begun = timer64();
    }
  }
  __device__ __forceinline__ void end() {
    if (leads() && slot < most) {
      const uint64_t now = timer64();
      uint64_t* to = base + 4 * size_t(slot);
      const uint64_t words[] = {begun, now - begun, 3, blockIdx.x};
      for (int i = 0; i < 4; i++) asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(to + i), "l"(words[i]) : "memory");
    }
    if (PEER == 8) slot++;
  }
};
#elif PEER == 10
// cutedsl-trace: {start, end} in 8 bytes, written through, within bounds
struct Peer {
  uint64_t* base;
  uint32_t slot = 0, most, begun;
  __device__ __forceinline__ Peer(int iterations)
      : base(reinterpret_cast<uint64_t*>(memory) + size_t(warp()) * iterations), most(iterations) {}
  __device__ __forceinline__ void start() { begun = timer32(); }
  __device__ __forceinline__ void end() {
    if (leads()) {
      const uint32_t now = timer32();
      if (slot < most)
        asm volatile("st.global.wt.v2.u32 [%0], {%1, %2};" ::"l"(base + slot), "r"(begun), "r"(now) : "memory");
      slot++;
    }
  }
};
#elif PEER == 11
// flashinfer's own header: a word with a tag and one with the timer, at the begin and at the end
#define FLASHINFER_ENABLE_PROFILER
#include <profiler.cuh>
using namespace flashinfer;
struct Peer {
  struct { uint64_t* profiler_buffer; } parameters;
  struct { PROFILER_CLOSURE_PARAMS_DECL } closure;
  __device__ __forceinline__ Peer(int) {
    parameters.profiler_buffer = reinterpret_cast<uint64_t*>(memory);
    PROFILER_INIT(parameters, nothing, closure, threadIdx.x / 32, warps(), leads())
  }
  __device__ __forceinline__ void start() { PROFILER_EVENT_START(closure, 3) }
  __device__ __forceinline__ void end() { PROFILER_EVENT_END(closure, 3) }
};
#endif

__device__ __forceinline__ long long clock_now() {
  long long now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}
template <int WORK> __device__ __forceinline__ float work(float x) {
#pragma unroll
  for (int i = 0; i < WORK; i++) asm volatile("fma.rn.f32 %0, %0, 0f3F800001, 0f3A83126F;" : "+f"(x));
  return x;
}

#define LOOP_AT(kind, WORK, PLACE)                                                                 \
  extern "C" __global__ void kind##WORK##_##PLACE(float* out, long long* cycles, int iterations) { \
    kind##_FIRST;                                                                                  \
    float x = work<PLACE>(threadIdx.x);                                                            \
    const long long begin = clock_now();                                                           \
    _Pragma("unroll 1") for (int i = 0; i < iterations; i++) {                                     \
      kind##_BEFORE;                                                                               \
      x = work<WORK>(x);                                                                           \
      kind##_AFTER;                                                                                \
    }                                                                                              \
    const long long end = clock_now();                                                             \
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;                                        \
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;                                                \
  }
#define LOOP(kind, WORK)                                                                              \
  LOOP_AT(kind, WORK, 0) LOOP_AT(kind, WORK, 1) LOOP_AT(kind, WORK, 2) LOOP_AT(kind, WORK, 3)         \
  LOOP_AT(kind, WORK, 4) LOOP_AT(kind, WORK, 5) LOOP_AT(kind, WORK, 6) LOOP_AT(kind, WORK, 7)
LOOP(plain, 0)
LOOP(plain, 64)
LOOP(marked, 0)
LOOP(marked, 64)
