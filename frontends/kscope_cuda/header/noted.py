"""Notes in C++: constants of the device code that carry names into every object that holds it.

No instruction may name one: ptxas forgets a loop's `#pragma unroll 1` with the first instruction that it deletes.
What lives here: the C++ that writes them. What does not: their form, and reading them (../notes.py).
"""

from __future__ import annotations

from ..notes import EXPLICIT, KERNEL, MAGIC, NOTE, REGION

_TYPES = {"<u4": "b32_", "<u8": "b64_"}


def text() -> str:
    """The C++ text, inside of the namespace."""
    fields = " ".join(f"{_TYPES[NOTE[name].str]} {name};" for name in NOTE.names or ())
    return f"""
// a note: what a reader of the object is told; see kscope_cuda/notes.py
enum {{ region_note_ = {REGION}, explicit_note_ = {EXPLICIT}, kernel_note_ = {KERNEL} }};
template <b32_ N, b32_ M> struct note_ {{
  {fields}
  char text[N];
  char file_[M];
  __device__ constexpr note_(b32_ sort, b32_ line, const char (&t)[N], const char (&f)[M], b64_ id,
                             b64_ strategy, b32_ type)
      : magic({MAGIC:#x}), bytes(sizeof(note_)), sort(sort), line(line), id(id), strategy(strategy), type(type),
        log2_records(sort == kernel_note_ ? log2_ : 0), clock(KSCOPE_CLOCK_ - 1), fill(KSCOPE_FILL_ - 1), text{{}},
        file_{{}} {{
    for (b32_ i = 0; i < N; i++) text[i] = t[i];
    for (b32_ i = 0; i < M; i++) file_[i] = f[i];
  }}
}};
// FNV-1a, 64 bits
__device__ constexpr b64_ step_(b64_ h, b64_ x) {{ return (h ^ x) * 0x100000001B3ull; }}
template <b32_ N> __device__ constexpr b64_ long_hash_(const char (&s)[N], b64_ h) {{
  for (b32_ i = 0; i < N; i++) h = step_(h, static_cast<unsigned char>(s[i]));
  return h;
}}
template <b32_ N, b32_ M>
__device__ constexpr b64_ kernel_id_(const char (&text)[N], const char (&file)[M], b32_ line, b64_ strategy) {{
  return step_(step_(step_(step_(step_(long_hash_(file, long_hash_(text, 0xCBF29CE484222325ull)), line), strategy),
    log2_), KSCOPE_CLOCK_ - 1), KSCOPE_FILL_ - 1);
}}
"""
