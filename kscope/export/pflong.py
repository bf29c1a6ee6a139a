"""Extra fields of a few events in a .pftrace: arguments of lifetimes, and ends of arrows.

Fields: track_event.proto and debug_annotation.proto of Perfetto v52.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..util.parallel import chunks, each
from . import lifetimes
from .flows import Flows
from .pftracks import ARGUMENTS
from .timeline import Timeline

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_BYTES = 14  # 22 LEN 08 NAME 18 and nine bytes of a varint
_BEGINS = (0x48, 1)  # repeats the type, a begin
_FLOW, _LAST_OF_FLOW = b"\xf9\x02", b"\x81\x03"


class ExtraFields:
    """Extra fields of events, by item."""

    def __init__(self, timeline: Timeline) -> None:
        self._records = len(timeline.trace)
        self._lifetimes = _lifetimes(timeline) if timeline.view.args else np.empty((0, 0), np.uint8)
        self._arrows = _Arrows(timeline.flows) if len(timeline.flows) else None

    def of_arrows(self, items: Int64, end: Bools) -> dict[int, bytes]:
        """The ends of arrows at events (m,): row -> bytes."""
        fields: dict[int, bytes] = {}
        if self._arrows is not None:
            self._arrows.add(fields, items, end)
        return fields

    def of_lifetimes(self, items: Int64, end: Bools) -> tuple[Int64, Bytes]:
        """(k,) those of the events (m,) that begin a lifetime with arguments, and their fields (k, bytes)."""
        if not len(self._lifetimes):
            return np.zeros(0, np.int64), self._lifetimes
        at = np.flatnonzero((items >= self._records) & ~end)
        return at, self._lifetimes[items[at] - self._records]


def _lifetimes(timeline: Timeline) -> Bytes:
    """(w, bytes) annotations of the drawn lanes; unknown values are padding."""
    known = [one for one in lifetimes.arguments(timeline.trace) if one.known.any()]
    out = np.empty((len(timeline.alive), _BYTES * len(known)), np.uint8)

    def fill(rows: slice) -> None:
        alive = timeline.alive[rows]
        for place, number in enumerate(known):
            part = out[rows, _BYTES * place : _BYTES * (place + 1)]
            part[:, :5] = (0x22, _BYTES - 2, 0x08, ARGUMENTS.index(number.name) + 1, 0x18)
            padded(part[:, 5:], number.values[alive].astype(np.uint64))
            part[~number.known[alive]] = _BEGINS * (_BYTES // 2)

    each(fill, chunks(len(out)))
    return out


class _Arrows:
    """Flow ids of records: flows that begin, and flows that end there."""

    def __init__(self, flows: Flows) -> None:
        number = np.arange(1, len(flows) + 1, dtype="<u8")
        self._source, self._begins = flows.source, _ids(_FLOW, number)
        self._targets = []
        for at_end in (False, True):
            rows = np.flatnonzero(flows.at_end == at_end)
            rows = rows[np.argsort(flows.target[rows], kind="stable")]
            self._targets.append((flows.target[rows], _ids(_LAST_OF_FLOW, number[rows])))

    def add(self, fields: dict[int, bytes], items: Int64, end: Bools) -> None:
        (target, ids), (late, late_ids) = self._targets
        for table, data, where in ((self._source, self._begins, ~end), (target, ids, ~end), (late, late_ids, end)):
            first, after = (np.searchsorted(table, items, side) for side in ("left", "right"))
            rows = np.flatnonzero((after > first) & where)
            for row, a, b in zip(rows.tolist(), first[rows].tolist(), after[rows].tolist(), strict=True):
                fields[row] = fields.get(row, b"") + data[a:b].tobytes()


def _ids(tag: bytes, numbers: npt.NDArray[np.uint64]) -> Bytes:
    out = np.empty((len(numbers), len(tag) + 8), np.uint8)
    out[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    out[:, len(tag) :] = numbers.view(np.uint8).reshape(-1, 8)
    return out


def padded(where: Bytes, values: npt.NDArray[np.unsignedinteger[Any]]) -> None:
    """Write varints (m,) padded to the width of the columns (m, width)."""
    last = where.shape[1] - 1
    rest = values.astype(np.uint64)
    for byte in range(last + 1):
        where[:, byte] = (rest & np.uint64(0x7F)).astype(np.uint8) | (0x80 if byte < last else 0)
        rest >>= np.uint64(7)
