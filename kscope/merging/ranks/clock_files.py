"""Reads a job's clock data: comparisons by ranks at both ends of their sessions (clock.json beside each rank's
capture), and offsets of the hosts' clocks that PTP or NTP measured (offsets.json in the job's folder).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson

from ...errors import FormatError
from ...util.arrays import Int64
from ...util.bounded_reading import read_bytes

FILE, SCHEMA = "clock.json", "kscope.clock"
OFFSETS = "offsets.json"
_MOST = 64 << 20


@dataclass(frozen=True, eq=False)
class Peer:
    """A comparison with another GPU, by signals: int64 ns of both GPUs' %globaltimer.

    Attributes:
        gpu: the other one's UUID.
        mine_first: (n, 2) readings of this one, and later ones of the other one.
        its_first: (m, 2) readings of the other one, and later ones of this one.
    """

    gpu: str
    mine_first: Int64
    its_first: Int64


@dataclass(frozen=True, eq=False)
class Compared:
    """A rank's comparisons.

    Attributes:
        gpu: the UUID of its GPU; empty if it compared none.
        rank_0_clock: (n, 3) UNIX ns of this host's clock, of rank 0's host's, and of this one's again.
        peers: other GPUs of the host.
    """

    gpu: str = ""
    rank_0_clock: Int64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    peers: tuple[Peer, ...] = ()


def read_comparisons(capture: Path) -> Compared:
    """The comparisons beside a capture; none without a file.

    Raises:
        FormatError: the file is damaged.
    """
    file = capture.parent / FILE
    if not file.is_file():
        return Compared()
    data = read_bytes(file, _MOST)
    try:
        found = orjson.loads(data)
        if found["schema"] != SCHEMA or found["version"] != 1:
            raise ValueError("another schema")
        gpu = found["gpu"]
        if not isinstance(gpu, (str, type(None))):
            raise TypeError("gpu")
        peers = tuple(
            Peer(str(one["gpu"]), _table(one["mine_first"], 2), _table(one["its_first"], 2)) for one in found["peers"]
        )
        return Compared(gpu or "", _table(found["rank_0_clock"], 3), peers)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{file}: damaged ({error}); remove it to compare ranks without it") from None


def offsets(capture: Path, host: str) -> Int64:
    """Lead of a host's clock over the clock that all hosts of a job follow; no rows if it was not measured.

    Args:
        capture: of a rank; the file is in its folder or in the one above.
        host: name of the rank's host.

    Returns:
        (n, 3) int64: UNIX ns of the host's clock, its lead in ns, and the largest error of that.

    Raises:
        FormatError: the file is damaged.
    """
    file = next((at for at in (capture.parent / OFFSETS, capture.parent.parent / OFFSETS) if at.is_file()), None)
    if file is None:
        return _table([], 3)
    data = read_bytes(file, _MOST)
    try:
        found = _table(orjson.loads(data).get(host), 3)
        if (found[:, 2] < 0).any():
            raise ValueError("an error below 0")
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError, OverflowError) as error:
        form = '{"hostname": [[UNIX ns, ns ahead, most ns that this is wrong], ...]}'
        raise FormatError(f"{file}: {error}; expected {form}, all integers") from None
    return found


def _table(rows: object, width: int) -> Int64:
    found = np.array(rows, np.int64) if rows else np.zeros((0, width), np.int64)
    if found.ndim != 2 or found.shape[1] != width or (np.abs(found) >= 1 << 62).any():
        raise ValueError(f"expected rows of {width} times")
    return found
