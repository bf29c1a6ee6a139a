"""kscope's device helpers as C++ functions: kscope::clock() and its like, in every state of the header.

What lives here: the functions around the texts of kscope.ptx.READINGS. What does not: any instruction.
"""

from __future__ import annotations

from kscope.ptx import READINGS, Reading

from .emitted import assembly, operand

_KINDS = {"i32": "int", "u32": "unsigned int", "i64": "long long"}


def text() -> str:
    """The C++ text. A function that is not used leaves nothing."""
    return "\n".join(
        [
            "#ifdef __CUDACC__  // device helpers: they work also where nothing records",
            "namespace kscope {",
            *map(_function, READINGS.values()),
            "}  // namespace kscope",
            "#endif",
        ]
    )


def _function(reading: Reading) -> str:
    kind = _KINDS[reading.type]
    body = assembly(reading.text(operand("=l" if reading.type == "i64" else "=r", "t")))
    if not reading.volatile:
        body = body.replace("asm volatile(", "asm(").replace(' : "memory")', ")")
    return f"__device__ __forceinline__ {kind} {reading.name}() {{\n  {kind} t;\n{body}\n  return t;\n}}"
