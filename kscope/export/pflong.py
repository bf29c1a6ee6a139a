"""Extra fields of a few events in a .pftrace: the ends of arrows. Fields: track_event.proto of Perfetto v52."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .flows import Flows

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_FLOW, _LAST_OF_FLOW = b"\xf9\x02", b"\x81\x03"


class Arrows:
    """Flow ids of records: flows that begin, and flows that end there."""

    def __init__(self, flows: Flows) -> None:
        number = np.arange(1, len(flows) + 1, dtype="<u8")
        self._source, self._begins = flows.source, _ids(_FLOW, number)
        self._targets = []
        for at_end in (False, True):
            rows = np.flatnonzero(flows.at_end == at_end)
            rows = rows[np.argsort(flows.target[rows], kind="stable")]
            self._targets.append((flows.target[rows], _ids(_LAST_OF_FLOW, number[rows])))

    def fields(self, items: Int64, end: Bools) -> dict[int, bytes]:
        """The ends of arrows at events (m,) of items, which are ends or begins: row -> bytes."""
        fields: dict[int, bytes] = {}
        (target, ids), (late, late_ids) = self._targets
        if not len(self._source):
            return fields
        for table, data, where in ((self._source, self._begins, ~end), (target, ids, ~end), (late, late_ids, end)):
            first, after = (np.searchsorted(table, items, side) for side in ("left", "right"))
            rows = np.flatnonzero((after > first) & where)
            for row, a, b in zip(rows.tolist(), first[rows].tolist(), after[rows].tolist(), strict=True):
                fields[row] = fields.get(row, b"") + data[a:b].tobytes()
        return fields


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
