// The loops of on_regions.py: one profiler's marks around the work of each iteration; -DPEER=0 to 15 selects it.
// 0 is kscope.cuh (or, with -DKSCOPE_BENCH_MARKS, bare marks that kscope's pass lowers); each peer's instructions per
// event are restated here from its device code, for lane 0 of each warp; flashinfer's (11) and warpscope's (12) headers
// are compiled as they ship. 13 and 14 are forms that kscope's own record could have.
#include <cstdint>

#ifdef KSCOPE_BENCH_MARKS
#define MARK(text) asm volatile("//kscope " text ::: "memory");
#define marked_FIRST
#define marked_BEFORE(n) MARK("enter work" #n " - - with")
#define marked_AFTER(n) MARK("exit work" #n " - - with")
#elif PEER == 0
#include <kscope.cuh>
#define marked_FIRST KSCOPE_KERNEL();
#define marked_BEFORE(n) KSCOPE_REGION("work" #n);
#define marked_AFTER(n)
#else
#define marked_FIRST Peer peer(memory, iterations);
#define marked_BEFORE(n) peer.start();
#define marked_AFTER(n) peer.end();
#endif
#define plain_FIRST
#define plain_BEFORE(n)
#define plain_AFTER(n)

[[maybe_unused]] constexpr uint32_t SHARED_BYTES = 1024;  // of a warp's ring in shared memory
[[maybe_unused]] constexpr uint32_t GLOBAL_BYTES = 32768;  // of a warp's ring in global memory
[[maybe_unused]] constexpr uint32_t PEER_BYTES = 768u << 20;  // of all peers' records; what follows is read by loads
constexpr uint32_t LOADED_FLOATS = 32u << 20;

__device__ __forceinline__ uint32_t warps() { return blockDim.x / 32; }
__device__ __forceinline__ uint32_t warp() { return blockIdx.x * warps() + threadIdx.x / 32; }
__device__ __forceinline__ bool leads() { return threadIdx.x % 32 == 0; }
__device__ __forceinline__ uint32_t address(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }
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
  __device__ __forceinline__ Peer(unsigned char* memory, int) : base(memory + size_t(warp()) * GLOBAL_BYTES) {
    __shared__ __align__(16) unsigned char rings[32 * SHARED_BYTES];  // of the largest block's warps
    shared = address(rings) + threadIdx.x / 32 * SHARED_BYTES;
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
  __device__ __forceinline__ Peer(unsigned char*, int) {
    __shared__ __align__(16) unsigned char rings[32 * SHARED_BYTES];  // of the largest block's warps
    shared = address(rings) + threadIdx.x / 32 * SHARED_BYTES;
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
  __device__ __forceinline__ Peer(unsigned char* memory, int iterations)
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
__device__ unsigned int counters[8448];
struct Peer {
  uint64_t *base, begun = 0;
  uint32_t slot = 0, most;
  __device__ __forceinline__ Peer(unsigned char* memory, int iterations)
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
  __device__ __forceinline__ Peer(unsigned char* memory, int iterations)
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
  __device__ __forceinline__ Peer(unsigned char* memory, int) {
    parameters.profiler_buffer = reinterpret_cast<uint64_t*>(memory);
    PROFILER_INIT(parameters, nothing, closure, threadIdx.x / 32, warps(), leads())
  }
  __device__ __forceinline__ void start() { PROFILER_EVENT_START(closure, 3) }
  __device__ __forceinline__ void end() { PROFILER_EVENT_END(closure, 3) }
};
#elif PEER == 12
// warpscope's own header: the same words, within bounds
#include <warpscope.cuh>
struct Peer {
  ws::Profiler<true> profiler;
  __device__ __forceinline__ Peer(unsigned char* memory, int iterations) {
    profiler.init(reinterpret_cast<uint64_t*>(memory), gridDim.x * warps(), threadIdx.x / 32, warps(), gridDim.x,
                  leads(), 16 * iterations + 2);
  }
  __device__ __forceinline__ void start() { profiler.start({3}); }
  __device__ __forceinline__ void end() { profiler.end({3}); }
};
#elif PEER == 13 || PEER == 14
// Rings that are aligned to their size, so that an address is two logic instructions: a pair {tag, clock} at the begin
// and one at the end (13), or one store of 16 bytes at the end (14)
struct Peer {
  uint32_t low, high, at = 0, begun = 0;
  __device__ __forceinline__ Peer(unsigned char* memory, int) {
    const uint64_t base = reinterpret_cast<uint64_t>(memory + size_t(warp()) * GLOBAL_BYTES);
    low = uint32_t(base), high = uint32_t(base >> 32);
  }
  __device__ __forceinline__ static uint32_t now() { return uint32_t(clock64_now()); }
  __device__ __forceinline__ static uint64_t clock64_now() {
    uint64_t read;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(read)::"memory");
    return read;
  }
  __device__ __forceinline__ void put(uint32_t tag) {
    asm volatile(
        "{ .reg .pred p; .reg .b64 a; .reg .b32 o; setp.ne.u32 p, %0, 0; and.b32 o, %1, %2; or.b32 o, o, %3;"
        " mov.b64 a, {o, %4}; @p st.global.v2.b32 [a], {%5, %6}; }" ::"r"(int(leads())),
        "r"(at), "n"(GLOBAL_BYTES - 1), "r"(low), "r"(high), "r"(tag), "r"(now())
        : "memory");
    at += 8;
  }
  __device__ __forceinline__ void start() {
    if (PEER == 13)
      put(3u << 4);
    else
      begun = now();
  }
  __device__ __forceinline__ void end() {
    if (PEER == 13) return put(3u << 4 | 1);
    asm volatile(
        "{ .reg .pred p; .reg .b64 a; .reg .b32 o; setp.ne.u32 p, %0, 0; and.b32 o, %1, %2; or.b32 o, o, %3;"
        " mov.b64 a, {o, %4}; @p st.global.v4.b32 [a], {%5, %6, %7, %8}; }" ::"r"(int(leads())),
        "r"(at), "n"(GLOBAL_BYTES - 1), "r"(low), "r"(high), "r"(begun), "r"(3u << 4 | 1), "r"(now()), "r"(0)
        : "memory");
    at += 16;
  }
};
#elif PEER == 15
// A NOP keeps an empty loop: it measures the loop's counter and jump
struct Peer {
  __device__ __forceinline__ Peer(unsigned char*, int) {}
  __device__ __forceinline__ void start() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  __device__ __forceinline__ void end() {}
};
#endif

__device__ __forceinline__ long long clock_now() {
  long long now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
  return now;
}

// The work between the marks: `fmas` that depend on each other, loads whose values the next iteration needs, or a
// tile that the copy engine (TMA) brings while the three before it are used.
// FMAs have one constant: of two, one needs a register, which ptxas sets inside some loops, for 4 or 10 cycles, and
// before others.
template <int COUNT> __device__ __forceinline__ float fmas(float x) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("fma.rn.f32 %0, %0, 0fBA83126F, %0;" : "+f"(x));
  return x;
}
// 16 bytes of machine code each, that stay before the loop: the assembler sinks arithmetic that a loop does not read
template <int PLACE> __device__ __forceinline__ void moved() {
#pragma unroll
  for (int i = 0; i < PLACE; i++) __syncwarp();
}
template <int COUNT> struct Work {
  __device__ Work(const float*) {}
  __device__ __forceinline__ float step(float x, int) { return fmas<COUNT>(x); }
  __device__ __forceinline__ void finish() {}
};
struct Loads {
  static constexpr int EACH = 4;
  const float* from;
  float values[EACH] = {};
  __device__ Loads(const float* source) : from(source + (blockIdx.x * blockDim.x + threadIdx.x)) {}
  __device__ __forceinline__ float step(float x, int i) {
    x = fmas<16>(x + values[0] + values[1] + values[2] + values[3]);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const float* at = from + (uint32_t(i * EACH + k) * 271360u) % (LOADED_FLOATS / 2);
      asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(values[k]) : "l"(at) : "memory");
    }
    return x;
  }
  __device__ __forceinline__ void finish() {}
};
#if __CUDA_ARCH__ >= 900
struct Tiles {
  static constexpr int STAGES = 4, FLOATS = 1024, BYTES = 4 * FLOATS;
  const float* from;
  uint32_t stage, full;
  __device__ Tiles(const float* source) : from(source + size_t(blockIdx.x) * FLOATS) {
    __shared__ __align__(128) float tiles[STAGES][FLOATS];
    __shared__ __align__(8) unsigned long long barriers[STAGES];
    stage = address(tiles), full = address(barriers);
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    for (int i = 0; i < STAGES - 1; i++) issue(i);
  }
  __device__ __forceinline__ void issue(int i) {
    if (threadIdx.x != 0) return;
    const uint32_t at = i % STAGES;
    const float* tile = from + (uint32_t(i) * 270336u) % (LOADED_FLOATS / 2) / FLOATS * FLOATS;
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(full + 8 * at), "n"(BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     stage + BYTES * at),
                 "l"(tile), "n"(BYTES), "r"(full + 8 * at)
                 : "memory");
  }
  __device__ __forceinline__ void wait(int i) {
    uint32_t over;
    do {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(over)
                   : "r"(full + 8 * (i % STAGES)), "r"(i / STAGES % 2)
                   : "memory");
    } while (!over);
  }
  int next = 0;
  __device__ __forceinline__ float step(float x, int i) {
    issue(i + STAGES - 1);
    wait(i);
    float found;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(found)
                 : "r"(stage + BYTES * (i % STAGES) + 4 * (threadIdx.x % FLOATS))
                 : "memory");
    x = fmas<16>(x + found);
    __syncthreads();  // the next issue() overwrites this stage
    next = i + 1;
    return x;
  }
  __device__ __forceinline__ void finish() {  // no copy may be in flight when the block exits
    for (int i = 0; i < STAGES - 1; i++) wait(next + i);
  }
};
#endif

#ifndef COUNTER
#define COUNTER int
#endif
#define LOOP(kind, NAME, WORK, PLACE, BEFORE, AFTER)                                                           \
  extern "C" __global__ void kind##_##NAME##_##PLACE(float* out, long long* cycles, unsigned char* memory,     \
                                                     const float* source, int iterations) {                    \
    kind##_FIRST;                                                                                              \
    WORK work(source);                                                                                         \
    float x = threadIdx.x;                                                                                     \
    moved<PLACE>();                                                                                            \
    const long long begin = clock_now();                                                                       \
    _Pragma("unroll 1") for (COUNTER i = 0; i < iterations; i++) {                                             \
      BEFORE(kind);                                                                                            \
      x = work.step(x, i);                                                                                     \
      AFTER(kind);                                                                                             \
    }                                                                                                          \
    const long long end = clock_now();                                                                         \
    work.finish();                                                                                             \
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;                                                    \
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;                                                            \
  }

#define B1(k) k##_BEFORE(0)
#define B2(k) B1(k) k##_BEFORE(1)
#define B3(k) B2(k) k##_BEFORE(2)
#define B4(k) B3(k) k##_BEFORE(3)
#define B5(k) B4(k) k##_BEFORE(4)
#define B6(k) B5(k) k##_BEFORE(5)
#define B7(k) B6(k) k##_BEFORE(6)
#define B8(k) B7(k) k##_BEFORE(7)
#define A1(k) k##_AFTER(0)
#define A2(k) k##_AFTER(1) A1(k)
#define A3(k) k##_AFTER(2) A2(k)
#define A4(k) k##_AFTER(3) A3(k)
#define A5(k) k##_AFTER(4) A4(k)
#define A6(k) k##_AFTER(5) A5(k)
#define A7(k) k##_AFTER(6) A6(k)
#define A8(k) k##_AFTER(7) A7(k)

#define PLACES(kind, NAME, WORK)                                                  \
  LOOP(kind, NAME, WORK, 0, B1, A1) LOOP(kind, NAME, WORK, 1, B1, A1)             \
  LOOP(kind, NAME, WORK, 2, B1, A1) LOOP(kind, NAME, WORK, 3, B1, A1)             \
  LOOP(kind, NAME, WORK, 4, B1, A1) LOOP(kind, NAME, WORK, 5, B1, A1)             \
  LOOP(kind, NAME, WORK, 6, B1, A1) LOOP(kind, NAME, WORK, 7, B1, A1)
PLACES(plain, empty, Work<0>)
PLACES(plain, fmas, Work<64>)
PLACES(marked, empty, Work<0>)
PLACES(marked, fmas, Work<64>)
LOOP(plain, loads, Loads, 0, B1, A1)
LOOP(marked, loads, Loads, 0, B1, A1)
#if __CUDA_ARCH__ >= 900
LOOP(plain, tiles, Tiles, 0, B1, A1)
LOOP(marked, tiles, Tiles, 0, B1, A1)
#endif
#ifdef NESTED
LOOP(marked, nested2, Work<64>, 0, B2, A2)
LOOP(marked, nested3, Work<64>, 0, B3, A3)
LOOP(marked, nested4, Work<64>, 0, B4, A4)
LOOP(marked, nested5, Work<64>, 0, B5, A5)
LOOP(marked, nested6, Work<64>, 0, B6, A6)
LOOP(marked, nested7, Work<64>, 0, B7, A7)
LOOP(marked, nested8, Work<64>, 0, B8, A8)
#endif
