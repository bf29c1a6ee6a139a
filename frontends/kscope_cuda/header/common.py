"""What both modes of kscope.cuh share: names, strategies and values as types, and the refusals.

What lives here: C++ text. What does not: what a mark becomes (marked.py, stored.py), the macros (macros.py).
"""

from __future__ import annotations

from kscope.marks.grammar import PACKED_ANY_LANE, PACKED_STRATEGIES, TYPES
from kscope.marks.strategies import MAX_WARPS

NAME_WORDS = 16
"""A name travels as numbers of eight bytes; inline assembly takes at most 30 operands."""


def text() -> str:
    """The C++ text."""
    return "\n".join([_NAMES, _names(), _strategies(), _VALUES.replace("@OVERLOADS@", _overloads())])


_NAMES = r"""
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
"""


def _names() -> str:
    """A name as a type."""
    parameters = ", ".join(f"b64_ W{i}" for i in range(NAME_WORDS))
    members = ", ".join(f"w{i} = W{i}" for i in range(NAME_WORDS))
    arguments = ", ".join(f"KSCOPE_WORD_(name, {i})" for i in range(NAME_WORDS))
    return f"""
// a name: its hash, its length in words, the words
template <b32_ HASH, b32_ WORDS, {parameters}> struct name_ {{
  enum : b32_ {{ hash = HASH, words = WORDS }};
  enum : b64_ {{ {members} }};
}};
#define KSCOPE_WORD_(name, i) kscope::word_(name, sizeof(name) - 1, i)
#define KSCOPE_NAME_(name) kscope::name_<kscope::hash_(name), (sizeof(name) + 6) / 8, {arguments}>
#define KSCOPE_CHECK_(name) \\
  static_assert(decltype(kscope::measure_(name))::ok, "kscope: a region's name is a string literal, known when the " \\
    "kernel is compiled; pass what changes at run time as a value: KSCOPE_REGION_V(\\"name\\", value)"); \\
  static_assert(sizeof(name) > 1 && sizeof(name) <= {NAME_WORDS * 8 + 1}, \\
    "kscope: a name has 1 to {NAME_WORDS * 8} bytes")
"""


def _strategies() -> str:
    """The strategies as types: code is PACKED_STRATEGIES' number."""
    codes = {spec: number for number, spec in enumerate(PACKED_STRATEGIES)}
    return f"""
// who records; the same words as in Python
struct Session {{ enum : b64_ {{ code = {codes[None]} }}; }};  // as the kernel or the session says
struct Lane0Warp0 {{ enum : b64_ {{ code = {codes["block"]} }}; }};
struct Elected {{ enum : b64_ {{ code = {codes["warp"]} }}; }};
struct ElectedAnyLane {{ enum : b64_ {{ code = {PACKED_ANY_LANE} }}; }};  // Elected(any_lane=True)
struct AllThreads {{ enum : b64_ {{ code = {codes["lanes"]} }}; }};
template <int... WARPS> struct mask_ {{ enum : b64_ {{ value = 0 }}; }};
template <int WARP, int... WARPS> struct mask_<WARP, WARPS...> {{
  static_assert(WARP >= 0 && WARP < {MAX_WARPS},
    "kscope::TargetWarp: a warp of a block is a number from 0 to {MAX_WARPS - 1}");
  enum : b64_ {{ value = 1ull << WARP | static_cast<b64_>(mask_<WARPS...>::value) }};
}};
template <int... WARPS> struct TargetWarp {{
  static_assert(sizeof...(WARPS) > 0, "kscope::TargetWarp: name at least one warp, as in kscope::TargetWarp<0, 4>");
  enum : b64_ {{ code = static_cast<b64_>(mask_<WARPS...>::value) << 2 }};
}};
template <b32_ MASK> struct warps_ {{ enum : b64_ {{ code = static_cast<b64_>(MASK) << 2 }}; }};
// what a mark's macro was given, Session behind it
template <class S, class...> struct first_ {{ typedef S type; }};
template <class... S> struct one_ {{
  static_assert(sizeof...(S) < 3, "kscope: a region has one strategy");
  typedef typename first_<S...>::type type;
}};
template <class... S> using strategy_ = typename one_<S...>::type;
"""


_VALUES = r"""
// a predicate: 32 bits that are not 0 where a mark is recorded
struct when_ { b32_ held; };
// what a region or point is whose predicate is known to be false
struct never_ {
  template <class... T> KSCOPE_FN_ never_(T...) {}
  KSCOPE_FN_ ~never_() {}
  template <class... T> static KSCOPE_FN_ void instant(T...) {}
  template <class... T> static KSCOPE_FN_ void counter(T...) {}
};
template <bool NEVER, class T> struct unless_ { typedef T type; };
template <class T> struct unless_<true, T> { typedef never_ type; };
template <bool NEVER, class T> using recorded_ = typename unless_<NEVER, T>::type;
// a value: 32 bits and their type
template <int TYPE> struct value_ {
  enum { type = TYPE };
  b32_ bits;
};
@OVERLOADS@
template <class T> KSCOPE_FN_ value_<i32_> checked_(T v, enum_<true>) { return value_<i32_>{static_cast<b32_>(v)}; }
template <class T> KSCOPE_FN_ value_<i32_> checked_(T, enum_<false>) {
  static_assert(sizeof(T) == 0, "kscope: a record holds 32 bits: the value is an int, an unsigned or a float; cast it, "
    "as in KSCOPE_REGION_V(\"name\", static_cast<int>(value))");
  return value_<i32_>{0};
}
template <class T> KSCOPE_FN_ value_<i32_> of_(T v) { return checked_(v, enum_<__is_enum(T) && sizeof(T) <= 4>()); }
"""


def _overloads() -> str:
    numbers = {kind: number for number, kind in enumerate(TYPES) if kind}
    lines = [f"enum {{ {', '.join(f'{kind}_ = {number}' for kind, number in numbers.items())} }};"]
    lines.append("template <bool> struct enum_ {};")
    for kind, types in {
        "i32": ("int", "short", "signed char", "char"),
        "u32": ("unsigned int", "unsigned short", "unsigned char"),
    }.items():
        lines += [
            f"KSCOPE_FN_ value_<{kind}_> of_({name} v) {{ return value_<{kind}_>{{static_cast<b32_>(v)}}; }}"
            for name in types
        ]
    lines.append("KSCOPE_FN_ value_<f32_> of_(float v) { return value_<f32_>{__float_as_uint(v)}; }")
    return "\n".join(lines)
