"""The macros that a user writes: empty, as marks, and in place.

What lives here: C++ text. What does not: what the macros name (common.py, marked.py, stored.py, noted.py).
"""

from __future__ import annotations

from kscope.marks import grammar

_NAMES = (
    ("KSCOPE_KERNEL(...)", None),
    ("KSCOPE_REGION(...)", None),
    ("KSCOPE_REGION_V(name, ...)", "..."),
    ("KSCOPE_ENTER(...)", None),
    ("KSCOPE_ENTER_V(name, ...)", "..."),
    ("KSCOPE_EXIT(...)", None),
    ("KSCOPE_INSTANT(...)", None),
    ("KSCOPE_INSTANT_V(name, ...)", "..."),
    ("KSCOPE_COUNTER(name, ...)", "..."),
    ("KSCOPE_REGION_IF(name, ...)", "..."),
    ("KSCOPE_REGION_V_IF(name, value, ...)", "value, ..."),
    ("KSCOPE_INSTANT_IF(name, ...)", "..."),
    ("KSCOPE_INSTANT_V_IF(name, value, ...)", "value, ..."),
    ("KSCOPE_COUNTER_IF(name, value, ...)", "value, ..."),
    ("KSCOPE_PIN(...)", "..."),
)


def empty() -> str:
    """Every macro, doing nothing; a value is named, and not evaluated."""
    lines = [
        "#define KSCOPE_FIRST_(first, ...) first",
        "#define KSCOPE_UNUSED_(...) static_cast<void>(sizeof((static_cast<void>(KSCOPE_FIRST_(__VA_ARGS__, 0)), 0)))",
    ]
    for name, named in _NAMES:
        unused = [] if named is None else [f"KSCOPE_UNUSED_({one})" for one in ("value", "__VA_ARGS__")]
        unused = unused if named == "value, ..." else unused[1:]
        lines.append(f"#define {name}{' ' if unused else ''}{', '.join(unused)}")
    return "\n".join(lines)


TRACK = rf"""
#define KSCOPE_TRACK(track) "\x{ord(grammar.TRACK):02x}" track  // behind a name: the track that it is on
"""

SHARED = r"""
#define KSCOPE_CAT2_(a, b) a##b
#define KSCOPE_CAT_(a, b) KSCOPE_CAT2_(a, b)
#define KSCOPE_FIRST_(first, ...) first
#define KSCOPE_REST_(first, ...) __VA_ARGS__
// the strategy of a mark: what stands behind its name or value, else Session
#define KSCOPE_STRATEGY_(...) kscope::strategy_<KSCOPE_REST_(__VA_ARGS__, kscope::Session)>
#ifdef __COUNTER__
#define KSCOPE_COUNT_ __COUNTER__
#else  // NVRTC
#define KSCOPE_COUNT_ __LINE__
#endif
"""

MARKED = r"""
#define KSCOPE_APART_() static_assert(true, "")
#define KSCOPE_NOTE_(sort, text, ...) static_assert(true, "")
#define KSCOPE_KERNEL(...) kscope::list_<__VA_ARGS__>::mark()
"""

STORED = r"""
#if KSCOPE_DEBUG_
#define KSCOPE_CHECK_BUILD_() KSCOPE_APART_()
#else
#define KSCOPE_CHECK_BUILD_() static_assert(true, "")
#endif
#define KSCOPE_NOTE_(sort, text, ...) { \
  static __device__ __attribute__((used)) constexpr kscope::note_<sizeof(text), sizeof(__FILE__)> kscope_note_( \
    kscope::sort, __LINE__, text, __FILE__, __VA_ARGS__); }
#define KSCOPE_KERNEL(...) \
  KSCOPE_CHECK_BUILD_(); \
  static constexpr kscope::b64_ kscope_id_ = kscope::kernel_id_( \
    __PRETTY_FUNCTION__, __FILE__, __LINE__, kscope::list_<__VA_ARGS__>::code); \
  KSCOPE_NOTE_(kernel_note_, __PRETTY_FUNCTION__, kscope_id_, kscope::list_<__VA_ARGS__>::code, 0) \
  const kscope::kernel_<kscope::list_<__VA_ARGS__>, kscope_id_> kscope_kernel_
"""

MARKS = r"""
#define KSCOPE_PLAIN_NOTE_(sort, name) KSCOPE_NOTE_(sort, name, kscope::hash_(name), 0, 0)
#define KSCOPE_VALUE_NOTE_(sort, name, value) \
  KSCOPE_NOTE_(sort, name, kscope::hash_(name), 0, decltype(kscope::of_(value))::type)
#define KSCOPE_REGION_(name, ...) \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_PLAIN_NOTE_(region_note_, name); \
  const kscope::region_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_, false> \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)
#define KSCOPE_REGION_V_(name, value, ...) \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_VALUE_NOTE_(region_note_, name, value); \
  const kscope::region_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_, true> \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)(kscope::of_(value))
#define KSCOPE_MARK_(act, note, name, ...) do { \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  note; \
  kscope::mark_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_>::act(); } while (0)
#define KSCOPE_MARK_V_(act, sort, name, value, ...) do { \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_VALUE_NOTE_(sort, name, value); \
  kscope::mark_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_>::act(kscope::of_(value)); } while (0)

#define KSCOPE_WHEN_(pred) kscope::when_{static_cast<bool>(pred)}
#if defined(__GNUC__) && !defined(__CUDACC_RTC__)
#define KSCOPE_UNLESS_(pred, ...) kscope::recorded_<(__builtin_constant_p(pred) ? !(pred) : false), __VA_ARGS__>
#else
#define KSCOPE_UNLESS_(pred, ...) __VA_ARGS__
#endif
#define KSCOPE_REGION_IF_(name, pred, ...) \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_PLAIN_NOTE_(region_note_, name); \
  const KSCOPE_UNLESS_(pred, kscope::region_if_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_, false>) \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)(KSCOPE_WHEN_(pred))
#define KSCOPE_REGION_V_IF_(name, value, pred, ...) \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_VALUE_NOTE_(region_note_, name, value); \
  const KSCOPE_UNLESS_(pred, kscope::region_if_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_, true>) \
    KSCOPE_CAT_(kscope_one_region_per_line_, KSCOPE_COUNT_)(kscope::of_(value), KSCOPE_WHEN_(pred))
#define KSCOPE_MARK_IF_(act, note, name, pred, ...) do { \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  note; \
  typedef kscope::mark_if_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_> kscope_able_; \
  typedef KSCOPE_UNLESS_(pred, kscope_able_) kscope_mark_; \
  kscope_mark_::act(KSCOPE_WHEN_(pred)); } while (0)
#define KSCOPE_MARK_V_IF_(act, sort, name, value, pred, ...) do { \
  KSCOPE_CHECK_(name); \
  KSCOPE_APART_(); \
  KSCOPE_VALUE_NOTE_(sort, name, value); \
  typedef kscope::mark_if_<KSCOPE_NAME_(name), __VA_ARGS__, __LINE__ % KSCOPE_LINES_> kscope_able_; \
  typedef KSCOPE_UNLESS_(pred, kscope_able_) kscope_mark_; \
  kscope_mark_::act(kscope::of_(value), KSCOPE_WHEN_(pred)); } while (0)

#define KSCOPE_PIN(value) do { \
  KSCOPE_APART_(); \
  kscope::pin_<__LINE__ % KSCOPE_LINES_>(kscope::of_(value)); } while (0)
#define KSCOPE_REGION(...) KSCOPE_REGION_(KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_REGION_V(name, ...) KSCOPE_REGION_V_(name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_REGION_IF(name, ...) \
  KSCOPE_REGION_IF_(name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_REGION_V_IF(name, value, ...) \
  KSCOPE_REGION_V_IF_(name, value, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_INSTANT_IF(name, ...) \
  KSCOPE_MARK_IF_(instant, KSCOPE_PLAIN_NOTE_(region_note_, name), \
    name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_INSTANT_V_IF(name, value, ...) \
  KSCOPE_MARK_V_IF_(instant, region_note_, name, value, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_COUNTER_IF(name, value, ...) \
  KSCOPE_MARK_V_IF_(counter, region_note_, name, value, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_ENTER(...) \
  KSCOPE_MARK_(enter, KSCOPE_PLAIN_NOTE_(explicit_note_, KSCOPE_FIRST_(__VA_ARGS__, 0)), \
    KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_ENTER_V(name, ...) \
  KSCOPE_MARK_V_(enter, explicit_note_, name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_EXIT(...) \
  KSCOPE_MARK_(exit, static_assert(true, ""), KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_INSTANT(...) \
  KSCOPE_MARK_(instant, KSCOPE_PLAIN_NOTE_(region_note_, KSCOPE_FIRST_(__VA_ARGS__, 0)), \
    KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_INSTANT_V(name, ...) \
  KSCOPE_MARK_V_(instant, region_note_, name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
#define KSCOPE_COUNTER(name, ...) \
  KSCOPE_MARK_V_(counter, region_note_, name, KSCOPE_FIRST_(__VA_ARGS__, 0), KSCOPE_STRATEGY_(__VA_ARGS__))
"""
