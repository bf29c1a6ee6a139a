"""The ends of arrows in a .pftrace. Fields: track_event.proto of Perfetto v52."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...util.arrays import Bools, Bytes, Int64
from ...util.parallel import chunks
from ..flows import Flows, arrival
from ..timeline import Timeline
from .tracks import FIRST_TRACK, INSTANT, SEQUENCE, block, fixed, number, packet

_FLOW, _LAST_OF_FLOW = b"\xf9\x02", b"\x81\x03"


class Arrows:
    """Flow ids of records: flows that begin, and flows that end there."""

    def __init__(self, flows: Flows) -> None:
        numbers = np.arange(1, len(flows) + 1, dtype="<u8")
        self._source, self._begins = flows.source, _ids(_FLOW, numbers)
        rows = np.flatnonzero(~flows.at_end)
        rows = rows[np.argsort(flows.target[rows], kind="stable")]
        self._target, self._ends = flows.target[rows], _ids(_LAST_OF_FLOW, numbers[rows])

    def fields(self, items: Int64, end: Bools) -> dict[int, bytes]:
        """The ends of arrows at the begins among events (m,) of items: row -> bytes."""
        fields: dict[int, bytes] = {}
        if not len(self._source):
            return fields
        for table, data in ((self._source, self._begins), (self._target, self._ends)):
            first, after = (np.searchsorted(table, items, side) for side in ("left", "right"))
            rows = np.flatnonzero((after > first) & ~end)
            for row, a, b in zip(rows.tolist(), first[rows].tolist(), after[rows].tolist(), strict=True):
                fields[row] = fields.get(row, b"") + data[a:b].tobytes()
        return fields


def arrivals(timeline: Timeline) -> Iterator[bytes]:
    """An instant where an arrow points to the end of a span: Perfetto turns an arrow around that ends at a slice which
    began before the arrow's source.
    """
    flows, origin = timeline.flows, max(0, timeline.origin)
    late = np.flatnonzero(flows.at_end)
    for part in chunks(len(late)):
        rows = late[part]
        target = flows.target[rows]
        columns = (rows + 1, timeline.trace.region[flows.source[rows]], timeline.track[target], timeline.end[target])
        for arrow, region, track, ns in zip(*(column.tolist() for column in columns), strict=True):
            name = block(23, arrival(timeline.trace.regions[region].name))
            event = number(9, INSTANT) + number(11, FIRST_TRACK + track) + name + fixed(48, arrow)
            yield packet(number(8, origin + ns) + number(10, SEQUENCE) + block(11, event))


def _ids(tag: bytes, numbers: npt.NDArray[np.uint64]) -> Bytes:
    out = np.empty((len(numbers), len(tag) + 8), np.uint8)
    out[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    out[:, len(tag) :] = numbers.view(np.uint8).reshape(-1, 8)
    return out


def write_padded(where: Bytes, values: npt.NDArray[np.unsignedinteger[Any]]) -> None:
    """Write varints (m,) padded to the width of the columns (m, width)."""
    last = where.shape[1] - 1
    rest = values.astype(np.uint64)
    for byte in range(last + 1):
        where[:, byte] = (rest & np.uint64(0x7F)).astype(np.uint8) | (0x80 if byte < last else 0)
        rest >>= np.uint64(7)
