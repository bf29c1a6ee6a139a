"""In-place mode: a mark in a function that was not inlined, or is compiled with -G, is refused by that function's name.

What lives here: how the name gets into the assembler's error. What does not: the guard that makes the error
(stored.py), and the same refusal where kscope's own pass lowers marks (kscope/lowering).

Nobody but the assembler knows which function a mark ended up in, and it prints the names of symbols alone. So each
mark has a branch that is taken where a thread lies outside of its block; KSCOPE_KERNEL() tells the compiler that
none does, and the branch is gone from everything that is inlined into a kernel with that line, before the assembler
sees any of it. In other functions it stays, and there the assembler finds the function's name in the call's prototype,
as it misses the argument. A compiler that does not optimize leaves the branch in kernels as well, where it assembles
and is never taken.

With -G that would name few functions, as kernels and what must be inlined would pass, in code that is not worth a
measurement. There each mark calls a function of the host's, and nvcc says who does. NVRTC, which knows no host, gets a
call as above with an argument that is missing everywhere.
"""

from __future__ import annotations

from kscope.ptx import inline

from .emitted import assembly, operand
from .stored import GUARD

SAID = "kscope_inline_this_function_into_a_kernel_with_KSCOPE_KERNEL_or_keep_marks_out_of_it__"
DEBUGGED = "regions_need_a_build_without_G__leave_it_out_or_build_plain_with_DKSCOPE_0"
DEBUGGED_LINE = "kscope_mark_in_a_function_that_is_compiled_with_G_line_"
_NOT_DEVICE = (20011, 20014)
"""nvcc's numbers of the calls to the host that it only warns of: those of functions for both."""
LONGEST = 128
"""Characters of a function's name, as the compiler spells it with its result and parameters; the rest is cut."""
NEEDS = "__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1206"
"""Older compilers cannot put text into assembly: there the line of the mark is all that is said."""


def text() -> str:
    """The C++ text, inside of the namespace, before stored.text()."""
    said, missing = (
        (inline.guard_by_name(line + operand("n", "LINE"), text + operand("C", "name_")))
        for line, text in ((GUARD, SAID), (DEBUGGED_LINE, f"kscope_{DEBUGGED}__"))
    )
    errors = " ".join(f'_Pragma("nv_diag_error {number}")' for number in _NOT_DEVICE)
    return f"""
#if KSCOPE_DEBUG_ && !defined(__CUDACC_RTC__)
KSCOPE_FN_ void told_() {{}}
void {DEBUGGED}();
#define KSCOPE_APART_() {{ \\
  _Pragma("nv_diagnostic push") {errors} \\
  kscope::{DEBUGGED}(); \\
  _Pragma("nv_diagnostic pop") }}
#elif {NEEDS}
// a thread lies in its block: the compiler does not know it, and is told so in kernels
KSCOPE_FN_ bool inside_() {{ return threadIdx.z < blockDim.z; }}
KSCOPE_FN_ void told_() {{ __builtin_assume(inside_()); }}
// a function's name as an identifier: F::at is its characters
KSCOPE_FN_ constexpr bool letter_(char c) {{
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}}
template <b32_ N> KSCOPE_FN_ constexpr char in_name_(const char (&s)[N], b32_ i) {{
  return letter_(s[i]) ? s[i] : '_';
}}
template <int... I> struct numbers_ {{
  typedef numbers_<I..., (int(sizeof...(I)) + I)...> twice;
  typedef numbers_<I..., (int(sizeof...(I)) + I)..., 2 * int(sizeof...(I))> twice_and_one;
}};
template <int N, bool ODD = N % 2> struct below_ {{ typedef typename below_<N / 2>::type::twice type; }};
template <int N> struct below_<N, true> {{ typedef typename below_<N / 2>::type::twice_and_one type; }};
template <> struct below_<0, false> {{ typedef numbers_<> type; }};
template <int LINE, class F, int... I> KSCOPE_FN_ void apart_(numbers_<I...>) {{
  static constexpr const char name_[] = {{F::at(I)..., 0}};
  if (!inside_()) {{
#if KSCOPE_DEBUG_
{assembly(missing, "    ")}
#else
{assembly(said, "    ")}
#endif
  }}
}}
#define KSCOPE_APART_() {{ \\
  constexpr auto& kscope_said_ = __PRETTY_FUNCTION__; \\
  struct kscope_function_ {{ \\
    static __device__ constexpr char at(int i) {{ return kscope::in_name_(kscope_said_, i); }} \\
  }}; \\
  kscope::apart_<__LINE__ % KSCOPE_LINES_, kscope_function_>(kscope::below_< \\
    sizeof(kscope_said_) - 1 < {LONGEST} ? sizeof(kscope_said_) - 1 : {LONGEST}>::type()); }}
#else
KSCOPE_FN_ void told_() {{}}
#define KSCOPE_APART_() static_assert(!KSCOPE_DEBUG_, "kscope: regions need a build without -G: leave it out, or " \\
  "build plain with -DKSCOPE=0")
#endif"""
