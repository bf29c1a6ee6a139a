"""PTX: the instructions of recording, which other rooms take from here.

The pass in lowering/ puts these texts into a kernel; inline.py has those that only inline assembly in C++ needs, and
reading.py the device helpers, which work without recording. A recording lane keeps its state in registers that are
declared once at the entry's function scope and shared by name with every later text:

    ks_on    .pred  this lane owns a slab           ks_s<i>  .b64  clock at the enter of slot i
    ks_base  .b64   address of the slab             ks_e<i>  .b64  clock at its exit, until stored
    ks_n     .b32   records so far                  ks_v<i>  .b32  its value
                                                    ks_u<i>  .b32  the rest of a value of 64 bits (marks/wide.py)
                                                    ks_w<i>  .pred whether the enter's predicate held
                                                    ks_t<i>  .pred whether a wait of auto="pipeline" is going on

A kernel compiled with survive= keeps ks_seq, the number of enters that were stored at once.
A kernel with a mark for the first lane that gets there (Elected(any_lane=True)) keeps two more: ks_may, this lane may
still claim; ks_own, it has a slab from the entry. There ks_w<i> also means that the lane was elected at the enter.

A kernel with marks in loops keeps ks_edge (anchor.py), and with records="auto" ks_last, the last place in its ring.

Everything else is declared inside braces. Every name begins with `ks_`: user code has no such names, and a register
named like a kernel crashes ptxas 13.0.
"""

from . import deferred as deferred
from . import loop_records as loop_records
from . import operations as operations
from .anchor import anchor, anchor_now, due
from .claim import again, attempt, claim, late
from .entry import control_symbol, declarations, entry, metadata_symbol
from .kernel import Kernel, Slot
from .reading import READINGS, Reading
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
    "deferred",
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
