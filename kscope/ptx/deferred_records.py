"""Records that stay in registers until the warp waits for tensor cores, and are stored there.

ks_d<n>  .pred  records stayed in registers at the end n of a loop (lowering/deferred_stores.py)
"""

from __future__ import annotations


def declared(number: int) -> str:
    """At the top of the entry."""
    return f"\t.reg .pred {kept(number)}; {_set(number, 'ne')}"


def keep(number: int) -> str:
    """At the end of an iteration, instead of stores."""
    return f"\t{_set(number, 'eq')}"


def gone(number: int) -> str:
    """After their stores."""
    return f"\t{_set(number, 'ne')}"


def kept(number: int) -> str:
    """The predicate."""
    return f"ks_d{number}"


def _set(number: int, how: str) -> str:
    return f"setp.{how}.u64 {kept(number)}, ks_ctl, ks_ctl;\n"


def keep_after() -> str:
    """Keeps the stores that follow, which need ks_n, after this point: without it the assembler moves them before the
    instructions for the tensor cores, which would then begin later. The clock is read only if ks_never holds.
    """
    return (
        "\t{ .reg .b64 ks_k; .reg .b32 ks_x; mov.u64 ks_k, %clock64; cvt.u32.u64 ks_x, ks_k;"
        " selp.b32 ks_n, ks_x, ks_n, ks_never; }\n"
    )
