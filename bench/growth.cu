// The kernels of on_growth.py. `records` writes a given number of records, `many` four per warp, `four` the same after
// a little work. Marks are bare; kscope's pass lowers them.
#define MARK(text) asm volatile("//kscope " text ::: "memory")

__device__ __forceinline__ float fmas(float x) {
#pragma unroll
  for (int i = 0; i < 16; i++) asm volatile("fma.rn.f32 %0, %0, 0f3F800001, 0f3A83126F;" : "+f"(x));
  return x;
}

extern "C" __global__ void records(float* out, int count) {
  float x = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    MARK("enter step - - with");
    x = fmas(x);
    MARK("exit step - - with");
  }
  if (x == 12345.f) out[threadIdx.x] = x;
}

extern "C" __global__ void four(float* out, int unused) {
  float x = threadIdx.x;
  MARK("enter a - - with");
  x = fmas(x);
  MARK("exit a - - with");
  MARK("enter b - - with");
  x = fmas(x);
  MARK("exit b - - with");
  MARK("enter c - - with");
  x = fmas(x);
  MARK("exit c - - with");
  MARK("enter d - - with");
  x = fmas(x);
  MARK("exit d - - with");
  if (x == 12345.f) out[threadIdx.x] = x + unused;
}
