"""The PTX of recording. A lane keeps its state in registers that entry() declares; later texts share them by name:

    ks_on     .pred  this lane owns a slab
    ks_base   .b64   address of the slab
    ks_n      .b32   records so far
    ks_s<i>   .b64   clock at the enter of slot i
    ks_e<i>   .b64   clock at its exit, until stored
    ks_v<i>   .b32   its value
    ks_u<i>   .b32   the rest of a value of 64 bits (marks/wide_values.py)
    ks_w<i>   .pred  the enter's predicate held; with Elected(any_lane=True) also: the lane was elected there
    ks_t<i>   .pred  a wait of auto="pipeline" is going on
    ks_seq    .b32   survive=: enters that were stored at once
    ks_may    .pred  Elected(any_lane=True): this lane may still claim
    ks_own    .pred  Elected(any_lane=True): it has a slab from the entry
    ks_edge   .b32   marks in loops: see anchor.py
    ks_last   .b32   marks in loops, records="auto": the last place in the ring

Every name begins with `ks_`: user code has no such names, and a register named like a kernel crashes ptxas 13.0.
"""

from . import deferred_records as deferred_records
from . import loop_records as loop_records
from . import operations as operations
from .anchor import anchor, anchor_now, due
from .claim import again, attempt, claim, late
from .entry import control_symbol, declarations, entry, metadata_symbol
from .helpers import READINGS, Reading
from .kernel import Kernel, Slot
from .record import barrier_fence, clock, enter, finish, guarded, leave, open_word, pin, point, store

__all__ = [
    "READINGS",
    "Kernel",
    "Reading",
    "Slot",
    "again",
    "anchor",
    "anchor_now",
    "attempt",
    "barrier_fence",
    "claim",
    "clock",
    "control_symbol",
    "declarations",
    "deferred_records",
    "due",
    "enter",
    "entry",
    "finish",
    "guarded",
    "late",
    "leave",
    "loop_records",
    "metadata_symbol",
    "open_word",
    "operations",
    "pin",
    "point",
    "store",
]
