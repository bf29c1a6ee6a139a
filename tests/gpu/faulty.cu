// Kernels that break the context, for test_failures.py: a library built by nvcc, whose launches the host does not see.
#define KSCOPE_RECORDS 4  // so that the pool holds all launches: the host sees none, and none waits
#include <kscope.cuh>

extern "C" __global__ void whole(int* out) {
  KSCOPE_KERNEL();
  KSCOPE_REGION("whole");
  out[blockIdx.x] = 1;
}
// Has no warp 7: it claims nothing, and only the launch table knows of it.
extern "C" __global__ void silent(int* out) {
  KSCOPE_KERNEL(kscope::TargetWarp<7>);
  { KSCOPE_REGION("silent"); out[blockIdx.x] = 1; }
  for (long long begin = clock64(); clock64() - begin < 2000000;);
  asm volatile("trap;");
}
extern "C" __global__ void trapping(int* out) {
  KSCOPE_KERNEL();
  { KSCOPE_REGION("trapping"); out[blockIdx.x] = 1; }
  asm volatile("trap;");
}
extern "C" __global__ void outside(int* out) {
  KSCOPE_KERNEL();
  { KSCOPE_REGION("outside"); out[blockIdx.x + (1LL << 40)] = 1; }
}

// 1,000 launches that end, and one that does not; the CUDA runtime's error
extern "C" int run(int* out, int fault) {
  for (int i = 0; i < 1000; i++) {
    whole<<<64, 128>>>(out);
    if (cudaDeviceSynchronize()) return -1;
  }
  if (fault == 0) silent<<<64, 128>>>(out);
  if (fault == 1) trapping<<<64, 128>>>(out);
  if (fault == 2) outside<<<64, 128>>>(out);
  return cudaDeviceSynchronize();
}
