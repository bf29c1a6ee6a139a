"""Device helpers: instructions that read clocks and ids, with their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .claim import thread_id

Width = Literal["i32", "u32", "i64"]


@dataclass(frozen=True)
class Reading:
    """A device helper.

    Attributes:
        name: its name in kscope.
        type: its result type.
        volatile: each use reads again, in order with memory; otherwise a compiler may read once for several uses.
    """

    name: str
    type: Width
    volatile: bool
    _text: str

    def text(self, into: str) -> str:
        """The instructions as one line. into: the result's register or placeholder."""
        return self._text.replace("@", into)


# block = x + nx * (y + ny * z), its low 32 bits
_BLOCK = (
    "{ .reg .b32 ks_y, ks_z; mov.u32 @, %ctaid.z; mov.u32 ks_y, %nctaid.y; mov.u32 ks_z, %ctaid.y;"
    " mad.lo.u32 @, @, ks_y, ks_z; mov.u32 ks_y, %nctaid.x; mov.u32 ks_z, %ctaid.x; mad.lo.u32 @, @, ks_y, ks_z; }"
)
# warp = linear thread id / 32, as a slab's header has it: %warpid may change while the kernel runs
_WARP = f"{{ .reg .b32 ks_y, ks_z; {thread_id('@')} shr.u32 @, @, 5; }}"

READINGS = {
    one.name: one
    for one in (
        Reading("clock", "u32", True, "mov.u32 @, %clock;"),
        Reading("clock64", "i64", True, "mov.u64 @, %clock64;"),
        Reading("globaltimer", "i64", True, "mov.u64 @, %globaltimer;"),
        Reading("smid", "i32", True, "mov.u32 @, %smid;"),
        Reading("warp_id", "i32", False, _WARP),
        Reading("lane_id", "i32", False, "mov.u32 @, %laneid;"),
        Reading("block_id", "i32", False, _BLOCK),
    )
}
"""Name -> device helper."""
