"""The macros that a user writes, in both modes and empty.

What lives here: C++ text. What does not: what the macros name (common.py, marked.py, stored.py).
"""

from __future__ import annotations

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
)


def empty() -> str:
    """Every macro, doing nothing; a value counts as used, and is not evaluated."""
    lines = [
        "#define KSCOPE_FIRST_(value, ...) value",
        "#define KSCOPE_UNUSED_(...) static_cast<void>(sizeof((static_cast<void>(KSCOPE_FIRST_(__VA_ARGS__, 0)), 0)))",
    ]
    lines += [f"#define {name}{' KSCOPE_UNUSED_(__VA_ARGS__)' if value else ''}" for name, value in _NAMES]
    return "\n".join(lines)


def shared() -> str:
    """What both modes' macros are made of."""
    return r"""
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
"""


def marked() -> str:
    """The macros of marks mode."""
    return r"""
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
"""
