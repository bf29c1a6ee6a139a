"""Groups of warps: by kernel, launch, role, SM, warp, block, device, lane or track.

A *role* is the job that warps of one number have in every block of a kernel. Roles are named (``{"producer": [4]}``) or
inferred: warps that record the same regions share a role, named after the region with the longest total.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..util.runs import group_equal
from ..util.text import number_ranges

Int64 = npt.NDArray[np.int64]
Roles = Mapping[str, Iterable[int]]
Key = tuple[int | str, ...]
KEYS = ("kernel", "device", "launch", "role", "sm", "block", "warp", "lane", "track")
"""Keys for grouping, coarse to fine. Warps of different kernels are never combined."""
NO_TRACK = "-"
"""The key of warps outside user tracks."""
_WORDS = {"sm": "SM"}


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups (g,) of the rows (w,) of Trace.warps.

    Attributes:
        code: (w,) int64, each row's group.
        kernel: (g,) int64, index into Trace.kernels.
        by: names of the keys, without `kernel`.
        keys: (g,) their values.
    """

    code: Int64
    kernel: Int64
    by: tuple[str, ...]
    keys: tuple[Key, ...]

    def __len__(self) -> int:
        return len(self.keys)


def group(
    trace: TraceData, by: str | Iterable[str] = (), roles: Roles | None = None, track: Int64 | None = None
) -> Groups:
    """Group the rows of Trace.warps.

    Args:
        trace: the trace.
        by: keys of KEYS, as a list or separated by commas.
        roles: warp numbers by name of the role; inferred without.
        track: (w,) index into Trace.user_tracks of each row, for a trace from tracks.spread(); -1 for none.

    Returns:
        The groups, in order of kernel and keys.

    Raises:
        UsageError: an unknown key, or a role without a valid warp number.
    """
    by_keys = _check_keys(by, len(trace.devices) > 1)
    warps = trace.warps
    columns: list[Int64] = [warps.kernel]
    labels: dict[str, tuple[str, ...]] = {}
    for key in by_keys:
        if key == "role":
            code, labels[key] = role(trace, roles)
            columns.append(code)
        elif key == "track":
            labels[key] = (NO_TRACK, *trace.user_tracks)
            columns.append(np.zeros(len(warps), np.int64) if track is None else track + 1)
        elif key == "device":
            columns.append(np.array(trace.devices, np.int64)[warps.device])
        else:
            columns.append(getattr(warps, key).astype(np.int64))
    if len(warps):
        found, code = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True) if by_keys else _one(columns[0])
    else:
        found, code = np.zeros((0, len(columns)), np.int64), np.zeros(0, np.int64)
    names = [labels.get(key) for key in by_keys]
    keys = [
        tuple(value if name is None else name[value] for value, name in zip(row, names, strict=True))
        for row in found[:, 1:].tolist()
    ]
    return Groups(code.ravel().astype(np.int64), found[:, 0], by_keys, tuple(keys))


def split_keys(by: str | Iterable[str]) -> list[str]:
    """Grouping keys as a list; a string is split at its commas."""
    return [part for part in by.split(",") if part] if isinstance(by, str) else list(by)


def label(by: Iterable[str], key: Key) -> str:
    """A group's name: ``launch 3, SM 5``."""
    return ", ".join(f"{_WORDS.get(name, name)} {value}" for name, value in zip(by, key, strict=True))


def role(trace: TraceData, named: Roles | None = None) -> tuple[Int64, tuple[str, ...]]:
    """(code (w,), names): the role of every row. Warps that `named` leaves out have the role ``other``."""
    if named:
        return _named(trace, named)
    warps = trace.warps
    if not len(trace):
        return np.zeros(len(warps), np.int64), ("no region",)
    place = warps.kernel * 1024 + warps.warp
    first, _, of = group_equal(place)
    places = place[first]
    size = len(places), len(trace.regions)
    cell = of[trace.track] * size[1] + trace.region
    weight = np.maximum(trace.dur_cycles, 0) + 1.0
    time = np.bincount(cell, weights=weight, minlength=size[0] * size[1]).reshape(size)
    found: dict[tuple[int, bytes], list[int]] = {}
    for row, number in enumerate(places.tolist()):
        found.setdefault((number // 1024, (time[row] > 0).tobytes()), []).append(row)
    code_of_place, names = np.zeros(len(places), np.int64), []
    for number, rows in enumerate(found.values()):
        code_of_place[rows] = number
        total = time[rows].sum(axis=0)
        most = trace.regions[int(total.argmax())].name if total.any() else "no region"
        names.append(f"{most} (warp {number_ranges((places[rows] % 1024).tolist())})")
    return code_of_place[of], tuple(names)


def _named(trace: TraceData, named: Roles) -> tuple[Int64, tuple[str, ...]]:
    names = (*named, "other")
    code = np.full(32, len(named), np.int64)
    for number, (name, members) in enumerate(named.items()):
        warps = sorted({int(member) for member in members})
        if not warps or not 0 <= warps[0] <= warps[-1] < 32:
            raise UsageError(f"role {name!r}: expected warp numbers from 0 to 31, such as {{{name!r}: [0, 1]}}")
        taken = [warp for warp in warps if code[warp] != len(named)]
        if taken:
            raise UsageError(
                f"role {name!r}: warp {number_ranges(taken)} has the role {names[int(code[taken[0]])]!r} already"
            )
        code[warps] = number
    return code[trace.warps.warp.astype(np.int64)], names


def _check_keys(by: str | Iterable[str], devices: bool) -> tuple[str, ...]:
    keys = split_keys(by)
    for name in keys:
        if name not in KEYS:
            raise UsageError(f"by={name!r}: expected {', '.join(KEYS)}, or several of them")
    if devices and "sm" in keys:
        keys.append("device")  # SM 0 of one device is not SM 0 of another
    return tuple(key for key in KEYS if key in keys and key != "kernel")


def _one(column: Int64) -> tuple[Int64, Int64]:
    first, _, code = group_equal(column)
    return column[first][:, None], code
