// kscope.cuh: regions in CUDA C++ kernels. C++14 and later, nvcc and NVRTC, sm_75 and later; includes nothing.
// Written by `python -m kscope_cuda.header`: change it there.
//
//   __global__ void kernel(...) {
//     KSCOPE_KERNEL();                            first in the kernel
//     KSCOPE_REGION("load");                      until the end of the scope
//     for (int k = 0; k < n; k++) {
//       KSCOPE_REGION_V("step", k);               with a value: int, unsigned or float
//       ...
//
//   KSCOPE_ENTER("a"); KSCOPE_EXIT("a"); KSCOPE_INSTANT("b"); KSCOPE_INSTANT_V("b", x); KSCOPE_COUNTER("c", x);
//   a strategy behind the name and the value: kscope::Lane0Warp0, Elected, TargetWarp<0, 4>, AllThreads
//
//   -DKSCOPE=1        the macros record; without it they are empty, and the code is the same as without them
//   -DKSCOPE_MARKS=1  the macros are comments in the PTX, for kscope's own lowering (CuPy, cuda.core, NVRTC)
#ifndef KSCOPE_CUH
#define KSCOPE_CUH
#ifndef KSCOPE_MARKS
#define KSCOPE_MARKS 0
#endif
#ifndef KSCOPE
#define KSCOPE KSCOPE_MARKS
#endif

#if !KSCOPE || !defined(__CUDA_ARCH__)  // plain, or nvcc's pass for the host
#define KSCOPE_FIRST_(value, ...) value
#define KSCOPE_UNUSED_(...) static_cast<void>(sizeof((static_cast<void>(KSCOPE_FIRST_(__VA_ARGS__, 0)), 0)))
#define KSCOPE_KERNEL(...)
#define KSCOPE_REGION(...)
#define KSCOPE_REGION_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_ENTER(...)
#define KSCOPE_ENTER_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_EXIT(...)
#define KSCOPE_INSTANT(...)
#define KSCOPE_INSTANT_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_COUNTER(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#else
#ifdef __CUDACC_DEBUG__
#define KSCOPE_DEBUG_ 1
#else
#define KSCOPE_DEBUG_ 0
#endif
#define KSCOPE_FN_ __device__ __forceinline__
namespace kscope { typedef unsigned int b32_; typedef unsigned long long b64_; }
#define KSCOPE_CAT2_(a, b) a##b
#define KSCOPE_CAT_(a, b) KSCOPE_CAT2_(a, b)
#define KSCOPE_FIRST_(first, ...) first
#define KSCOPE_REST_(first, ...) __VA_ARGS__
// the strategy of a mark: what stands behind its name (and value), else Session
#define KSCOPE_STRATEGY_(...) kscope::strategy_<KSCOPE_REST_(__VA_ARGS__, kscope::Session)>
#ifdef __COUNTER__
#define KSCOPE_COUNT_ __COUNTER__
#else  // NVRTC
#define KSCOPE_COUNT_ __LINE__
#endif
namespace kscope {
// 28-bit FNV-1a of a name, folded: what a record carries of it
KSCOPE_FN_ constexpr b32_ fnv_(const char* s, b32_ h) {
  return *s ? fnv_(s + 1, (h ^ static_cast<unsigned char>(*s)) * 0x01000193u) : h;
}
KSCOPE_FN_ constexpr b32_ fold_(b32_ h) { return (h >> 28) ^ (h & 0x0FFFFFFFu); }
KSCOPE_FN_ constexpr b32_ hash_(const char* s) { return fold_(fnv_(s, 0x811C9DC5u)); }

// eight bytes of a name as a number, little-endian, zeros behind its end
KSCOPE_FN_ constexpr b64_ byte_(const char* s, b32_ n, b32_ i) {
  return i < n ? static_cast<b64_>(static_cast<unsigned char>(s[i])) << 8 * (i % 8) : 0;
}
KSCOPE_FN_ constexpr b64_ word_(const char* s, b32_ n, b32_ i) {
  return byte_(s, n, 8 * i) | byte_(s, n, 8 * i + 1) | byte_(s, n, 8 * i + 2) | byte_(s, n, 8 * i + 3) |
         byte_(s, n, 8 * i + 4) | byte_(s, n, 8 * i + 5) | byte_(s, n, 8 * i + 6) | byte_(s, n, 8 * i + 7);
}

// a string literal (or a constexpr array), and not a pointer
template <b64_ N> struct literal_ { enum { ok = 1, size = N }; };
struct not_literal_ { enum { ok = 0, size = 2 }; };
template <b64_ N> KSCOPE_FN_ literal_<N> measure_(const char (&)[N]);
KSCOPE_FN_ not_literal_ measure_(...);


// a name: its hash, its length in words, the words
template <b32_ HASH, b32_ WORDS, b64_ W0, b64_ W1, b64_ W2, b64_ W3, b64_ W4, b64_ W5, b64_ W6, b64_ W7, b64_ W8, b64_ W9, b64_ W10, b64_ W11, b64_ W12, b64_ W13, b64_ W14, b64_ W15> struct name_ {
  static constexpr b32_ hash = HASH, words = WORDS;
  static constexpr b64_ w0 = W0, w1 = W1, w2 = W2, w3 = W3, w4 = W4, w5 = W5, w6 = W6, w7 = W7, w8 = W8, w9 = W9, w10 = W10, w11 = W11, w12 = W12, w13 = W13, w14 = W14, w15 = W15;
};
#define KSCOPE_WORD_(name, i) kscope::word_(name, sizeof(name) - 1, i)
#define KSCOPE_NAME_(name) kscope::name_<kscope::hash_(name), (sizeof(name) + 6) / 8, KSCOPE_WORD_(name, 0), KSCOPE_WORD_(name, 1), KSCOPE_WORD_(name, 2), KSCOPE_WORD_(name, 3), KSCOPE_WORD_(name, 4), KSCOPE_WORD_(name, 5), KSCOPE_WORD_(name, 6), KSCOPE_WORD_(name, 7), KSCOPE_WORD_(name, 8), KSCOPE_WORD_(name, 9), KSCOPE_WORD_(name, 10), KSCOPE_WORD_(name, 11), KSCOPE_WORD_(name, 12), KSCOPE_WORD_(name, 13), KSCOPE_WORD_(name, 14), KSCOPE_WORD_(name, 15)>
#define KSCOPE_CHECK_(name) \
  static_assert(decltype(kscope::measure_(name))::ok, "kscope: a region's name is a string literal, known when the " \
    "kernel is compiled; pass what changes at run time as a value: KSCOPE_REGION_V(\"name\", value)"); \
  static_assert(sizeof(name) > 1 && sizeof(name) <= 129, \
    "kscope: a name has 1 to 128 bytes")


// who records; the same words as in Python
struct Session { static constexpr b64_ code = 0; };  // as the kernel or the session says
struct Lane0Warp0 { static constexpr b64_ code = 1; };
struct Elected { static constexpr b64_ code = 2; };
struct AllThreads { static constexpr b64_ code = 3; };
template <int... WARPS> struct mask_ { static constexpr b64_ value = 0; };
template <int WARP, int... WARPS> struct mask_<WARP, WARPS...> {
  static_assert(WARP >= 0 && WARP < 32,
    "kscope::TargetWarp: a warp of a block is a number from 0 to 31");
  static constexpr b64_ value = 1ull << WARP | mask_<WARPS...>::value;
};
template <int... WARPS> struct TargetWarp {
  static_assert(sizeof...(WARPS) > 0, "kscope::TargetWarp: name at least one warp, as in kscope::TargetWarp<0, 4>");
  static constexpr b64_ code = mask_<WARPS...>::value << 2;
};
// what a mark's macro was given, Session behind it
template <class S, class... MORE> struct one_ {
  static_assert(sizeof...(MORE) < 2, "kscope: a region has one strategy");
  typedef S type;
};
template <class... S> using strategy_ = typename one_<S...>::type;


// a value: 32 bits and their type
template <int TYPE> struct value_ { b32_ bits; };
enum { i32_ = 1, u32_ = 2, f32_ = 3 };
template <bool> struct enum_ {};
KSCOPE_FN_ value_<i32_> of_(int v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(short v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(signed char v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(char v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned int v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned short v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned char v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<f32_> of_(float v) { return value_<f32_>{__float_as_uint(v)}; }
template <class T> KSCOPE_FN_ value_<i32_> checked_(T v, enum_<true>) { return value_<i32_>{static_cast<b32_>(v)}; }
template <class T> KSCOPE_FN_ value_<i32_> checked_(T, enum_<false>) {
  static_assert(sizeof(T) == 0, "kscope: a record holds 32 bits: the value is an int, an unsigned or a float; cast it, "
    "as in KSCOPE_REGION_V(\"name\", static_cast<int>(value))");
  return value_<i32_>{0};
}
template <class T> KSCOPE_FN_ value_<i32_> of_(T v) { return checked_(v, enum_<__is_enum(T) && sizeof(T) <= 4>()); }
enum { enter_ = 0, exit_ = 1, instant_ = 2, counter_ = 3, pin_ = 4 };
enum { with_ = 0, call_ = 1 };
__device__ constexpr b32_ rounded_(b32_ n) { return n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : 16; }
template <b32_ WORDS> struct put_;

template <> struct put_<1> {
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {
    asm volatile("//kscope packed %0 %1 %2 %3 %4" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0) : "memory");
  }
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {
    asm volatile("//kscope packed %0 %1 %2 %3 %4 %5" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "r"(bits) : "memory");
  }
};
template <> struct put_<2> {
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1) : "memory");
  }
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5 %6" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "r"(bits) : "memory");
  }
};
template <> struct put_<4> {
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3) : "memory");
  }
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7 %8" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3), "r"(bits) : "memory");
  }
};
template <> struct put_<8> {
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7.%8.%9.%10.%11" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3), "n"(NAME::w4), "n"(NAME::w5), "n"(NAME::w6), "n"(NAME::w7) : "memory");
  }
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7.%8.%9.%10.%11 %12" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3), "n"(NAME::w4), "n"(NAME::w5), "n"(NAME::w6), "n"(NAME::w7), "r"(bits) : "memory");
  }
};
template <> struct put_<16> {
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7.%8.%9.%10.%11.%12.%13.%14.%15.%16.%17.%18.%19" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3), "n"(NAME::w4), "n"(NAME::w5), "n"(NAME::w6), "n"(NAME::w7), "n"(NAME::w8), "n"(NAME::w9), "n"(NAME::w10), "n"(NAME::w11), "n"(NAME::w12), "n"(NAME::w13), "n"(NAME::w14), "n"(NAME::w15) : "memory");
  }
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {
    asm volatile("//kscope packed %0 %1 %2 %3 %4.%5.%6.%7.%8.%9.%10.%11.%12.%13.%14.%15.%16.%17.%18.%19 %20" :: "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE), "n"(NAME::w0), "n"(NAME::w1), "n"(NAME::w2), "n"(NAME::w3), "n"(NAME::w4), "n"(NAME::w5), "n"(NAME::w6), "n"(NAME::w7), "n"(NAME::w8), "n"(NAME::w9), "n"(NAME::w10), "n"(NAME::w11), "n"(NAME::w12), "n"(NAME::w13), "n"(NAME::w14), "n"(NAME::w15), "r"(bits) : "memory");
  }
};

template <int ACT, int HOW, class NAME, class S> __device__ __forceinline__ void mark_() {
  put_<rounded_(NAME::words)>::template mark<ACT, 0, HOW, S::code, NAME>();
}
template <int ACT, int HOW, class NAME, class S, int TYPE> __device__ __forceinline__ void mark_(value_<TYPE> v) {
  put_<rounded_(NAME::words)>::template mark<ACT, TYPE, HOW, S::code, NAME>(v.bits);
}

template <class NAME, class S> struct region_ {
  __device__ __forceinline__ region_() { mark_<enter_, with_, NAME, S>(); }
  template <int TYPE> __device__ __forceinline__ region_(value_<TYPE> v) { mark_<enter_, with_, NAME, S>(v); }
  __device__ __forceinline__ ~region_() { mark_<exit_, with_, NAME, S>(); }
  region_(const region_&) = delete;
  region_& operator=(const region_&) = delete;
};
}  // namespace kscope
#define KSCOPE_KERNEL(...) static_assert(true, "")
#define KSCOPE_REGION(...) \
  KSCOPE_CHECK_(KSCOPE_FIRST_(__VA_ARGS__, 0)); \
  const kscope::region_<KSCOPE_NAME_(KSCOPE_FIRST_(__VA_ARGS__, 0)), KSCOPE_STRATEGY_(__VA_ARGS__)> \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)
#define KSCOPE_REGION_V(name, ...) \
  KSCOPE_CHECK_(name); \
  const kscope::region_<KSCOPE_NAME_(name), KSCOPE_STRATEGY_(__VA_ARGS__)> \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)(kscope::of_(KSCOPE_FIRST_(__VA_ARGS__, 0)))
#define KSCOPE_POINT_(act, how, ...) do { \
  KSCOPE_CHECK_(KSCOPE_FIRST_(__VA_ARGS__, 0)); \
  kscope::mark_<kscope::act, kscope::how, KSCOPE_NAME_(KSCOPE_FIRST_(__VA_ARGS__, 0)), \
    KSCOPE_STRATEGY_(__VA_ARGS__)>(); } while (0)
#define KSCOPE_POINT_V_(act, how, name, ...) do { \
  KSCOPE_CHECK_(name); \
  kscope::mark_<kscope::act, kscope::how, KSCOPE_NAME_(name), KSCOPE_STRATEGY_(__VA_ARGS__)>( \
    kscope::of_(KSCOPE_FIRST_(__VA_ARGS__, 0))); } while (0)
#define KSCOPE_ENTER(...) KSCOPE_POINT_(enter_, call_, __VA_ARGS__)
#define KSCOPE_ENTER_V(name, ...) KSCOPE_POINT_V_(enter_, call_, name, __VA_ARGS__)
#define KSCOPE_EXIT(...) KSCOPE_POINT_(exit_, call_, __VA_ARGS__)
#define KSCOPE_INSTANT(...) KSCOPE_POINT_(instant_, with_, __VA_ARGS__)
#define KSCOPE_INSTANT_V(name, ...) KSCOPE_POINT_V_(instant_, with_, name, __VA_ARGS__)
#define KSCOPE_COUNTER(name, ...) KSCOPE_POINT_V_(counter_, with_, name, __VA_ARGS__)
#endif  // KSCOPE, device code
#endif  // KSCOPE_CUH
