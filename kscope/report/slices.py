"""The records of a part as columns: grouped by warp, in order of end, in even ticks (TraceData.even).

code    its row of the table of codes
end     ticks since the warp's previous end; of the first, since the warp's first tick
dur     ticks
cycles  the clock's ticks, if these are others
value   the low 32 bits of the user's number, of records that have one, in order
high    its high 32 bits, if some numbers have 64
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..capture.layout import Kind
from .pack import Packed, narrow, pack, zigzag
from .scene import Part, Scene

VALUED = (Kind.SPAN_VALUE, Kind.INSTANT_VALUE, Kind.COUNTER)
_FAR = 1 << 52  # doubles are exact up to here


def packed(scene: Scene, part: Part) -> dict[str, Any]:
    """{"count", "place", "first", "last", "signed", "spec", "text"}; signed if damaged clocks run backward."""
    end = np.clip(part.end, -_FAR, _FAR)
    step = np.diff(end, prepend=0)
    heads = np.flatnonzero(np.diff(part.warp, prepend=-1))
    step[heads] = end[heads]
    signed = bool(len(step)) and int(step.min()) < 0
    columns = {
        "code": part.code,
        "end": narrow(zigzag(step) if signed else step),
        "dur": narrow(np.minimum(part.dur, _FAR)),
    }
    if scene.trace.even is not scene.trace:
        columns["cycles"] = narrow(np.clip(scene.trace.dur_cycles[part.at], 0, _FAR))
    valued = valued_codes(scene)
    if valued.any():
        bits = scene.trace.bits[part.at[valued[part.code]]]
        columns["value"] = bits.astype(np.uint32)
        if bits.dtype == np.uint64:
            columns["high"] = (bits >> np.uint64(32)).astype(np.uint32)
    found: Packed = pack(columns)
    place = {"count": len(part.code), "place": part.place, "first": part.first, "last": part.last, "signed": signed}
    return {**place, "spec": found.spec, "text": found.text}


def valued_codes(scene: Scene) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Codes of records that carry the user's number."""
    has = np.array([region.kind in VALUED for region in scene.trace.regions])
    return np.asarray(has[scene.codes.region], bool)
