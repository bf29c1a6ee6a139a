"""The constant of a module that nvcc built, and the host's way to it.

What lives here: C++ text of the header: the constant, and, in the host's code, one exported function that
finds it in every translation unit. What does not: who calls that (../libraries.py).

The CUDA runtime that a library is linked with knows the library's modules; nobody else does. So the library
asks it itself. Units of one library find each other through a variable that the linker merges; it is hidden,
so that libraries stay apart.
"""

from __future__ import annotations

from kscope.capture import layout

FUNCTION = "kscope_control"
"""int kscope_control(int unit, unsigned long long* address): the constant of that unit on the current device.
Returns 0, -1 where there is no such unit, or the CUDA runtime's error."""


def text() -> str:
    """The C++ text, for both of nvcc's passes."""
    return f"""
#if defined(__CUDACC_RTC__)
extern "C" {{ __constant__ unsigned long long {layout.CTL_SYMBOL}; }}
#else
extern "C" {{ static __constant__ unsigned long long {layout.CTL_SYMBOL}; }}
#endif
#if !defined(__CUDA_ARCH__)
namespace kscope {{
struct __attribute__((visibility("hidden"))) unit_ {{ const void* control; unit_* next; }};
template <class T> struct __attribute__((visibility("hidden"))) units_ {{ static unit_* first; }};
template <class T> unit_* units_<T>::first = nullptr;
namespace {{
struct registered_ : unit_ {{
  registered_() {{
    control = &{layout.CTL_SYMBOL};
    next = units_<void>::first;
    units_<void>::first = this;
  }}
}} registered_unit_;
}}  // namespace
}}  // namespace kscope
extern "C" __attribute__((weak, visibility("default"), used))
int {FUNCTION}(int unit, unsigned long long* address) {{
  const kscope::unit_* at = kscope::units_<void>::first;
  while (at && unit--) at = at->next;
  if (!at) return -1;
  void* found = nullptr;
  const cudaError_t error = cudaGetSymbolAddress(&found, at->control);
  *address = reinterpret_cast<unsigned long long>(found);
  return static_cast<int>(error);
}}
#endif
"""
