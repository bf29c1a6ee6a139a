// kscope.cuh: regions in CUDA C++ kernels. C++14 and later, nvcc and NVRTC, sm_75 and later; includes nothing.
// `python -m kscope_cuda.header` updates the lines between `// generated` and `// end`, and the values behind /*NAME=*/.
//
//   __global__ void kernel(...) {
//     KSCOPE_KERNEL();                            first in the kernel
//     KSCOPE_REGION("load");                      until the end of the scope
//     for (int k = 0; k < n; k++) {
//       KSCOPE_REGION_V("step", k);               with a value: int, unsigned, float,
//                                                 or 64 bits: long long, double, a pointer
//       ...
//
//   KSCOPE_ENTER("a"); KSCOPE_EXIT("a");          where a scope does not fit
//   KSCOPE_INSTANT("b"); KSCOPE_INSTANT_V("b", x); KSCOPE_COUNTER("c", x);
//   KSCOPE_REGION_IF("load", k % 8 == 0);         recorded if the predicate holds on entry; also REGION_V_IF,
//                                                 INSTANT_IF, INSTANT_V_IF, COUNTER_IF: the predicate comes last
//   KSCOPE_REGION_OPEN("wait");                   stored when a warp enters it, for kernels that hang; also REGION_OPEN_V
//   KSCOPE_REGION("load" KSCOPE_TRACK("loads"));  drawn on a track of that name, below its warp; any name can have one
//   KSCOPE_REGION("load" KSCOPE_WORK("bytes=4096"));  for kscope rates: bytes and flops of a block in one execution
//   KSCOPE_ROLE("producer");                      what this warp does: labels its row
//   KSCOPE_BEGIN("tma", k); KSCOPE_END("tma", k);  a span with a key, from one warp or iteration to another
//   KSCOPE_PIN(x);                                the computation of x stays before this line
//
// After the name or the value a mark may name its strategy: kscope::Lane0Warp0, Elected, TargetWarp<0, 4>, AllThreads,
// and ElectedAnyLane if kscope lowers the marks. kscope::clock(), clock64(), globaltimer(), smid(), warp_id(),
// lane_id() and block_id() work always, also without recording.
//
//   -DKSCOPE=1        the macros record; by default they are empty, and the code is as without them
//   -DKSCOPE_MARKS=1  the macros are comments in the PTX, for kscope's own lowering (CuPy, cuda.core, NVRTC)
//   -DKSCOPE_OPEN=1   every region is stored when a warp enters it, as KSCOPE_REGION_OPEN
#ifndef KSCOPE_CUH
#define KSCOPE_CUH
#ifndef KSCOPE_MARKS
#define KSCOPE_MARKS 0
#endif
#ifndef KSCOPE
#define KSCOPE KSCOPE_MARKS
#endif
#ifndef KSCOPE_OPEN
#define KSCOPE_OPEN 0
#endif
#define KSCOPE_TRACK(track) /*TRACK=*/"\x1f" track  // after a name: the track that it is on
#define KSCOPE_WORK(work) /*WORK=*/"\x1e" work  // at a name's end: "bytes=4096,flops=256"; "bytes=value" is the mark's value

// ---- device helpers: they work also without recording
#ifdef __CUDACC__
namespace kscope {
// generated: helpers
__device__ __forceinline__ unsigned int clock() {
  unsigned int t;
  asm volatile(
    "mov.u32 %0, %%clock;\n"
    : "=r"(t) :  : "memory");
  return t;
}
__device__ __forceinline__ long long clock64() {
  long long t;
  asm volatile(
    "mov.u64 %0, %%clock64;\n"
    : "=l"(t) :  : "memory");
  return t;
}
__device__ __forceinline__ long long globaltimer() {
  long long t;
  asm volatile(
    "mov.u64 %0, %%globaltimer;\n"
    : "=l"(t) :  : "memory");
  return t;
}
__device__ __forceinline__ int smid() {
  int t;
  asm volatile(
    "mov.u32 %0, %%smid;\n"
    : "=r"(t) :  : "memory");
  return t;
}
__device__ __forceinline__ int warp_id() {
  int t;
  asm(
    "{ .reg .b32 ks_y, ks_z; mov.u32 %0, %%tid.z; mov.u32 ks_y, %%ntid.y; mov.u32 ks_z, %%tid.y; mad.lo.u32 %0, %0, ks_y, ks_z; mov.u32 ks_y, %%ntid.x; mov.u32 ks_z, %%tid.x; mad.lo.u32 %0, %0, ks_y, ks_z; shr.u32 %0, %0, 5; }\n"
    : "=r"(t) : );
  return t;
}
__device__ __forceinline__ int lane_id() {
  int t;
  asm(
    "mov.u32 %0, %%laneid;\n"
    : "=r"(t) : );
  return t;
}
__device__ __forceinline__ int block_id() {
  int t;
  asm(
    "{ .reg .b32 ks_y, ks_z; mov.u32 %0, %%ctaid.z; mov.u32 ks_y, %%nctaid.y; mov.u32 ks_z, %%ctaid.y; mad.lo.u32 %0, %0, ks_y, ks_z; mov.u32 ks_y, %%nctaid.x; mov.u32 ks_z, %%ctaid.x; mad.lo.u32 %0, %0, ks_y, ks_z; }\n"
    : "=r"(t) : );
  return t;
}
// end
}  // namespace kscope
#endif

// ---- recording in place: its options, and the module's control block
#if KSCOPE && !KSCOPE_MARKS && defined(__CUDACC__)
#if __CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 2)
#error "kscope: -DKSCOPE=1 needs CUDA 12.2 or later"
#endif
#ifndef KSCOPE_RECORDS  // capacity of a slab, rounded up to a power of two
#define KSCOPE_RECORDS /*AUTO_RECORDS=*/256
#endif
#ifndef KSCOPE_STRATEGY  // of kernels that name none
#ifdef KSCOPE_WARPS  // TargetWarp as a bit mask: safe on every command line, unlike commas and <>
#define KSCOPE_STRATEGY kscope::warps_<KSCOPE_WARPS>
#else
#define KSCOPE_STRATEGY kscope::Elected
#endif
#endif
#ifndef KSCOPE_CLOCK  // cycles or globaltimer
#define KSCOPE_CLOCK cycles
#endif
#ifndef KSCOPE_FILL  // ring: the newest records stay; stop: the oldest
#define KSCOPE_FILL ring
#endif
#define KSCOPE_IS_cycles 1
#define KSCOPE_IS_globaltimer 2
#define KSCOPE_IS_ring 1
#define KSCOPE_IS_stop 2
#define KSCOPE_IS2_(option) KSCOPE_IS_##option
#define KSCOPE_IS1_(option) KSCOPE_IS2_(option)
#define KSCOPE_CLOCK_ KSCOPE_IS1_(KSCOPE_CLOCK)
#define KSCOPE_FILL_ KSCOPE_IS1_(KSCOPE_FILL)
#if KSCOPE_CLOCK_ != 1 && KSCOPE_CLOCK_ != 2
#error "kscope: KSCOPE_CLOCK is cycles or globaltimer"
#endif
#if KSCOPE_FILL_ != 1 && KSCOPE_FILL_ != 2
#error "kscope: KSCOPE_FILL is ring or stop"
#endif
#if defined(__CUDACC_RTC__)
extern "C" { __constant__ unsigned long long /*CTL_SYMBOL=*/kscope_ctl; }
#else
extern "C" { static __constant__ unsigned long long /*CTL_SYMBOL=*/kscope_ctl; }
#endif
#if !defined(__CUDA_ARCH__)
// Only the CUDA runtime that a library is linked with can find the library's modules, so the library exports a function
// that calls it. The units of one library form a list whose head the linker merges; it is hidden from other libraries.
namespace kscope {
struct __attribute__((visibility("hidden"))) unit_ { const void* control; unit_* next; };
template <class T> struct __attribute__((visibility("hidden"))) units_ { static unit_* first; };
template <class T> unit_* units_<T>::first = nullptr;
namespace {
struct registered_ : unit_ {
  registered_() {
    control = &/*CTL_SYMBOL=*/kscope_ctl;
    next = units_<void>::first;
    units_<void>::first = this;
  }
} registered_unit_;
}  // namespace
}  // namespace kscope
// The control block of one unit on the current device. Returns 0, -1 if there is no such unit, or a CUDA error.
extern "C" __attribute__((weak, visibility("default"), used))
int /*CONTROL_FUNCTION=*/kscope_control(int unit, unsigned long long* address) {
  const kscope::unit_* at = kscope::units_<void>::first;
  while (at && unit--) at = at->next;
  if (!at) return -1;
  void* found = nullptr;
  const cudaError_t error = cudaGetSymbolAddress(&found, at->control);
  *address = reinterpret_cast<unsigned long long>(found);
  return static_cast<int>(error);
}
#endif
#endif

// ---- no recording, or host code: empty macros; a value is named, but not evaluated
#if !KSCOPE || !defined(__CUDA_ARCH__)
#define KSCOPE_FIRST_(first, ...) first
#define KSCOPE_UNUSED_(...) static_cast<void>(sizeof((static_cast<void>(KSCOPE_FIRST_(__VA_ARGS__, 0)), 0)))
#define KSCOPE_KERNEL(...)
#define KSCOPE_REGION(...)
#define KSCOPE_REGION_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_REGION_OPEN(...)
#define KSCOPE_REGION_OPEN_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_ENTER(...)
#define KSCOPE_ENTER_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_EXIT(...)
#define KSCOPE_INSTANT(...)
#define KSCOPE_INSTANT_V(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_COUNTER(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_ROLE(...)
#define KSCOPE_BEGIN(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_END(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_REGION_IF(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_REGION_V_IF(name, value, ...) KSCOPE_UNUSED_(value), KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_INSTANT_IF(name, ...) KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_INSTANT_V_IF(name, value, ...) KSCOPE_UNUSED_(value), KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_COUNTER_IF(name, value, ...) KSCOPE_UNUSED_(value), KSCOPE_UNUSED_(__VA_ARGS__)
#define KSCOPE_PIN(...) KSCOPE_UNUSED_(__VA_ARGS__)

// ---- recording
#else
#define KSCOPE_CAT2_(a, b) a##b
#define KSCOPE_CAT_(a, b) KSCOPE_CAT2_(a, b)
#define KSCOPE_FIRST_(first, ...) first
#define KSCOPE_REST_(first, ...) __VA_ARGS__
// a mark's strategy: the argument after its name or value, else Session
#define KSCOPE_STRATEGY_(...) kscope::strategy_<KSCOPE_REST_(__VA_ARGS__, kscope::Session)>
#ifdef __COUNTER__
#define KSCOPE_COUNT_ __COUNTER__
#else  // NVRTC
#define KSCOPE_COUNT_ __LINE__
#endif
#ifdef __CUDACC_DEBUG__
#define KSCOPE_DEBUG_ 1
#else
#define KSCOPE_DEBUG_ 0
#endif
#define KSCOPE_FN_ __device__ __forceinline__
namespace kscope { typedef unsigned int b32_; typedef unsigned long long b64_; }
namespace kscope {
// 28-bit FNV-1a of a name, folded: what a record carries
KSCOPE_FN_ constexpr b32_ fnv_(const char* s, b32_ h) {
  return *s ? fnv_(s + 1, (h ^ static_cast<unsigned char>(*s)) * 0x01000193u) : h;
}
KSCOPE_FN_ constexpr b32_ fold_(b32_ h) { return (h >> 28) ^ (h & 0x0FFFFFFFu); }
KSCOPE_FN_ constexpr b32_ hash_(const char* s) { return fold_(fnv_(s, 0x811C9DC5u)); }

// eight bytes of a name as a number: little-endian, zero after its end
KSCOPE_FN_ constexpr b64_ byte_(const char* s, b32_ n, b32_ i) {
  return i < n ? static_cast<b64_>(static_cast<unsigned char>(s[i])) << 8 * (i % 8) : 0;
}
KSCOPE_FN_ constexpr b64_ word_(const char* s, b32_ n, b32_ i) {
  return byte_(s, n, 8 * i) | byte_(s, n, 8 * i + 1) | byte_(s, n, 8 * i + 2) | byte_(s, n, 8 * i + 3) |
         byte_(s, n, 8 * i + 4) | byte_(s, n, 8 * i + 5) | byte_(s, n, 8 * i + 6) | byte_(s, n, 8 * i + 7);
}

// distinguishes a string literal (or a constexpr array) from a pointer
template <b64_ N> struct literal_ { enum { ok = 1, size = N }; };
struct not_literal_ { enum { ok = 0, size = 2 }; };
template <b64_ N> KSCOPE_FN_ literal_<N> measure_(const char (&)[N]);
KSCOPE_FN_ not_literal_ measure_(...);

// a name as a type: its hash, its length in words, its words
template <b32_ HASH, b32_ WORDS, b64_ W0, b64_ W1, b64_ W2, b64_ W3, b64_ W4, b64_ W5, b64_ W6, b64_ W7, b64_ W8, b64_ W9,
          b64_ W10, b64_ W11, b64_ W12, b64_ W13, b64_ W14, b64_ W15>
struct name_ {
  enum : b32_ { hash = HASH, words = WORDS };
  enum : b64_ {
    w0 = W0, w1 = W1, w2 = W2, w3 = W3, w4 = W4, w5 = W5, w6 = W6, w7 = W7, w8 = W8, w9 = W9, w10 = W10, w11 = W11,
    w12 = W12, w13 = W13, w14 = W14, w15 = W15
  };
};
#define KSCOPE_WORD_(name, i) kscope::word_(name, sizeof(name) - 1, i)
#define KSCOPE_NAME_(name) kscope::name_<kscope::hash_(name), (sizeof(name) + 6) / 8, \
  KSCOPE_WORD_(name, 0), KSCOPE_WORD_(name, 1), KSCOPE_WORD_(name, 2), KSCOPE_WORD_(name, 3), \
  KSCOPE_WORD_(name, 4), KSCOPE_WORD_(name, 5), KSCOPE_WORD_(name, 6), KSCOPE_WORD_(name, 7), \
  KSCOPE_WORD_(name, 8), KSCOPE_WORD_(name, 9), KSCOPE_WORD_(name, 10), KSCOPE_WORD_(name, 11), \
  KSCOPE_WORD_(name, 12), KSCOPE_WORD_(name, 13), KSCOPE_WORD_(name, 14), KSCOPE_WORD_(name, 15)>
#define KSCOPE_CHECK_(name) \
  static_assert(decltype(kscope::measure_(name))::ok, "kscope: a region's name is a string literal, known when the " \
    "kernel is compiled; pass what changes at run time as a value: KSCOPE_REGION_V(\"name\", value)"); \
  static_assert(sizeof(name) > 1 && sizeof(name) <= /*MOST_NAME_SIZE=*/129, "kscope: a name has 1 to " \
    /*MOST_NAME_BYTES=*/"128" " bytes")

// the strategies, named as in Python
struct Session { enum : b64_ { code = /*CODE_SESSION=*/0 }; };  // that of the kernel or the session
struct Lane0Warp0 { enum : b64_ { code = /*CODE_BLOCK=*/1 }; };
struct Elected { enum : b64_ { code = /*CODE_WARP=*/2 }; };
struct ElectedAnyLane { enum : b64_ { code = /*CODE_ANY_LANE=*/17179869184 }; };  // Elected(any_lane=True)
struct AllThreads { enum : b64_ { code = /*CODE_LANES=*/3 }; };
template <int... WARPS> struct mask_ { enum : b64_ { value = 0 }; };
template <int WARP, int... WARPS> struct mask_<WARP, WARPS...> {
  static_assert(WARP >= 0 && WARP < /*MAX_WARPS=*/32, "kscope::TargetWarp: expected warps from 0 to " /*LAST_WARP=*/"31");
  enum : b64_ { value = 1ull << WARP | static_cast<b64_>(mask_<WARPS...>::value) };
};
template <int... WARPS> struct TargetWarp {
  static_assert(sizeof...(WARPS) > 0, "kscope::TargetWarp: name at least one warp, as in kscope::TargetWarp<0, 4>");
  enum : b64_ { code = static_cast<b64_>(mask_<WARPS...>::value) << 2 };
};
template <b32_ MASK> struct warps_ { enum : b64_ { code = static_cast<b64_>(MASK) << 2 }; };
// the strategy among a macro's arguments, to which the macro appends Session
template <class S, class...> struct first_ { typedef S type; };
template <class... S> struct one_ {
  static_assert(sizeof...(S) < 3, "kscope: a region has one strategy");
  typedef typename first_<S...>::type type;
};
template <class... S> using strategy_ = typename one_<S...>::type;

// a predicate: 32 bits, nonzero where a mark is recorded; and none
struct when_ {
  b32_ held;
  KSCOPE_FN_ when_(bool holds) : held(holds) {}
};
struct always_ { KSCOPE_FN_ always_(bool = true) {} };
// a region or point whose predicate is constant false
struct never_ {
  template <class... T> KSCOPE_FN_ never_(T...) {}
  KSCOPE_FN_ ~never_() {}
  template <class... T> static KSCOPE_FN_ void instant(T...) {}
  template <class... T> static KSCOPE_FN_ void counter(T...) {}
};
template <bool NEVER, class T> struct unless_ { typedef T type; };
template <class T> struct unless_<true, T> { typedef never_ type; };
template <bool NEVER, class T> using recorded_ = typename unless_<NEVER, T>::type;
// no value
struct none_ { enum { type = 0 }; };
// a value: 32 bits and their type
template <int TYPE> struct value_ {
  enum { type = TYPE };
  b32_ bits;
};
// the same of 64 bits
template <int TYPE> struct wide_ {
  enum { type = TYPE };
  b64_ bits;
};
enum {
  i32_ = /*TYPE_I32=*/1, u32_ = /*TYPE_U32=*/2, f32_ = /*TYPE_F32=*/3,
  i64_ = /*TYPE_I64=*/4, u64_ = /*TYPE_U64=*/5, f64_ = /*TYPE_F64=*/6
};
template <bool> struct enum_ {};
KSCOPE_FN_ value_<i32_> of_(int v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(short v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(signed char v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<i32_> of_(char v) { return value_<i32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned int v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned short v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<u32_> of_(unsigned char v) { return value_<u32_>{static_cast<b32_>(v)}; }
KSCOPE_FN_ value_<f32_> of_(float v) { return value_<f32_>{__float_as_uint(v)}; }
KSCOPE_FN_ wide_<i64_> of_(long long v) { return wide_<i64_>{static_cast<b64_>(v)}; }
KSCOPE_FN_ wide_<u64_> of_(unsigned long long v) { return wide_<u64_>{v}; }
KSCOPE_FN_ wide_<f64_> of_(double v) { return wide_<f64_>{static_cast<b64_>(__double_as_longlong(v))}; }
template <class T> KSCOPE_FN_ wide_<u64_> of_(T* v) { return wide_<u64_>{reinterpret_cast<b64_>(v)}; }
// a long has 64 bits, and 32 on Windows
template <int SIZE> struct long_ { typedef long long type; typedef unsigned long long natural; };
template <> struct long_<4> { typedef int type; typedef unsigned int natural; };
KSCOPE_FN_ auto of_(long v) { return of_(static_cast<long_<sizeof(long)>::type>(v)); }
KSCOPE_FN_ auto of_(unsigned long v) { return of_(static_cast<long_<sizeof(long)>::natural>(v)); }
template <class T> KSCOPE_FN_ value_<i32_> checked_(T v, enum_<true>) { return value_<i32_>{static_cast<b32_>(v)}; }
template <class T> KSCOPE_FN_ value_<i32_> checked_(T, enum_<false>) {
  static_assert(sizeof(T) == 0, "kscope: the value is an integer, a float, a double or a pointer; cast it, "
    "as in KSCOPE_REGION_V(\"name\", static_cast<int>(value))");
  return value_<i32_>{0};
}
template <class T> KSCOPE_FN_ value_<i32_> of_(T v) { return checked_(v, enum_<__is_enum(T) && sizeof(T) <= 4>()); }
#define KSCOPE_LINES_ /*LINES=*/65536
#if KSCOPE_MARKS

// ---- marks: comments in the PTX, in numbers; kscope/marks/grammar.py has the grammar
enum {
  act_enter_ = /*ACT_ENTER=*/0, act_exit_ = /*ACT_EXIT=*/1, act_instant_ = /*ACT_INSTANT=*/2,
  act_counter_ = /*ACT_COUNTER=*/3, act_pin_ = /*ACT_PIN=*/4, act_kernel_ = /*ACT_KERNEL=*/5
};
enum { with_ = /*HOW_WITH=*/0, call_ = /*HOW_CALL=*/1, open_with_ = /*HOW_OPEN=*/2, open_call_ = /*HOW_OPEN_CALL=*/3 };

// a mark with a name of up to WORDS words: WORDS is the name's operands, A and B the operands after them
template <b32_ WORDS> struct put_;
#define KSCOPE_PUT_(size, words, a, b, ...) \
  template <> struct put_<size> { \
    KSCOPE_PUT_MARK_(none_, always_, words, __VA_ARGS__) \
    KSCOPE_PUT_MARK_(value_<TYPE> v, always_, words " " a, __VA_ARGS__, "r"(v.bits)) \
    KSCOPE_PUT_MARK_(wide_<TYPE> v, always_, words " " a, __VA_ARGS__, "l"(v.bits)) \
    KSCOPE_PUT_MARK_(none_, when_ w, words " if " a, __VA_ARGS__, "r"(w.held)) \
    KSCOPE_PUT_MARK_(value_<TYPE> v, when_ w, words " " a " if " b, __VA_ARGS__, "r"(v.bits), "r"(w.held)) \
    KSCOPE_PUT_MARK_(wide_<TYPE> v, when_ w, words " " a " if " b, __VA_ARGS__, "l"(v.bits), "r"(w.held)) \
  };
#define KSCOPE_PUT_MARK_(value, when, text, ...) \
  template <int ACT, int HOW, b64_ CODE, class NAME, int TYPE = 0> static KSCOPE_FN_ void mark(value, when) { \
    asm volatile(KSCOPE_PACKED_ text :: KSCOPE_MARK_INPUTS_, __VA_ARGS__ : "memory"); \
  }
#define KSCOPE_PACKED_ /*PREFIX=*/"//kscope " "packed %0 %1 %2 %3 "
#define KSCOPE_MARK_INPUTS_ "n"(ACT), "n"(TYPE), "n"(HOW), "n"(CODE)
#define KSCOPE_W_(i) "n"(static_cast<b64_>(NAME::w##i))
#define KSCOPE_W2_(i, j) KSCOPE_W_(i), KSCOPE_W_(j)
#define KSCOPE_W4_(i, j, k, l) KSCOPE_W2_(i, j), KSCOPE_W2_(k, l)
#define KSCOPE_W8_(i, j, k, l, m, n, o, p) KSCOPE_W4_(i, j, k, l), KSCOPE_W4_(m, n, o, p)
KSCOPE_PUT_(1, "%4", "%5", "%6", KSCOPE_W_(0))
KSCOPE_PUT_(2, "%4.%5", "%6", "%7", KSCOPE_W2_(0, 1))
KSCOPE_PUT_(4, "%4.%5.%6.%7", "%8", "%9", KSCOPE_W4_(0, 1, 2, 3))
KSCOPE_PUT_(8, "%4.%5.%6.%7.%8.%9.%10.%11", "%12", "%13", KSCOPE_W8_(0, 1, 2, 3, 4, 5, 6, 7))
KSCOPE_PUT_(16, "%4.%5.%6.%7.%8.%9.%10.%11.%12.%13.%14.%15.%16.%17.%18.%19", "%20", "%21",
            KSCOPE_W8_(0, 1, 2, 3, 4, 5, 6, 7), KSCOPE_W8_(8, 9, 10, 11, 12, 13, 14, 15))
KSCOPE_FN_ constexpr b32_ rounded_(b32_ n) { return n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : 16; }

template <int ACT, int HOW, class NAME, class S, class V = none_, class W = always_>
KSCOPE_FN_ void print_(V v = V(), W w = W()) {
  put_<rounded_(NAME::words)>::template mark<ACT, HOW, S::code, NAME>(v, w);
}
template <int, class V> KSCOPE_FN_ void pin_(V v) {
  put_<1>::mark<act_pin_, call_, Session::code, KSCOPE_NAME_("pin")>(v, always_());
}
// the strategy of a kernel's marks that name none
template <class... S> struct list_ {
  static KSCOPE_FN_ void mark() {
    print_<act_kernel_, call_, KSCOPE_NAME_("kernel"), typename first_<S...>::type>();
  }
};
template <> struct list_<> { static KSCOPE_FN_ void mark() {} };
template <class NAME, class S, int, bool OPEN, class V, class W> struct region_ {
  KSCOPE_FN_ region_(V v, W w) { print_<act_enter_, OPEN ? open_with_ : with_, NAME, S>(v, w); }
  KSCOPE_FN_ ~region_() { print_<act_exit_, with_, NAME, S>(); }
  region_(const region_&) = delete;
  region_& operator=(const region_&) = delete;
};
template <class NAME, class S, int> struct mark_ {
  template <class V, class W> static KSCOPE_FN_ void enter(V v, W w) {
    print_<act_enter_, KSCOPE_OPEN ? open_call_ : call_, NAME, S>(v, w);
  }
  template <class V, class W> static KSCOPE_FN_ void exit(V v, W w) { print_<act_exit_, call_, NAME, S>(v, w); }
  template <class V, class W> static KSCOPE_FN_ void instant(V v, W w) { print_<act_instant_, with_, NAME, S>(v, w); }
  template <class V, class W> static KSCOPE_FN_ void counter(V v, W w) { print_<act_counter_, with_, NAME, S>(v, w); }
};
#else
// ---- Recording in place keeps its state in the kernel's registers, so a mark in a function that was not inlined, or is
// compiled with -G, is refused by that function's name. Only the assembler knows in which function a mark ends up, and
// its errors name symbols only. So each mark has a branch for threads whose index is outside their block.
// KSCOPE_KERNEL() makes the compiler assume that there are none, which removes the branch from everything inlined into
// such a kernel. In other functions it stays, and the assembler reports the function's name, which the branch holds in
// the prototype of a call. With -G each mark calls a host function instead, and nvcc names the caller; NVRTC, which has
// no host, gets a call as above whose argument is always missing.
#if KSCOPE_DEBUG_ && !defined(__CUDACC_RTC__)
KSCOPE_FN_ void assume_inside_() {}
void /*DEBUG_REFUSED=*/regions_need_a_build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0();
#define KSCOPE_APART_() { \
  _Pragma("nv_diagnostic push") _Pragma("nv_diag_error 20011") _Pragma("nv_diag_error 20014") \
  kscope::/*DEBUG_REFUSED=*/regions_need_a_build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0(); \
  _Pragma("nv_diagnostic pop") }
#elif __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1206
// a thread's index is inside its block: the compiler cannot derive it, and assumes it in kernels
KSCOPE_FN_ bool inside_() { return threadIdx.z < blockDim.z; }
KSCOPE_FN_ void assume_inside_() { __builtin_assume(inside_()); }
// a function's name as an identifier; F::at returns its characters
KSCOPE_FN_ constexpr bool letter_(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
template <b32_ N> KSCOPE_FN_ constexpr char in_name_(const char (&s)[N], b32_ i) {
  return letter_(s[i]) ? s[i] : '_';
}
template <int... I> struct numbers_ {
  typedef numbers_<I..., (int(sizeof...(I)) + I)...> twice;
  typedef numbers_<I..., (int(sizeof...(I)) + I)..., 2 * int(sizeof...(I))> twice_and_one;
};
template <int N, bool ODD = N % 2> struct below_ { typedef typename below_<N / 2>::type::twice type; };
template <int N> struct below_<N, true> { typedef typename below_<N / 2>::type::twice_and_one type; };
template <> struct below_<0, false> { typedef numbers_<> type; };
template <int LINE, class F, int... I> KSCOPE_FN_ void apart_(numbers_<I...>) {
  static constexpr const char name_[] = {F::at(I)..., 0};
  if (!inside_()) {
#if KSCOPE_DEBUG_
    // generated: refuse_debug_build
    asm volatile(
      "{ KS_APART: .callprototype _ (.param .b32 kscope_regions_need_a_build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0__%0);\n"
      ".reg .b64 ks_x; mov.b64 ks_x, 0; call ks_x, (kscope_mark_in_a_function_that_is_compiled_with_G_line_%1), KS_APART; }\n"
      :  : "C"(name_), "n"(LINE) : "memory");
    // end
#else
    // generated: refuse_by_name
    asm volatile(
      "{ KS_APART: .callprototype _ (.param .b32 kscope_inline_this_function_into_a_kernel_with_KSCOPE_KERNEL_or_keep_marks_out_of_it__%0);\n"
      ".reg .b64 ks_x; mov.b64 ks_x, 0; call ks_x, (kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%1), KS_APART; }\n"
      :  : "C"(name_), "n"(LINE) : "memory");
    // end
#endif
  }
}
#define KSCOPE_APART_() { \
  constexpr auto& kscope_signature_ = __PRETTY_FUNCTION__; \
  struct kscope_function_ { \
    static __device__ constexpr char at(int i) { return kscope::in_name_(kscope_signature_, i); } \
  }; \
  kscope::apart_<__LINE__ % KSCOPE_LINES_, kscope_function_>(kscope::below_< \
    sizeof(kscope_signature_) - 1 < 128 ? sizeof(kscope_signature_) - 1 : 128>::type()); }
#else
KSCOPE_FN_ void assume_inside_() {}
#define KSCOPE_APART_() static_assert(!KSCOPE_DEBUG_, "kscope: regions need a build without -G: leave it out, or " \
  "build plain with -DKSCOPE=0")
#endif
__device__ constexpr int ceil_(b64_ records, int log2) {
  return (1ull << log2) >= records ? log2 : ceil_(records, log2 + 1);
}
static_assert(KSCOPE_RECORDS >= 1 && KSCOPE_RECORDS <= /*MAX_RECORDS=*/1048576,
  "kscope: KSCOPE_RECORDS is 1 to " /*MAX_RECORDS=*/"1048576");
enum { log2_ = ceil_(KSCOPE_RECORDS, /*MIN_LOG2_RECORDS=*/2) };
enum : b32_ {
  flags_ = (KSCOPE_CLOCK_ == 2 ? /*FLAG_GLOBALTIMER=*/1 : /*FLAG_ANCHORS=*/16) |
           (KSCOPE_FILL_ == 2 ? /*FLAG_STOP=*/2 : 0)
};

#define KSCOPE_CHECK_PLACE_(strategy) static_assert((strategy) != kscope::b64_(kscope::ElectedAnyLane::code), \
  "kscope: ElectedAnyLane needs kscope's own lowering (CuPy, cuda.core, NVRTC); use Elected or AllThreads with nvcc")
// whether this thread records with a strategy
template <b64_ CODE> KSCOPE_FN_ b32_ records_() {
  KSCOPE_CHECK_PLACE_(CODE);
  const b32_ thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  return CODE == AllThreads::code  ? 1
       : CODE == Lane0Warp0::code  ? thread == 0
       : CODE == Elected::code     ? thread % 32 == 0
                                   : thread % 32 == 0 && ((CODE >> 2) >> (thread / 32) & 1);
}

// The prologue: everything up to the slab's head. One line depends on the architecture, and one, STRIPE, on which lanes
// record: all (AllThreads) or lane 0.
#if __CUDA_ARCH__ >= 900  // it has clusters of blocks
#define KSCOPE_CLUSTER_ /*cluster_90=*/"mov.u32 ks_t, %%cluster_nctaid.z; mov.u32 ks_u, %%cluster_nctaid.y; shl.b32 ks_t, ks_t, 8; or.b32 ks_t, ks_t, ks_u; mov.u32 ks_u, %%cluster_nctaid.x; shl.b32 ks_t, ks_t, 8; or.b32 ks_t, ks_t, ks_u; shl.b32 ks_t, ks_t, 8; mov.u32 ks_u, %%cluster_nctarank; setp.gt.u32 ks_r, ks_u, 1; selp.b32 ks_t, ks_t, 0, ks_r;\n"
#else
#define KSCOPE_CLUSTER_ /*cluster_75=*/"mov.u32 ks_t, 0;\n"
#endif
// generated: retry as KSCOPE_RETRY_
#define KSCOPE_RETRY_ \
    "mad.wide.u32 ks_line, ks_stripe, 128, ks_ctl;\n" \
    "@ks_try red.global.add.u32 [ks_line+16520], %2;\n" \
    "not.pred ks_r, ks_room; and.pred ks_r, ks_r, ks_try;\n" \
    "setp.ne.and.u32 ks_q, ks_stripe, ks_stripes, ks_r; mov.u32 ks_x, 0; mov.u32 ks_y, 0;\n" \
    "mad.wide.u32 ks_line, ks_stripes, 128, ks_ctl;\n" \
    "@ks_q ld.volatile.global.v2.u32 {ks_x, ks_y}, [ks_line+16512];\n" \
    "@ks_r mov.u32 ks_stripe, ks_stripes; sub.u32 ks_x, ks_y, ks_x; setp.lt.and.s32 ks_r, ks_x, %2, ks_r;\n" \
    "min.u32 ks_x, ks_sm, ks_stripes; mad.wide.u32 ks_line, ks_x, 128, ks_ctl;\n" \
    "@ks_r red.global.add.u32 [ks_line+16524], 1;\n" \
    "not.pred ks_r, ks_r; and.pred ks_on, ks_on, ks_r; and.pred ks_try, ks_try, ks_r;\n" \
    "mad.wide.u32 ks_line, ks_stripe, 128, ks_ctl;\n" \
    "@ks_try atom.global.add.u32 ks_p, [ks_line+16512], %2;\n" \
    "@ks_try ld.volatile.global.u32 ks_limit, [ks_line+16516];\n" \
    "@ks_try ld.global.u64 ks_ring, [ks_line+16528];\n" \
    "@ks_try ld.global.u32 ks_mask, [ks_line+16536];\n" \
    "sub.u32 ks_x, ks_limit, ks_p; setp.ge.u32 ks_room, ks_x, %2; sub.u32 ks_x, ks_x, 1; setp.le.and.u32 ks_room, ks_x, ks_mask, ks_room;\n" \
    "and.b32 ks_at, ks_p, ks_mask; add.u32 ks_x, ks_at, %2; sub.u32 ks_x, ks_x, 1; setp.le.and.u32 ks_q, ks_x, ks_mask, ks_room;\n" \
    "not.pred ks_q, ks_q; and.pred ks_try, ks_try, ks_q;\n" \
    "vote.sync.any.pred ks_full, ks_try, 0xffffffff;\n" \
    "@!ks_full bra.uni KS_SETTLED;\n"
// end
// generated: begin as KSCOPE_BEGIN_(STRIPE)
#define KSCOPE_BEGIN_(STRIPE) \
  asm volatile( \
    ".reg .b32 kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_<65536>; .reg .b64 ks_t<65536>; .reg .b32 ks_i<65536>, ks_v<65536>;\n" \
    ".reg .pred ks_on, ks_try, ks_room, ks_full, ks_first, ks_never; .reg .b64 ks_base, ks_ctl, ks_ring, ks_c, ks_g; .reg .b32 ks_n, ks_w, ks_epoch, ks_stripes, ks_warps, ks_sampled, ks_sm, ks_thread, ks_stripe, ks_p, ks_at, ks_limit, ks_mask;\n" \
    ".reg .b32 ks_seq; .reg .b32 ks_edge; .reg .pred ks_due;\n" \
    "mov.u64 ks_c, %%clock64;\n" \
    "mov.u64 ks_g, %%globaltimer;\n" \
    "{ .reg .b64 ks_d; .reg .b32 ks_x, ks_y, ks_z; mov.u64 ks_d, %%clock64; sub.u64 ks_d, ks_d, ks_c; shr.u64 ks_d, ks_d, 2; min.u64 ks_d, ks_d, 254; cvt.u32.u64 ks_w, ks_d; add.u32 ks_w, ks_w, 1;\n" \
    "mov.b64 {ks_x, ks_y}, ks_g; mov.b64 {ks_x, ks_z}, ks_c; prmt.b32 ks_y, ks_y, ks_z, 0x4040; prmt.b32 ks_w, ks_w, ks_y, 0x7610; }\n" \
    "mov.u32 ks_edge, 0; { .reg .b32 ks_l; cvt.u32.u64 ks_l, ks_c; dp2a.lo.u32.u32 ks_edge, ks_l, 256, ks_edge; } neg.s32 ks_edge, ks_edge; and.b32 ks_edge, ks_edge, 65535;\n" \
    "mov.u64 ks_ctl, %0;\n" \
    "setp.eq.u64 ks_never, ks_ctl, 1;\n" \
    "mov.u32 ks_epoch, 0; mov.u32 ks_warps, 0; mov.u32 ks_stripes, 0; mov.u32 ks_sampled, 0; setp.ne.u64 ks_try, ks_ctl, 0;\n" \
    "@ks_try ld.global.v4.u32 {ks_epoch, ks_stripes, ks_warps, ks_sampled}, [ks_ctl+0];\n" \
    "mov.u32 ks_seq, 0;\n" \
    "{ .reg .pred ks_q; .reg .b32 ks_t, ks_x, ks_y, ks_z; .reg .b64 ks_line, ks_a, ks_b;\n" \
    "mov.u64 ks_base, 0; mov.u32 ks_n, 0; setp.ne.u64 ks_on, ks_ctl, ks_ctl; setp.eq.u32 ks_q, ks_epoch, 0;\n" \
    "@ks_q bra.uni KS_OFF;\n" \
    "setp.ne.u64 ks_q, ks_ctl, 0;\n" \
    "mov.u32 ks_t, %%tid.z; mov.u32 ks_y, %%ntid.y; mov.u32 ks_z, %%tid.y; mad.lo.u32 ks_t, ks_t, ks_y, ks_z; mov.u32 ks_y, %%ntid.x; mov.u32 ks_z, %%tid.x; mad.lo.u32 ks_t, ks_t, ks_y, ks_z;\n" \
    "setp.ne.u32 ks_on, %1, 0;\n" \
    "mov.u32 ks_thread, ks_t; mov.u32 ks_sm, %%smid;\n" \
    "setp.eq.u32 ks_q, ks_sampled, 0;\n" \
    "@ks_q bra.uni KS_CHOSEN;\n" \
    "shr.u32 ks_x, ks_t, 5; shr.u32 ks_x, ks_warps, ks_x; and.b32 ks_x, ks_x, 1; setp.ne.and.u32 ks_on, ks_x, 0, ks_on;\n" \
    "min.u32 ks_x, ks_sm, 511; shr.u32 ks_x, ks_x, 5; mad.wide.u32 ks_a, ks_x, 4, ks_ctl;\n" \
    "ld.global.u32 ks_y, [ks_a+64];\n" \
    "and.b32 ks_x, ks_sm, 31; shr.u32 ks_y, ks_y, ks_x; and.b32 ks_y, ks_y, 1; setp.ne.and.u32 ks_on, ks_y, 0, ks_on;\n" \
    "mov.u32 ks_x, %%nctaid.y; mov.u32 ks_y, %%ctaid.z; mul.wide.u32 ks_a, ks_x, ks_y; mov.u32 ks_x, %%ctaid.y; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n" \
    "mov.u32 ks_x, %%nctaid.x; cvt.u64.u32 ks_b, ks_x; mul.lo.u64 ks_a, ks_a, ks_b; mov.u32 ks_x, %%ctaid.x; cvt.u64.u32 ks_b, ks_x; add.u64 ks_a, ks_a, ks_b;\n" \
    "ld.global.u64 ks_b, [ks_ctl+24]; sub.u64 ks_a, ks_a, ks_b;\n" \
    "ld.global.u64 ks_b, [ks_ctl+32]; setp.lt.and.u64 ks_on, ks_a, ks_b, ks_on;\n" \
    "cvt.u32.u64 ks_x, ks_a; cvt.u64.u32 ks_a, ks_x; ld.global.u64 ks_b, [ks_ctl+16];\n" \
    "mul.lo.u64 ks_a, ks_a, ks_b; sub.u64 ks_b, ks_b, 1; setp.le.and.u64 ks_on, ks_a, ks_b, ks_on;\n" \
    "KS_CHOSEN:\n" \
    STRIPE \
    "mad.wide.u32 ks_line, ks_stripe, 128, ks_ctl;\n" \
    "@ks_try atom.global.add.u32 ks_p, [ks_line+16512], %2;\n" \
    "@ks_try ld.volatile.global.u32 ks_limit, [ks_line+16516];\n" \
    "@ks_try ld.global.u64 ks_ring, [ks_line+16528];\n" \
    "@ks_try ld.global.u32 ks_mask, [ks_line+16536];\n" \
    "KS_OFF:\n" \
    "}\n" \
    "setp.eq.u32 ks_full, ks_epoch, 0;\n" \
    "@ks_full bra.uni KS_DONE;\n" \
    "{ .reg .pred ks_q; .reg .b32 ks_x;\n" \
    "sub.u32 ks_x, ks_limit, ks_p; setp.ge.u32 ks_room, ks_x, %2; sub.u32 ks_x, ks_x, 1; setp.le.and.u32 ks_room, ks_x, ks_mask, ks_room;\n" \
    "and.b32 ks_at, ks_p, ks_mask; add.u32 ks_x, ks_at, %2; sub.u32 ks_x, ks_x, 1; setp.le.and.u32 ks_q, ks_x, ks_mask, ks_room;\n" \
    "not.pred ks_q, ks_q; and.pred ks_try, ks_try, ks_q;\n" \
    "vote.sync.any.pred ks_full, ks_try, 0xffffffff; }\n" \
    "@ks_full bra.uni KS_AGAIN;\n" \
    "KS_HAVE:\n" \
    "{ .reg .b32 ks_t, ks_x, ks_y, ks_z, ks_u; .reg .b64 ks_a;\n" \
    "mov.u32 ks_z, %%ctaid.z; mov.u32 ks_y, %%nctaid.y; mov.u32 ks_x, %%ctaid.y; mad.lo.u32 ks_z, ks_z, ks_y, ks_x; mov.u32 ks_y, %%nctaid.x; mov.u32 ks_x, %%ctaid.x; mad.lo.u32 ks_z, ks_z, ks_y, ks_x;\n" \
    "and.b32 ks_x, ks_thread, 31; shl.b32 ks_x, ks_x, 4; mad.lo.u32 ks_x, ks_z, 512, ks_x;\n" \
    "mov.u64 ks_a, %%gridid; cvt.u32.u64 ks_y, ks_a; prmt.b32 ks_w, ks_w, ks_y, 0x3260;\n" \
    "shr.u32 ks_t, ks_thread, 5; mad.lo.u32 ks_t, ks_sm, 64, ks_t; mad.lo.u32 ks_t, ks_y, 65536, ks_t; and.b32 ks_y, ks_epoch, 1; mad.lo.u32 ks_t, ks_y, 32, ks_t;\n" \
    "cvt.u32.u64 ks_y, ks_c; cvt.u32.u64 ks_u, ks_g; shr.u32 ks_u, ks_u, 5; add.u32 ks_u, ks_u, %3;\n" \
    "mad.wide.u32 ks_base, ks_at, 32, ks_ring;\n" \
    "@ks_on st.global.v4.u32 [ks_base], {ks_t, ks_x, ks_y, ks_u};\n" \
    "shr.u32 ks_y, ks_thread, 5; or.b32 ks_y, ks_y, ks_z; setp.eq.u32 ks_first, ks_y, 0; vote.sync.any.pred ks_first, ks_first, 0xffffffff;\n" \
    "selp.b64 ks_base, ks_base, 0, ks_on; }\n" \
    "@ks_first bra.uni KS_LAUNCH;\n" \
    "KS_DONE:\n" \
    "bra.uni KS_BODY;\n" \
    "KS_LAUNCH:\n" \
    "{ .reg .pred ks_q, ks_r; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u, ks_check; .reg .b64 ks_line, ks_a; .reg .pred ks_m; .reg .b64 ks_book;\n" \
    "setp.eq.u32 ks_q, ks_thread, 0; mad.wide.u32 ks_line, ks_stripes, 128, ks_ctl; mov.u64 ks_a, %%gridid; mov.b64 {ks_x, ks_y}, ks_a; and.b32 ks_z, ks_x, 65535; mad.wide.u32 ks_line, ks_z, 64, ks_line;\n" \
    "ld.global.u64 ks_book, [ks_ctl+40]; setp.ne.and.u64 ks_m, ks_book, 0, ks_q; mad.wide.u32 ks_book, ks_z, 64, ks_book;\n" \
    "shr.u32 ks_check, ks_thread, 5; add.u32 ks_check, ks_check, ks_epoch; mov.u32 ks_z, %4; mov.u32 ks_t, %5;\n" \
    "xor.b32 ks_check, ks_check, ks_x; xor.b32 ks_check, ks_check, ks_y; xor.b32 ks_check, ks_check, ks_z; xor.b32 ks_check, ks_check, ks_t; @ks_q st.global.v4.u32 [ks_line+16640], {ks_x, ks_y, ks_z, ks_t}; @ks_m st.global.v4.u32 [ks_book+0], {ks_x, ks_y, ks_z, ks_t};\n" \
    "mov.u32 ks_x, %%nctaid.x; mov.u32 ks_y, %%nctaid.z; shl.b32 ks_y, ks_y, 16; mov.u32 ks_u, %%nctaid.y; or.b32 ks_y, ks_y, ks_u;\n" \
    "mov.u32 ks_z, %%ntid.z; sub.u32 ks_z, ks_z, 1; shl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %%ntid.y; sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n" \
    "shl.b32 ks_z, ks_z, 10; mov.u32 ks_u, %%ntid.x; sub.u32 ks_u, ks_u, 1; or.b32 ks_z, ks_z, ks_u;\n" \
    KSCOPE_CLUSTER_ \
    "xor.b32 ks_check, ks_check, ks_x; xor.b32 ks_check, ks_check, ks_y; xor.b32 ks_check, ks_check, ks_z; xor.b32 ks_check, ks_check, ks_t; @ks_q st.global.v4.u32 [ks_line+16656], {ks_x, ks_y, ks_z, ks_t}; @ks_m st.global.v4.u32 [ks_book+16], {ks_x, ks_y, ks_z, ks_t};\n" \
    "mov.b64 {ks_x, ks_y}, ks_g; mov.u32 ks_z, %6;\n" \
    "xor.b32 ks_check, ks_check, ks_x; xor.b32 ks_check, ks_check, ks_y; xor.b32 ks_check, ks_check, ks_z; @ks_q st.global.v4.u32 [ks_line+16672], {ks_x, ks_y, ks_z, ks_check}; @ks_m st.global.v4.u32 [ks_book+32], {ks_x, ks_y, ks_z, ks_check};\n" \
    "}\n" \
    "bra.uni KS_DONE;\n" \
    "KS_AGAIN:\n" \
    "{ .reg .pred ks_q, ks_r; .reg .b32 ks_x, ks_y, ks_z; .reg .b64 ks_line;\n" \
    KSCOPE_RETRY_ \
    KSCOPE_RETRY_ \
    KSCOPE_RETRY_ \
    "mad.wide.u32 ks_line, ks_stripe, 128, ks_ctl;\n" \
    "@ks_try red.global.add.u32 [ks_line+16520], %2;\n" \
    "min.u32 ks_x, ks_sm, ks_stripes; mad.wide.u32 ks_line, ks_x, 128, ks_ctl;\n" \
    "@ks_try red.global.add.u32 [ks_line+16524], 1;\n" \
    "not.pred ks_r, ks_try; and.pred ks_on, ks_on, ks_r;\n" \
    "KS_SETTLED:\n" \
    "}\n" \
    "bra.uni KS_HAVE;\n" \
    "KS_BODY:\n" \
    :  : "l"(kscope_ctl), "r"(records), "n"((((1 << log2_) / 2) + 1)), "n"((log2_ << 27)), "n"(LOW), "n"(HIGH), "n"(PLACE) : "memory");
// end
template <bool> struct lanes_ {};
template <b32_ LOW, b32_ HIGH, b32_ PLACE>
KSCOPE_FN_ void begin_(b32_ records, lanes_<true>) {
  KSCOPE_BEGIN_(/*stripe_lanes=*/"min.u32 ks_stripe, ks_sm, ks_stripes; mov.pred ks_try, ks_on;\n")
}
template <b32_ LOW, b32_ HIGH, b32_ PLACE>
KSCOPE_FN_ void begin_(b32_ records, lanes_<false>) {
  KSCOPE_BEGIN_(/*stripe_warp=*/"and.b32 ks_x, ks_thread, 31; add.u32 ks_x, ks_x, ks_sm; min.u32 ks_stripe, ks_x, ks_stripes; mov.pred ks_try, ks_on;\n")
}
// Before each clock read, as a barrier may precede it anywhere: the read waits until the barrier has finished.
#if __CUDA_ARCH__ >= 900
#define KSCOPE_BARRIER_FENCE_ /*barrier_fence=*/"fence.mbarrier_init.release.cluster;\n"
#else
#define KSCOPE_BARRIER_FENCE_ "//\n"
#endif
KSCOPE_FN_ b64_ clock_() {
  b64_ t;
  // generated: read_CLOCK
  asm volatile(
    KSCOPE_BARRIER_FENCE_
#if KSCOPE_CLOCK_ == 1
    "mov.u64 %0, %%clock64;\n"
#else
    "mov.u64 %0, %%globaltimer;\n"
#endif
    : "=l"(t) :  : "memory");
  // end
  return t;
}
template <b32_ SLOT, b32_ RECORD> KSCOPE_FN_ void remember_(b32_ value) {
  // generated: remember_CLOCK
  asm volatile(
    KSCOPE_BARRIER_FENCE_
#if KSCOPE_CLOCK_ == 1
    "mov.u64 ks_t%0, %%clock64; mov.b32 ks_i%0, %1; mov.b32 ks_v%0, %2;\n"
#else
    "mov.u64 ks_t%0, %%globaltimer; mov.b32 ks_i%0, %1; mov.b32 ks_v%0, %2;\n"
#endif
    :  : "n"(SLOT), "n"(RECORD), "r"(value) : "memory");
  // end
}
// a value in a record's word, and in the word of an open region
template <int VALUED> struct narrow_ {
  enum { valued = VALUED };
  b32_ word, open;
};
KSCOPE_FN_ narrow_<0> kept_(none_) { return narrow_<0>{0, 0}; }
template <int TYPE> KSCOPE_FN_ narrow_<1> kept_(value_<TYPE> v) { return narrow_<1>{v.bits, v.bits}; }
// of 64 bits: also what the record's word does not imply, as kscope/marks/wide_values.py says
struct halves_ {
  enum { valued = 1 };
  b32_ word, rest, open;
};
KSCOPE_FN_ halves_ kept_(wide_<i64_> v) {
  const b32_ word = static_cast<b32_>(v.bits), rest = static_cast<b32_>(v.bits >> 32) ^ (word >> 31 ? ~0u : 0u);
  return halves_{word, rest, rest ? /*OPEN_I64=*/2147483648u : word};
}
KSCOPE_FN_ halves_ kept_(wide_<u64_> v) {
  const b32_ word = static_cast<b32_>(v.bits), rest = static_cast<b32_>(v.bits >> 32);
  return halves_{word, rest, rest ? /*OPEN_U64=*/4294967295u : word};
}
KSCOPE_FN_ halves_ kept_(wide_<f64_> v) {
  const b32_ word = static_cast<b32_>(v.bits >> 32);
  return halves_{word, static_cast<b32_>(v.bits), word};
}
template <b64_ CODE, b32_ RECORD, int LINE, int V>
KSCOPE_FN_ void store_(b64_ start, b64_ end, narrow_<V> v, always_) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: store_FILL
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
#if KSCOPE_FILL_ == 1
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el;\n"
#else
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el; .reg .pred ks_q; setp.le.and.u32 ks_q, ks_n, %1, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
#endif
    "and.b32 ks_i, ks_n, %1; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "cvt.u32.u64 ks_sl, %3; cvt.u32.u64 ks_el, %4;\n"
#if KSCOPE_FILL_ == 1
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 st.global.v4.b32 [ks_a+32], {ks_sl, %5, ks_el, %6};\n"
#else
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, %5, ks_el, %6};\n"
#endif
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 add.u32 ks_n, ks_n, 1; }\n"
    :  : "n"(LINE), "n"(((1 << log2_) - 1)), "n"(CODE), "l"(start), "l"(end), "n"(RECORD), "r"(v.word) : "memory");
  // end
}
template <b64_ CODE, b32_ RECORD, int LINE, int V>
KSCOPE_FN_ void store_(b64_ start, b64_ end, narrow_<V> v, when_ w) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: store_if_FILL
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .pred ks_w0; setp.ne.u32 ks_w0, %1, 0;\n"
#if KSCOPE_FILL_ == 1
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el; .reg .pred ks_h; and.pred ks_h, ks_w0, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
#else
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el; .reg .pred ks_h; and.pred ks_h, ks_w0, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2; .reg .pred ks_q; setp.le.and.u32 ks_q, ks_n, %3, ks_h;\n"
#endif
    "and.b32 ks_i, ks_n, %3; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "cvt.u32.u64 ks_sl, %4; cvt.u32.u64 ks_el, %5;\n"
#if KSCOPE_FILL_ == 1
    "@ks_h st.global.v4.b32 [ks_a+32], {ks_sl, %6, ks_el, %7};\n"
#else
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, %6, ks_el, %7};\n"
#endif
    "@ks_h add.u32 ks_n, ks_n, 1; }\n"
    "}\n"
    :  : "n"(LINE), "r"(w.held), "n"(CODE), "n"(((1 << log2_) - 1)), "l"(start), "l"(end), "n"(RECORD), "r"(v.word) : "memory");
  // end
}
template <b64_ CODE, b32_ RECORD, int LINE> KSCOPE_FN_ void store_(b64_ start, b64_ end, halves_ v, always_) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: store_wide_FILL
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .b32 ks_u0; mov.b32 ks_u0, %1;\n"
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el, ks_k; .reg .pred ks_h, ks_m, ks_q; setp.ne.and.u32 ks_m, ks_u0, 0, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
    "cvt.u32.u64 ks_sl, %3; cvt.u32.u64 ks_el, %4; selp.b32 ks_k, %5, %6, ks_m;\n"
#if KSCOPE_FILL_ == 1
    "and.b32 ks_i, ks_n, %7; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "@ks_m st.global.v4.b32 [ks_a+32], {ks_sl, %8, ks_el, ks_u0};\n"
#else
    "and.b32 ks_i, ks_n, %7; mad.wide.u32 ks_a, ks_i, 16, ks_base; setp.le.and.u32 ks_q, ks_n, %7, ks_m;\n"
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, %8, ks_el, ks_u0};\n"
#endif
    "@ks_m add.u32 ks_n, ks_n, 1;\n"
#if KSCOPE_FILL_ == 1
    "and.b32 ks_i, ks_n, %7; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 st.global.v4.b32 [ks_a+32], {ks_sl, ks_k, ks_el, %9};\n"
#else
    "and.b32 ks_i, ks_n, %7; mad.wide.u32 ks_a, ks_i, 16, ks_base; setp.le.and.u32 ks_q, ks_n, %7, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, ks_k, ks_el, %9};\n"
#endif
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 add.u32 ks_n, ks_n, 1;\n"
    "}\n"
    "}\n"
    :  : "n"(LINE), "r"(v.rest), "n"(CODE), "l"(start), "l"(end), "n"((RECORD | 8)), "n"(RECORD), "n"(((1 << log2_) - 1)), "n"((RECORD / 16 * 16 + 7)), "r"(v.word) : "memory");
  // end
}
template <b64_ CODE, b32_ RECORD, int LINE> KSCOPE_FN_ void store_(b64_ start, b64_ end, halves_ v, when_ w) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: store_wide_if_FILL
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .pred ks_w0; setp.ne.u32 ks_w0, %1, 0;\n"
    "{ .reg .b32 ks_u0; mov.b32 ks_u0, %2;\n"
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el, ks_k; .reg .pred ks_h, ks_m, ks_q; and.pred ks_h, ks_w0, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%3; setp.ne.and.u32 ks_m, ks_u0, 0, ks_h;\n"
    "cvt.u32.u64 ks_sl, %4; cvt.u32.u64 ks_el, %5; selp.b32 ks_k, %6, %7, ks_m;\n"
#if KSCOPE_FILL_ == 1
    "and.b32 ks_i, ks_n, %8; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "@ks_m st.global.v4.b32 [ks_a+32], {ks_sl, %9, ks_el, ks_u0};\n"
#else
    "and.b32 ks_i, ks_n, %8; mad.wide.u32 ks_a, ks_i, 16, ks_base; setp.le.and.u32 ks_q, ks_n, %8, ks_m;\n"
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, %9, ks_el, ks_u0};\n"
#endif
    "@ks_m add.u32 ks_n, ks_n, 1;\n"
#if KSCOPE_FILL_ == 1
    "and.b32 ks_i, ks_n, %8; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "@ks_h st.global.v4.b32 [ks_a+32], {ks_sl, ks_k, ks_el, %10};\n"
#else
    "and.b32 ks_i, ks_n, %8; mad.wide.u32 ks_a, ks_i, 16, ks_base; setp.le.and.u32 ks_q, ks_n, %8, ks_h;\n"
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, ks_k, ks_el, %10};\n"
#endif
    "@ks_h add.u32 ks_n, ks_n, 1;\n"
    "}\n"
    "}\n"
    "}\n"
    :  : "n"(LINE), "r"(w.held), "r"(v.rest), "n"(CODE), "l"(start), "l"(end), "n"((RECORD | 8)), "n"(RECORD), "n"(((1 << log2_) - 1)), "n"((RECORD / 16 * 16 + 7)), "r"(v.word) : "memory");
  // end
}
template <b64_ CODE, b32_ SLOT, int LINE> KSCOPE_FN_ void store_remembered_(b64_ end) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: store_remembered_FILL
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
#if KSCOPE_FILL_ == 1
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el;\n"
#else
    "{ .reg .b64 ks_a; .reg .b32 ks_i, ks_sl, ks_el; .reg .pred ks_q; setp.le.and.u32 ks_q, ks_n, %1, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
#endif
    "and.b32 ks_i, ks_n, %1; mad.wide.u32 ks_a, ks_i, 16, ks_base;\n"
    "cvt.u32.u64 ks_sl, ks_t%3; cvt.u32.u64 ks_el, %4;\n"
#if KSCOPE_FILL_ == 1
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 st.global.v4.b32 [ks_a+32], {ks_sl, ks_i%3, ks_el, ks_v%3};\n"
#else
    "@ks_q st.global.v4.b32 [ks_a+32], {ks_sl, ks_i%3, ks_el, ks_v%3};\n"
#endif
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2 add.u32 ks_n, ks_n, 1; }\n"
    :  : "n"(LINE), "n"(((1 << log2_) - 1)), "n"(CODE), "n"(SLOT), "l"(end) : "memory");
  // end
}
// at a region's enter: a word where the end of the slab's head will be
template <b64_ CODE, b32_ NUMBER, int LINE> KSCOPE_FN_ void open_word_(b64_ start, b32_ value, always_) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: open_word
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .b32 ks_x, ks_y;\n"
    "add.u32 ks_seq, ks_seq, 256; shr.u32 ks_y, ks_seq, 8; and.b32 ks_y, ks_y, 15; or.b32 ks_y, ks_y, %1; cvt.u32.u64 ks_x, %2;\n"
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%3 st.global.v4.b32 [ks_base+16], {ks_x, ks_y, %4, ks_seq}; }\n"
    :  : "n"(LINE), "n"(NUMBER), "l"(start), "n"(CODE), "r"(value) : "memory");
  // end
}
template <b64_ CODE, b32_ NUMBER, int LINE> KSCOPE_FN_ void open_word_(b64_ start, b32_ value, when_ w) {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: open_word_if
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .pred ks_w0; setp.ne.u32 ks_w0, %1, 0;\n"
    "{ .reg .b32 ks_x, ks_y; .reg .pred ks_h; and.pred ks_h, ks_w0, ks_strategy_that_KSCOPE_KERNEL_does_not_list_%2;\n"
    "add.u32 ks_seq, ks_seq, 256; shr.u32 ks_y, ks_seq, 8; and.b32 ks_y, ks_y, 15; or.b32 ks_y, ks_y, %3; cvt.u32.u64 ks_x, %4;\n"
    "@ks_h st.global.v4.b32 [ks_base+16], {ks_x, ks_y, %5, ks_seq}; }\n"
    "}\n"
    :  : "n"(LINE), "r"(w.held), "n"(CODE), "n"(NUMBER), "l"(start), "r"(value) : "memory");
  // end
}
template <b64_ CODE, b32_ NUMBER, b32_ SLOT, int LINE> KSCOPE_FN_ void open_word_remembered_() {
  KSCOPE_CHECK_PLACE_(CODE);
  // generated: open_word_remembered
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "{ .reg .b32 ks_x, ks_y;\n"
    "add.u32 ks_seq, ks_seq, 256; shr.u32 ks_y, ks_seq, 8; and.b32 ks_y, ks_y, 15; or.b32 ks_y, ks_y, %1; cvt.u32.u64 ks_x, ks_t%2;\n"
    "@ks_strategy_that_KSCOPE_KERNEL_does_not_list_%3 st.global.v4.b32 [ks_base+16], {ks_x, ks_y, ks_v%2, ks_seq}; }\n"
    :  : "n"(LINE), "n"(NUMBER), "n"(SLOT), "n"(CODE) : "memory");
  // end
}
template <b64_ CODE> KSCOPE_FN_ void owner_(b32_ records) {
  // generated: declare_owner
  asm volatile(
    ".reg .pred ks_strategy_that_KSCOPE_KERNEL_does_not_list_%0; setp.ne.and.u32 ks_strategy_that_KSCOPE_KERNEL_does_not_list_%0, %1, 0, ks_on;\n"
    :  : "n"(CODE), "r"(records) : "memory");
  // end
}
// behind a record: an anchor, if the record is the first one behind an edge
KSCOPE_FN_ void anchor_(b64_ end) {
#if KSCOPE_CLOCK_ == 1
  // generated: anchor_FILL
  asm volatile(
    "{ .reg .b32 ks_x; { .reg .b32 ks_l; cvt.u32.u64 ks_l, %0; dp2a.lo.u32.u32 ks_x, ks_l, 256, ks_edge; } and.b32 ks_x, ks_x, 65532; setp.ne.u32 ks_due, ks_x, 0; }\n"
    "{ .reg .pred ks_q;\n"
    "@!ks_due bra KS_SOON;\n"
#if KSCOPE_FILL_ == 2
    "setp.gt.u32 ks_q, ks_n, %1;\n"
    "@ks_q bra KS_SOON;\n"
#endif
    "{ .reg .b64 ks_a, ks_b, ks_d, ks_to; .reg .b32 ks_i, ks_x, ks_y, ks_z;\n"
    "mov.u64 ks_a, %%clock64; mov.u64 ks_b, %%globaltimer; mov.u64 ks_d, %%clock64;\n"
    "and.b32 ks_i, ks_n, %1; mad.wide.u32 ks_to, ks_i, 16, ks_base;\n"
    "{ .reg .b32 ks_l; cvt.u32.u64 ks_l, ks_a; dp2a.lo.u32.u32 ks_i, ks_l, 256, ks_edge; } and.b32 ks_i, ks_i, 65535;\n"
    "cvt.u32.u64 ks_x, ks_a; cvt.u32.u64 ks_y, ks_b; cvt.u32.u64 ks_z, ks_d;\n"
    "@ks_on st.global.v4.b32 [ks_to+32], {ks_x, 6, ks_z, ks_y};\n"
    "add.u32 ks_n, ks_n, 1;\n"
    "sub.u32 ks_i, ks_edge, ks_i; and.b32 ks_i, ks_i, 65535; and.b32 ks_edge, ks_edge, 4294836224;\n"
    "or.b32 ks_edge, ks_edge, ks_i; add.u32 ks_edge, ks_edge, 131072; }\n"
    "KS_SOON:\n"
    "}\n"
    :  : "l"(end), "n"(((1 << log2_) - 1)) : "memory");
  // end
#endif
}
KSCOPE_FN_ void end_() {
#if KSCOPE_CLOCK_ == 1 && KSCOPE_FILL_ == 1
  // generated: finish_with_anchors
  asm volatile(
    "{ .reg .b64 ks_a, ks_b, ks_d; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u, ks_v;\n"
    "mov.u64 ks_a, %%clock64; mov.u64 ks_b, %%globaltimer; mov.u64 ks_d, %%clock64;\n"
    "sub.u64 ks_d, ks_d, ks_a; shr.u64 ks_d, ks_d, 2; min.u64 ks_d, ks_d, 254; cvt.u32.u64 ks_u, ks_d; add.u32 ks_u, ks_u, 1; and.b32 ks_v, ks_w, 255; max.u32 ks_u, ks_u, ks_v; prmt.b32 ks_u, ks_u, ks_w, 0x7650;\n"
    "mov.b64 {ks_x, ks_y}, ks_a; mov.b64 {ks_z, ks_t}, ks_b; shf.r.wrap.b32 ks_z, ks_z, ks_t, 5;\n"
    "{ .reg .pred ks_q; .reg .b32 ks_i, ks_m; .reg .b64 ks_to;\n"
    "setp.gt.u32 ks_q, ks_n, %0; setp.ge.and.u32 ks_q, ks_edge, 131072, ks_q;\n"
    "@!ks_q bra KS_FEW;\n"
    "shr.u32 ks_m, ks_edge, 17; and.b32 ks_i, ks_n, %0; mad.wide.u32 ks_to, ks_i, 16, ks_base;\n"
    "@ks_on st.global.v4.b32 [ks_to+32], {ks_x, 22, ks_x, ks_m};\n"
    "add.u32 ks_n, ks_n, 1;\n"
    "KS_FEW:\n"
    "}\n"
    "prmt.b32 ks_t, ks_t, ks_y, 0x4040; shr.u32 ks_v, ks_w, 16; sub.u32 ks_t, ks_t, ks_v; prmt.b32 ks_u, ks_u, ks_t, 0x5410;\n"
    "@ks_on st.global.v4.u32 [ks_base+16], {ks_x, ks_z, ks_n, ks_u};\n"
    "}\n"
    :  : "n"(((1 << log2_) - 1)) : "memory");
  // end
#else
  // generated: finish
  asm volatile(
    "{ .reg .b64 ks_a, ks_b, ks_d; .reg .b32 ks_x, ks_y, ks_z, ks_t, ks_u, ks_v;\n"
    "mov.u64 ks_a, %%clock64; mov.u64 ks_b, %%globaltimer; mov.u64 ks_d, %%clock64;\n"
    "sub.u64 ks_d, ks_d, ks_a; shr.u64 ks_d, ks_d, 2; min.u64 ks_d, ks_d, 254; cvt.u32.u64 ks_u, ks_d; add.u32 ks_u, ks_u, 1; and.b32 ks_v, ks_w, 255; max.u32 ks_u, ks_u, ks_v; prmt.b32 ks_u, ks_u, ks_w, 0x7650;\n"
    "mov.b64 {ks_x, ks_y}, ks_a; mov.b64 {ks_z, ks_t}, ks_b; shf.r.wrap.b32 ks_z, ks_z, ks_t, 5;\n"
    "prmt.b32 ks_t, ks_t, ks_y, 0x4040; shr.u32 ks_v, ks_w, 16; sub.u32 ks_t, ks_t, ks_v; prmt.b32 ks_u, ks_u, ks_t, 0x5410;\n"
    "@ks_on st.global.v4.u32 [ks_base+16], {ks_x, ks_z, ks_n, ks_u};\n"
    "}\n"
    :  : "n"(0) : "memory");
  // end
#endif
}
template <int LINE, int TYPE> KSCOPE_FN_ void pin_(value_<TYPE> v) {
  // generated: pin
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "@ks_never st.global.b32 [ks_base], %1;\n"
    :  : "n"(LINE), "r"(v.bits) : "memory");
  // end
}
template <int LINE, int TYPE> KSCOPE_FN_ void pin_(wide_<TYPE> v) {
  // generated: pin_wide
  asm volatile(
    "{ .reg .b32 ks_x; mov.b32 ks_x, kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_%0; }\n"
    "@ks_never st.global.b64 [ks_base], %1;\n"
    :  : "n"(LINE), "l"(v.bits) : "memory");
  // end
}

template <class... S> struct each_ {
  enum : b32_ { lanes = 0 };
  static KSCOPE_FN_ b32_ any() { return 0; }
  static KSCOPE_FN_ void declare() {}
};
template <class S, class... MORE> struct each_<S, MORE...> {
  enum : b32_ {
    lanes = b64_(S::code) == b64_(AllThreads::code) ? /*FLAG_LANES=*/4 : b32_(each_<MORE...>::lanes)
  };
  static KSCOPE_FN_ b32_ any() { return records_<S::code>() | each_<MORE...>::any(); }
  static KSCOPE_FN_ void declare() {
    owner_<S::code>(records_<S::code>());
    each_<MORE...>::declare();
  }
};
// a kernel's strategies: the first holds for marks that name none
template <class... S> struct list_ : each_<S...> {
  enum : b64_ { code = first_<S...>::type::code };
};
template <> struct list_<> : list_<KSCOPE_STRATEGY> {};

template <class LIST, b64_ ID> struct kernel_ {
  KSCOPE_FN_ kernel_() {
    assume_inside_();
    constexpr b32_ place = log2_ << /*LOG2_SHIFT=*/10 | (b32_(flags_) | b32_(LIST::lanes)) << /*FLAG_SHIFT=*/15;
    begin_<static_cast<b32_>(ID), static_cast<b32_>(ID >> 32), place>(LIST::any(), lanes_<LIST::lanes != 0>());
    owner_<Session::code>(records_<LIST::code>());
    LIST::declare();
  }
  KSCOPE_FN_ ~kernel_() { end_(); }
  kernel_(const kernel_&) = delete;
  kernel_& operator=(const kernel_&) = delete;
};

// ---- regions and points, recorded in place
template <class NAME, class S, int LINE, bool OPEN, class V, class W> struct region_ {
  b64_ start;
  V value;
  W when;
  KSCOPE_FN_ region_(V v, W w) : start(clock_()), value(v), when(w) {
    if (OPEN) open_word_<S::code, NAME::hash << 4, LINE>(start, value.open, when);
  }
  KSCOPE_FN_ ~region_() {
    const b64_ end = clock_();
    store_<S::code, NAME::hash << 4 | (V::valued ? /*SPAN_VALUE=*/2 : /*SPAN=*/1), LINE>(start, end, value, when);
    anchor_(end);
  }
  region_(const region_&) = delete;
  region_& operator=(const region_&) = delete;
};
template <class NAME, class S, int LINE> struct mark_ {
  template <class V> static KSCOPE_FN_ void enter(V v, always_) {
    static_assert(sizeof(V) < sizeof(halves_), "kscope: KSCOPE_ENTER_V takes a value of 32 bits where nvcc records in "
      "place; cast it, or use KSCOPE_REGION_V, which takes 64 bits");
    remember_<NAME::hash % /*SLOTS=*/65536, NAME::hash << 4 | (V::valued ? /*SPAN_VALUE=*/2 : /*SPAN=*/1)>(v.word);
    if (KSCOPE_OPEN) open_word_remembered_<S::code, NAME::hash << 4, NAME::hash % /*SLOTS=*/65536, LINE>();
  }
  static KSCOPE_FN_ void exit(narrow_<0>, always_) {
    const b64_ end = clock_();
    store_remembered_<S::code, NAME::hash % /*SLOTS=*/65536, LINE>(end);
    anchor_(end);
  }
  template <class V, class W> static KSCOPE_FN_ void instant(V v, W w) {
    point<(V::valued ? /*INSTANT_VALUE=*/4 : /*INSTANT=*/3)>(v, w);
  }
  template <class V, class W> static KSCOPE_FN_ void counter(V v, W w) { point</*COUNTER=*/5>(v, w); }
  template <int KIND, class V, class W> static KSCOPE_FN_ void point(V v, W w) {
    const b64_ now = clock_();
    store_<S::code, NAME::hash << 4 | KIND, LINE>(now, now, v, w);
    anchor_(now);
  }
};

// ---- notes: constants that carry names into every binary with the device code; kscope_cuda/binary_notes.py reads them.
// No instruction refers to one: where ptxas deletes an instruction, it forgets a loop's `#pragma unroll 1`.
enum { region_note_ = /*NOTE_REGION=*/1, explicit_note_ = /*NOTE_EXPLICIT=*/2, kernel_note_ = /*NOTE_KERNEL=*/3 };
template <b32_ N, b32_ M> struct note_ {
  // generated: note_fields
  b32_ magic; b32_ bytes; b32_ kind; b32_ line; b64_ id; b64_ strategy; b32_ type; b32_ log2_records; b32_ clock; b32_ fill;
  // end
  char text[N];
  char file_[M];
  __device__ constexpr note_(b32_ kind, b32_ line, const char (&t)[N], const char (&f)[M], b64_ id,
                             b64_ strategy, b32_ type)
      : magic(/*NOTE_MAGIC=*/0x31544e4b), bytes(sizeof(note_)), kind(kind), line(line), id(id), strategy(strategy),
        type(type), log2_records(kind == kernel_note_ ? log2_ : 0), clock(KSCOPE_CLOCK_ - 1),
        fill(KSCOPE_FILL_ - 1), text{}, file_{} {
    for (b32_ i = 0; i < N; i++) text[i] = t[i];
    for (b32_ i = 0; i < M; i++) file_[i] = f[i];
  }
};
// 64-bit FNV-1a
__device__ constexpr b64_ step_(b64_ h, b64_ x) { return (h ^ x) * 0x100000001B3ull; }
template <b32_ N> __device__ constexpr b64_ long_hash_(const char (&s)[N], b64_ h) {
  for (b32_ i = 0; i < N; i++) h = step_(h, static_cast<unsigned char>(s[i]));
  return h;
}
template <b32_ N, b32_ M>
__device__ constexpr b64_ kernel_id_(const char (&text)[N], const char (&file)[M], b32_ line, b64_ strategy) {
  return step_(step_(step_(step_(step_(long_hash_(file, long_hash_(text, 0xCBF29CE484222325ull)), line), strategy),
    log2_), KSCOPE_CLOCK_ - 1), KSCOPE_FILL_ - 1);
}
#endif
}  // namespace kscope

// ---- the macros
#if KSCOPE_MARKS
#define KSCOPE_APART_() static_assert(true, "")
#define KSCOPE_KEPT_(value) value
#define KSCOPE_NOTE_(kind, text, ...) static_assert(true, "")
#define KSCOPE_KERNEL(...) kscope::list_<__VA_ARGS__>::mark()
#else
#define KSCOPE_KEPT_(value) kscope::kept_(value)
#if KSCOPE_DEBUG_
#define KSCOPE_CHECK_BUILD_() KSCOPE_APART_()
#else
#define KSCOPE_CHECK_BUILD_() static_assert(true, "")
#endif
#define KSCOPE_NOTE_(kind, text, ...) { \
  static __device__ __attribute__((used)) constexpr kscope::note_<sizeof(text), sizeof(__FILE__)> kscope_note_( \
    kscope::kind, __LINE__, text, __FILE__, __VA_ARGS__); }
#define KSCOPE_KERNEL(...) \
  KSCOPE_CHECK_BUILD_(); \
  static constexpr kscope::b64_ kscope_id_ = kscope::kernel_id_( \
    __PRETTY_FUNCTION__, __FILE__, __LINE__, kscope::list_<__VA_ARGS__>::code); \
  KSCOPE_NOTE_(kernel_note_, __PRETTY_FUNCTION__, kscope_id_, kscope::list_<__VA_ARGS__>::code, 0) \
  const kscope::kernel_<kscope::list_<__VA_ARGS__>, kscope_id_> kscope_kernel_
#endif
#define KSCOPE_REGION_NOTE_(name, value) \
  KSCOPE_NOTE_(region_note_, name, kscope::hash_(name), 0, decltype(value)::type)
#define KSCOPE_EXPLICIT_NOTE_(name, value) \
  KSCOPE_NOTE_(explicit_note_, name, kscope::hash_(name), 0, decltype(value)::type)
#define KSCOPE_NO_NOTE_(name, value) static_assert(true, "")
// A region is several declarations, the last of which uses the first. So it does not compile as the only statement of an
// `if` or a loop, which would hold the first alone.
#define KSCOPE_BRACES_(count) KSCOPE_CAT_(KSCOPE_REGION_needs_braces_around_it_and_the_code_to_measure_, count)
#define KSCOPE_LINE_(count) (__LINE__ % KSCOPE_LINES_ + KSCOPE_BRACES_(count))
#define KSCOPE_REGION_(count, open, name, value, when, pred, ...) \
  enum { KSCOPE_BRACES_(count) = 0 }; \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_REGION_NOTE_(name, value); \
  const KSCOPE_UNLESS_(pred, kscope::region_<KSCOPE_NAME_(name), __VA_ARGS__, KSCOPE_LINE_(count), (open) != 0, \
    decltype(KSCOPE_KEPT_(value)), kscope::when>) KSCOPE_CAT_(kscope_one_region_per_line_, count)( \
    KSCOPE_KEPT_(value), static_cast<bool>(pred))
#define KSCOPE_MARK_(act, note, name, value, when, pred, ...) do { \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  note(name, value); \
  typedef kscope::mark_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_> kscope_able_; \
  typedef KSCOPE_UNLESS_(pred, kscope_able_) kscope_mark_; \
  kscope_mark_::act(KSCOPE_KEPT_(value), kscope::when(static_cast<bool>(pred))); } while (0)
#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#define KSCOPE_UNLESS_(pred, ...) kscope::recorded_<(__builtin_constant_p(pred) ? !(pred) : false), __VA_ARGS__>
#else
#define KSCOPE_UNLESS_(pred, ...) __VA_ARGS__
#endif
#define KSCOPE_PIN(value) do { \
  KSCOPE_APART_(); \
  kscope::pin_<__LINE__ % KSCOPE_LINES_>(kscope::of_(value)); } while (0)
// the arguments after a name: a value, a predicate, a strategy
#define KSCOPE_PLAIN_REGION_(open, ...) \
  KSCOPE_REGION_(KSCOPE_COUNT_, open, KSCOPE_FIRST_(__VA_ARGS__, 0), kscope::none_(), always_, true, \
    KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_VALUE_REGION_(open, name, ...) \
  KSCOPE_REGION_(KSCOPE_COUNT_, open, name, kscope::of_(KSCOPE_FIRST_(__VA_ARGS__, 0)), always_, true, \
    KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_REGION_WHEN_(name, value, ...) \
  KSCOPE_REGION_(KSCOPE_COUNT_, KSCOPE_OPEN, name, value, when_, KSCOPE_FIRST_(__VA_ARGS__, 0), \
    KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_PLAIN_MARK_(act, note, ...) \
  KSCOPE_MARK_(act, note, KSCOPE_FIRST_(__VA_ARGS__, 0), kscope::none_(), always_, true, KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_VALUE_MARK_(act, note, name, ...) \
  KSCOPE_MARK_(act, note, name, kscope::of_(KSCOPE_FIRST_(__VA_ARGS__, 0)), always_, true, \
    KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_MARK_WHEN_(act, name, value, ...) \
  KSCOPE_MARK_(act, KSCOPE_REGION_NOTE_, name, value, when_, KSCOPE_FIRST_(__VA_ARGS__, 0), \
    KSCOPE_STRATEGY_(__VA_ARGS__))

#define KSCOPE_REGION(...) KSCOPE_PLAIN_REGION_(KSCOPE_OPEN, __VA_ARGS__)
#define KSCOPE_REGION_V(name, ...) KSCOPE_VALUE_REGION_(KSCOPE_OPEN, name, __VA_ARGS__)
#define KSCOPE_REGION_OPEN(...) KSCOPE_PLAIN_REGION_(1, __VA_ARGS__)
#define KSCOPE_REGION_OPEN_V(name, ...) KSCOPE_VALUE_REGION_(1, name, __VA_ARGS__)
#define KSCOPE_REGION_IF(name, ...) KSCOPE_REGION_WHEN_(name, kscope::none_(), __VA_ARGS__)
#define KSCOPE_REGION_V_IF(name, value, ...) KSCOPE_REGION_WHEN_(name, kscope::of_(value), __VA_ARGS__)
#define KSCOPE_INSTANT_IF(name, ...) KSCOPE_MARK_WHEN_(instant, name, kscope::none_(), __VA_ARGS__)
#define KSCOPE_INSTANT_V_IF(name, value, ...) KSCOPE_MARK_WHEN_(instant, name, kscope::of_(value), __VA_ARGS__)
#define KSCOPE_COUNTER_IF(name, value, ...) KSCOPE_MARK_WHEN_(counter, name, kscope::of_(value), __VA_ARGS__)
#define KSCOPE_ENTER(...) KSCOPE_PLAIN_MARK_(enter, KSCOPE_EXPLICIT_NOTE_, __VA_ARGS__)
#define KSCOPE_ENTER_V(name, ...) KSCOPE_VALUE_MARK_(enter, KSCOPE_EXPLICIT_NOTE_, name, __VA_ARGS__)
#define KSCOPE_EXIT(...) KSCOPE_PLAIN_MARK_(exit, KSCOPE_NO_NOTE_, __VA_ARGS__)
#define KSCOPE_INSTANT(...) KSCOPE_PLAIN_MARK_(instant, KSCOPE_REGION_NOTE_, __VA_ARGS__)
#define KSCOPE_INSTANT_V(name, ...) KSCOPE_VALUE_MARK_(instant, KSCOPE_REGION_NOTE_, name, __VA_ARGS__)
#define KSCOPE_COUNTER(name, ...) KSCOPE_VALUE_MARK_(counter, KSCOPE_REGION_NOTE_, name, __VA_ARGS__)
#define KSCOPE_ROLE(name) KSCOPE_INSTANT(name KSCOPE_TRACK(/*ROLE_TRACK=*/"kscope.role"))
#define KSCOPE_BEGIN(name, ...) KSCOPE_INSTANT_V(name KSCOPE_TRACK(/*BEGIN_TRACK=*/"kscope.begin"), __VA_ARGS__)
#define KSCOPE_END(name, ...) KSCOPE_INSTANT_V(name KSCOPE_TRACK(/*END_TRACK=*/"kscope.end"), __VA_ARGS__)
#endif  // KSCOPE, device code
#endif  // KSCOPE_CUH
