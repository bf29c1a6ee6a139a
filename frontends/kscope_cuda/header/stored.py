"""In-place mode: what an nvcc build gets. Records are stored where their regions end.

What lives here: the C++ around the texts of kscope.ptx. What does not: any instruction (kscope/ptx), the
notes by which a host finds the names (noted.py), its way to the constant (hosted.py).

    kernel_    the prologue: registers, anchor, claim; its destructor writes the end anchor
    region_    its constructor reads a clock into itself, its destructor stores the record

The kernel's state is in PTX registers, as everywhere: they are shared by name with whatever is inlined
into the kernel. A function that is not inlined has no such registers, and the assembler refuses it with
the name of the first one: GUARD, with the line of the mark.
"""

from __future__ import annotations

from dataclasses import replace

from kscope import ptx
from kscope.capture import layout
from kscope.capture.layout import Kind
from kscope.instrument.recording import Clock, Fill, Recording
from kscope.marks.strategies import AllThreads, Elected
from kscope.ptx import inline

from ..notes import SLOTS
from .emitted import Unknown, assembly, operand, quoted

GUARD = "kscope_mark_in_a_function_that_was_not_inlined_or_has_no_KSCOPE_KERNEL_line_"
OWNER = "ks_strategy_that_KSCOPE_KERNEL_does_not_list_"
"""The predicate of a strategy's lanes, by its code."""
LINES = 1 << 16

_LOG2 = Unknown("log2_")
_LANES, _WARP = AllThreads().spec, Elected().spec
_SETTLED = "KSCOPE_SETTLE_\n"
_NAME = "name"
"""Any name: its record id is replaced by an operand."""


def text() -> str:
    """The C++ text."""
    return "\n".join(
        [
            _options(),
            _WHO,
            _begin(),
            _settle(),
            _by("KSCOPE_CLOCK_ == 1", _clock("cycles"), _clock("globaltimer")),
            _by("KSCOPE_FILL_ == 1", _store("ring"), _store("stop")),
            _owner_and_end(),
            _KERNEL,
            _marks(),
        ]
    )


def _by(condition: str, yes: str, no: str) -> str:
    """A text in the two ways that the preprocessor chooses from."""
    return f"#if {condition}\n{yes}\n#else\n{no}\n#endif"


def _kernel(clock: Clock = "cycles", fill: Fill = "ring", arch: int = 0, spec: str = _WARP) -> ptx.Kernel:
    ids = operand("n", "LOW"), operand("n", "HIGH")
    return ptx.Kernel(Recording(clock=clock, fill=fill), (spec,), _LOG2, ids, arch, pins=True)


def _options() -> str:
    least, most = layout.MIN_LOG2_RECORDS, layout.MAX_LOG2_RECORDS
    return f"""
__device__ constexpr int ceil_(b64_ records, int log2) {{
  return (1ull << log2) >= records ? log2 : ceil_(records, log2 + 1);
}}
static_assert(KSCOPE_RECORDS >= 1 && KSCOPE_RECORDS <= {1 << most}, "kscope: KSCOPE_RECORDS is 1 to {1 << most}");
enum {{ log2_ = ceil_(KSCOPE_RECORDS, {least}) }};
enum : b32_ {{
  flags_ = (KSCOPE_CLOCK_ == 2 ? {layout.FLAG_GLOBALTIMER} : 0) | (KSCOPE_FILL_ == 2 ? {layout.FLAG_STOP} : 0)
}};"""


_WHO = r"""
#define KSCOPE_CHECK_PLACE_(chosen) static_assert((chosen) != kscope::b64_(kscope::ElectedAnyLane::code), \
  "kscope: ElectedAnyLane claims in the midst of a kernel, which only kscope's own lowering can (CuPy, cuda.core, " \
  "NVRTC); an nvcc build records with Elected, or AllThreads")
// whether this thread records
template <b64_ CODE> __device__ __forceinline__ b32_ records_() {
  KSCOPE_CHECK_PLACE_(CODE);
  const b32_ thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  return CODE == AllThreads::code  ? 1
       : CODE == Lane0Warp0::code  ? thread == 0
       : CODE == Elected::code     ? thread % 32 == 0
                                   : thread % 32 == 0 && ((CODE >> 2) >> (thread / 32) & 1);
}
"""


def _begin() -> str:
    """The prologue: everything up to the slab's header. For the lanes of AllThreads, and for lane 0 alone; what
    depends on the architecture is a line behind a macro, empty here and there."""
    texts = {spec: [_prologue(spec, arch).splitlines() for arch in (90, 75)] for spec in (_LANES, _WARP)}
    differing = {pair for late, early in texts.values() for pair in zip(late, early, strict=True) if pair[0] != pair[1]}
    ((late, early),) = differing
    bodies = "\n".join(
        f"""template <b32_ LOW, b32_ HIGH, b32_ PLACE>
__device__ __forceinline__ void begin_(b32_ who, lanes_<{flag}>) {{
{assembly(chr(10).join("KSCOPE_CLUSTER_" if line == late else line for line in texts[spec][0]))}
}}"""
        for spec, flag in ((_LANES, "true"), (_WARP, "false"))
    )
    return f"""#if __CUDA_ARCH__ >= 900  // clusters of blocks
#define KSCOPE_CLUSTER_ {quoted(late)}
#else
#define KSCOPE_CLUSTER_ {quoted(early)}
#endif
template <bool> struct lanes_ {{}};
{bodies}"""


def _prologue(spec: str, arch: int) -> str:
    declared = f".reg .b32 {GUARD}<{LINES}>; {inline.remembered(SLOTS)}"
    text = inline.begin(_kernel(arch=arch, spec=spec), operand("l", "kscope_ctl"), operand("r", "who"), declared)
    flags = layout.FLAG_LANES if spec == _LANES else 0
    return _replaced(text, {f"{(_LOG2 << layout.LOG2_SHIFT) | flags << layout.FLAG_SHIFT}": operand("n", "PLACE")})


def _settle() -> str:
    """A barrier may stand before any clock read: nobody looks here, so every one waits for it."""
    return f"""#if __CUDA_ARCH__ >= 900  // barriers cast a shadow
#define KSCOPE_SETTLE_ {quoted(ptx.settle(_kernel(arch=90)))}
#else
#define KSCOPE_SETTLE_ {quoted("//")}
#endif"""


def _clock(clock: Clock) -> str:
    remember = inline.remember(_kernel(clock), operand("n", "SLOT"), operand("n", "RECORD"), operand("r", "value"))
    return f"""__device__ __forceinline__ b64_ clock_() {{
  b64_ t;
{assembly(_SETTLED + ptx.clock(_kernel(clock), operand("=l", "t")))}
  return t;
}}
template <b32_ SLOT, b32_ RECORD> __device__ __forceinline__ void remember_(b32_ value) {{
{assembly(_SETTLED + remember)}
}}"""


def _store(fill: Fill) -> str:
    """A record whose start is in C++, and one whose start an explicit enter remembers."""
    slot = ptx.Slot(0, _NAME, "i32")
    guard = inline.guard(GUARD + operand("n", "LINE"))
    text = guard + ptx.store(_kernel(fill=fill), slot, Kind.SPAN_VALUE, OWNER + operand("n", "CODE"))
    end = {f"ks_e{slot.index}": operand("l", "end")}
    here = {
        f"ks_s{slot.index}": operand("l", "start"),
        f"ks_v{slot.index}": operand("r", "value"),
        str(layout.record_id(_NAME, Kind.SPAN_VALUE)): operand("n", "RECORD"),
    }
    held = operand("r", "held")
    asking = ptx.store(_kernel(fill=fill), replace(slot, asked=True), Kind.SPAN_VALUE, OWNER + operand("n", "CODE"))
    asking = f"{guard}\t{{ .reg .pred ks_w{slot.index}; setp.ne.u32 ks_w{slot.index}, {held}, 0;\n{asking}\t}}\n"
    there = {old: f"ks_{kind}{operand('n', 'SLOT')}" for old, kind in zip(here, "tvi", strict=True)}
    return f"""template <b64_ CODE, b32_ RECORD, int LINE>
__device__ __forceinline__ void store_(b64_ start, b64_ end, b32_ value) {{
  KSCOPE_CHECK_PLACE_(CODE);
{assembly(_replaced(text, here | end))}
}}
template <b64_ CODE, b32_ RECORD, int LINE>
__device__ __forceinline__ void store_if_(b64_ start, b64_ end, b32_ value, b32_ held) {{
  KSCOPE_CHECK_PLACE_(CODE);
{assembly(_replaced(asking, here | end))}
}}
template <b64_ CODE, b32_ SLOT, int LINE> __device__ __forceinline__ void store_remembered_(b64_ end) {{
  KSCOPE_CHECK_PLACE_(CODE);
{assembly(_replaced(text, there | end))}
}}"""


def _replaced(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        assert text.count(old) == 1, f"{old} should stand once in {text!r}"
        text = text.replace(old, new)
    return text


def _owner_and_end() -> str:
    return f"""template <b64_ CODE> __device__ __forceinline__ void owner_(b32_ who) {{
{assembly(inline.owner(OWNER + operand("n", "CODE"), operand("r", "who")))}
}}
__device__ __forceinline__ void end_() {{
{assembly(ptx.finish())}
}}
template <int LINE, int TYPE> __device__ __forceinline__ void pin_(value_<TYPE> v) {{
{assembly(inline.guard(GUARD + operand("n", "LINE")) + ptx.pin(operand("r", "v.bits")))}
}}"""


_KERNEL = rf"""
template <class... S> struct each_ {{
  enum : b32_ {{ lanes = 0 }};
  static __device__ __forceinline__ b32_ any() {{ return 0; }}
  static __device__ __forceinline__ void declare() {{}}
}};
template <class S, class... MORE> struct each_<S, MORE...> {{
  enum : b32_ {{
    lanes = b64_(S::code) == b64_(AllThreads::code) ? {layout.FLAG_LANES} : b32_(each_<MORE...>::lanes)
  }};
  static __device__ __forceinline__ b32_ any() {{ return records_<S::code>() | each_<MORE...>::any(); }}
  static __device__ __forceinline__ void declare() {{
    owner_<S::code>(records_<S::code>());
    each_<MORE...>::declare();
  }}
}};
// who records in a kernel: its first strategy, unless a region names another one of the list
template <class... S> struct list_ : each_<S...> {{
  enum : b64_ {{ code = first_<S...>::type::code }};
}};
template <> struct list_<> : list_<KSCOPE_STRATEGY> {{}};

template <class LIST, b64_ ID> struct kernel_ {{
  __device__ __forceinline__ kernel_() {{
    told_();
    constexpr b32_ place = log2_ << {layout.LOG2_SHIFT} | (b32_(flags_) | b32_(LIST::lanes)) << {layout.FLAG_SHIFT};
    begin_<static_cast<b32_>(ID), static_cast<b32_>(ID >> 32), place>(LIST::any(), lanes_<LIST::lanes != 0>());
    owner_<Session::code>(records_<LIST::code>());
    LIST::declare();
  }}
  __device__ __forceinline__ ~kernel_() {{ end_(); }}
  kernel_(const kernel_&) = delete;
  kernel_& operator=(const kernel_&) = delete;
}};
"""


def _marks() -> str:
    """Regions and points, by the kind of record that they store."""
    return rf"""
template <class NAME, class S, int LINE, bool VALUED> struct region_ {{
  b64_ start;
  b32_ value;
  __device__ __forceinline__ region_() : start(clock_()), value(0) {{}}
  template <int TYPE> __device__ __forceinline__ region_(value_<TYPE> v) : start(clock_()), value(v.bits) {{}}
  __device__ __forceinline__ ~region_() {{
    store_<S::code, NAME::hash << 4 | (VALUED ? {Kind.SPAN_VALUE:d} : {Kind.SPAN:d}), LINE>(start, clock_(), value);
  }}
  region_(const region_&) = delete;
  region_& operator=(const region_&) = delete;
}};
template <class NAME, class S, int LINE, bool VALUED> struct region_if_ {{
  b64_ start;
  b32_ value, held;
  __device__ __forceinline__ region_if_(when_ w) : start(clock_()), value(0), held(w.held) {{}}
  template <int TYPE> __device__ __forceinline__ region_if_(value_<TYPE> v, when_ w)
      : start(clock_()), value(v.bits), held(w.held) {{}}
  __device__ __forceinline__ ~region_if_() {{
    store_if_<S::code, NAME::hash << 4 | (VALUED ? {Kind.SPAN_VALUE:d} : {Kind.SPAN:d}), LINE>(
      start, clock_(), value, held);
  }}
  region_if_(const region_if_&) = delete;
  region_if_& operator=(const region_if_&) = delete;
}};
template <class NAME, class S, int LINE> struct mark_if_ {{
  static __device__ __forceinline__ void instant(when_ w) {{ point<{Kind.INSTANT:d}>(0, w); }}
  template <int TYPE> static __device__ __forceinline__ void instant(value_<TYPE> v, when_ w) {{
    point<{Kind.INSTANT_VALUE:d}>(v.bits, w);
  }}
  template <int TYPE> static __device__ __forceinline__ void counter(value_<TYPE> v, when_ w) {{
    point<{Kind.COUNTER:d}>(v.bits, w);
  }}
  template <int KIND> static __device__ __forceinline__ void point(b32_ value, when_ w) {{
    const b64_ now = clock_();
    store_if_<S::code, NAME::hash << 4 | KIND, LINE>(now, now, value, w.held);
  }}
}};
template <class NAME, class S, int LINE> struct mark_ {{
  static __device__ __forceinline__ void enter() {{
    remember_<NAME::hash % {SLOTS}, NAME::hash << 4 | {Kind.SPAN:d}>(0);
  }}
  template <int TYPE> static __device__ __forceinline__ void enter(value_<TYPE> v) {{
    remember_<NAME::hash % {SLOTS}, NAME::hash << 4 | {Kind.SPAN_VALUE:d}>(v.bits);
  }}
  static __device__ __forceinline__ void exit() {{
    store_remembered_<S::code, NAME::hash % {SLOTS}, LINE>(clock_());
  }}
  static __device__ __forceinline__ void instant() {{ point<{Kind.INSTANT:d}>(0); }}
  template <int TYPE> static __device__ __forceinline__ void instant(value_<TYPE> v) {{
    point<{Kind.INSTANT_VALUE:d}>(v.bits);
  }}
  template <int TYPE> static __device__ __forceinline__ void counter(value_<TYPE> v) {{
    point<{Kind.COUNTER:d}>(v.bits);
  }}
  template <int KIND> static __device__ __forceinline__ void point(b32_ value) {{
    const b64_ now = clock_();
    store_<S::code, NAME::hash << 4 | KIND, LINE>(now, now, value);
  }}
}};
"""
