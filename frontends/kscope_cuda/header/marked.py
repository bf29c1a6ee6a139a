"""Marks mode: a macro becomes a comment line that kscope.lowering.plan.lower finds in the module's PTX.

What lives here: the C++ that prints a mark in numbers, and regions made of it. What does not: the line's
grammar (kscope/marks.py), its lowering (kscope/lowering).
"""

from __future__ import annotations

from kscope.marks.grammar import ACTS, HOWS, PREFIX

from .common import NAME_WORDS


def text() -> str:
    """The C++ text."""
    return "\n".join([_codes(), *map(_put, _sizes()), _MARKS])


def _sizes() -> list[int]:
    """Words of a name, rounded up: one assembly text for each."""
    return [1 << n for n in range(NAME_WORDS.bit_length())]


def _codes() -> str:
    """The numbers of acts and hows, and the choice of a text by the name's length."""
    acts = ", ".join(f"act_{act}_ = {number}" for number, act in enumerate(ACTS))
    hows = ", ".join(f"{how}_ = {number}" for number, how in enumerate(HOWS))
    chosen = "".join(f"n <= {size} ? {size} : " for size in _sizes()[:-1]) + str(NAME_WORDS)
    return f"""
enum {{ {acts} }};
enum {{ {hows} }};
__device__ constexpr b32_ rounded_(b32_ n) {{ return {chosen}; }}
template <b32_ WORDS> struct put_;
"""


def _put(words: int) -> str:
    """The assembly texts for names of up to that many words: without a value and with one, and with a predicate."""
    name = ".".join(f"%{4 + i}" for i in range(words))
    numbers = ", ".join(f'"n"({number})' for number in ("ACT", "TYPE", "HOW", "CODE"))
    operands = f"{numbers}, " + ", ".join(f'"n"(static_cast<b64_>(NAME::w{i}))' for i in range(words))
    line = f"{PREFIX}packed %0 %1 %2 %3 {name}"
    return f"""template <> struct put_<{words}> {{
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark() {{
    asm volatile("{line}" :: {operands} : "memory");
  }}
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(b32_ bits) {{
    asm volatile("{line} %{4 + words}" :: {operands}, "r"(bits) : "memory");
  }}
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME> static __device__ __forceinline__ void mark(when_ w) {{
    asm volatile("{line} if %{4 + words}" :: {operands}, "r"(w.held) : "memory");
  }}
  template <int ACT, int TYPE, int HOW, b64_ CODE, class NAME>
  static __device__ __forceinline__ void mark(b32_ bits, when_ w) {{
    asm volatile("{line} %{4 + words} if %{5 + words}" :: {operands}, "r"(bits), "r"(w.held) : "memory");
  }}
}};"""


_MARKS = r"""
template <int ACT, int HOW, class NAME, class S> __device__ __forceinline__ void print_() {
  put_<rounded_(NAME::words)>::template mark<ACT, 0, HOW, S::code, NAME>();
}
template <int ACT, int HOW, class NAME, class S, int TYPE> __device__ __forceinline__ void print_(value_<TYPE> v) {
  put_<rounded_(NAME::words)>::template mark<ACT, TYPE, HOW, S::code, NAME>(v.bits);
}
template <int ACT, int HOW, class NAME, class S> __device__ __forceinline__ void print_(when_ w) {
  put_<rounded_(NAME::words)>::template mark<ACT, 0, HOW, S::code, NAME>(w);
}
template <int ACT, int HOW, class NAME, class S, int TYPE>
__device__ __forceinline__ void print_(value_<TYPE> v, when_ w) {
  put_<rounded_(NAME::words)>::template mark<ACT, TYPE, HOW, S::code, NAME>(v.bits, w);
}
template <int, int TYPE> __device__ __forceinline__ void pin_(value_<TYPE> v) {
  put_<1>::mark<act_pin_, TYPE, call_, Session::code, KSCOPE_NAME_("pin")>(v.bits);
}
// the strategy of a kernel's marks that name none
template <class... S> struct list_ {
  static __device__ __forceinline__ void mark() {
    print_<act_kernel_, call_, KSCOPE_NAME_("kernel"), typename first_<S...>::type>();
  }
};
template <> struct list_<> { static __device__ __forceinline__ void mark() {} };
template <class NAME, class S, int, bool> struct region_ {
  __device__ __forceinline__ region_() { print_<act_enter_, with_, NAME, S>(); }
  template <int TYPE> __device__ __forceinline__ region_(value_<TYPE> v) { print_<act_enter_, with_, NAME, S>(v); }
  __device__ __forceinline__ ~region_() { print_<act_exit_, with_, NAME, S>(); }
  region_(const region_&) = delete;
  region_& operator=(const region_&) = delete;
};
template <class NAME, class S, int, bool> struct region_if_ {
  __device__ __forceinline__ region_if_(when_ w) { print_<act_enter_, with_, NAME, S>(w); }
  template <int TYPE> __device__ __forceinline__ region_if_(value_<TYPE> v, when_ w) {
    print_<act_enter_, with_, NAME, S>(v, w);
  }
  __device__ __forceinline__ ~region_if_() { print_<act_exit_, with_, NAME, S>(); }
  region_if_(const region_if_&) = delete;
  region_if_& operator=(const region_if_&) = delete;
};
template <class NAME, class S, int> struct mark_if_ {
  static __device__ __forceinline__ void instant(when_ w) { print_<act_instant_, with_, NAME, S>(w); }
  template <int TYPE> static __device__ __forceinline__ void instant(value_<TYPE> v, when_ w) {
    print_<act_instant_, with_, NAME, S>(v, w);
  }
  template <int TYPE> static __device__ __forceinline__ void counter(value_<TYPE> v, when_ w) {
    print_<act_counter_, with_, NAME, S>(v, w);
  }
};
template <class NAME, class S, int> struct mark_ {
  static __device__ __forceinline__ void enter() { print_<act_enter_, call_, NAME, S>(); }
  template <int TYPE> static __device__ __forceinline__ void enter(value_<TYPE> v) {
    print_<act_enter_, call_, NAME, S>(v);
  }
  static __device__ __forceinline__ void exit() { print_<act_exit_, call_, NAME, S>(); }
  static __device__ __forceinline__ void instant() { print_<act_instant_, with_, NAME, S>(); }
  template <int TYPE> static __device__ __forceinline__ void instant(value_<TYPE> v) {
    print_<act_instant_, with_, NAME, S>(v);
  }
  template <int TYPE> static __device__ __forceinline__ void counter(value_<TYPE> v) {
    print_<act_counter_, with_, NAME, S>(v);
  }
};
"""
