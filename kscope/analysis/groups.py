"""Groups of warps: by kernel, launch, role, SM, warp, block, device, lane or track."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..tracedata.data import TraceData
from ..tracedata.warps import Warps
from ..util.arrays import Int64
from ..util.runs import group_equal
from .roles import Named, roles

Key = tuple[int | str, ...]
KEYS = ("kernel", "device", "launch", "role", "sm", "block", "warp", "lane", "track")
"""Keys for grouping, coarse to fine. Warps of different kernels are never combined."""
CALL_KEYS = ("module", "op", "line", "stack")
"""Further keys from the launch's call, for traces with `calls`."""
_NO_CALL = "-"
"""The key of launches whose call has none."""
_FRAMES = " > "
NO_TRACK = "-"
"""The key of warps outside user tracks."""
_WORDS = {"sm": "SM ", "role": "", **dict.fromkeys(CALL_KEYS, "")}
"""The text before a key's value; other keys use their names."""


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
    trace: TraceData, by: str | Iterable[str] = (), named: Named | None = None, track: Int64 | None = None
) -> Groups:
    """Group the rows of Trace.warps.

    Args:
        trace: the trace.
        by: keys of KEYS or CALL_KEYS, as a list or separated by commas.
        named: warp numbers by name of the role, see roles().
        track: (w,) index into Trace.user_tracks of each row, for a trace from tracks.spread(); -1 for none.

    Returns:
        The groups, in order of kernel and keys.

    Raises:
        UsageError: an unknown key, or a role without a valid warp number.
    """
    by_keys = _check_keys(by, trace)
    warps = trace.warps
    columns: list[Int64] = [warps.kernel]
    labels: dict[str, tuple[str, ...]] = {}
    for key in by_keys:
        if key == "role":
            found_roles = roles(trace, named)
            labels[key] = found_roles.names
            columns.append(found_roles.code)
        elif key == "track":
            labels[key] = (NO_TRACK, *trace.user_tracks)
            columns.append(np.zeros(len(warps), np.int64) if track is None else track + 1)
        elif key == "block":
            columns.append(_place(warps))
        elif key in CALL_KEYS:
            labels[key], codes = _of_calls(trace, key)
            columns.append(codes[warps.launch])
        elif key == "device":
            columns.append(np.array(trace.devices, np.int64)[warps.device])
        else:
            columns.append(getattr(warps, key).astype(np.int64))
    names = [labels.get(key) for key in by_keys]
    if len(warps):
        found, code = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True) if by_keys else _one(columns[0])
    else:
        found, code = np.zeros((0, len(columns)), np.int64), np.zeros(0, np.int64)
    keys = [
        tuple(value if name is None else name[value] for value, name in zip(row, names, strict=True))
        for row in found[:, 1:].tolist()
    ]
    code = code.ravel().astype(np.int64)
    if "block" in by_keys and (warps.grid[:, 1:] > 1).any():
        at, row = by_keys.index("block"), np.unique(code, return_index=True)[1]
        shown = warps.blocks(row).strings()
        keys = [(*key[:at], name, *key[at + 1 :]) for key, name in zip(keys, shown, strict=True)]
    return Groups(code, found[:, 0], by_keys, tuple(keys))


def _place(warps: Warps) -> Int64:
    """(w,) int64 that orders blocks like their linear numbers; equal for equal coordinates, in grids of any size."""
    x, y, z = (warps.block_xyz[:, axis] for axis in range(3))
    return x if (warps.grid[:, 1:] == 1).all() else z << 47 | y << 31 | x


def split_keys(by: str | Iterable[str]) -> list[str]:
    """Grouping keys as a list; a string is split at its commas."""
    return [part for part in by.split(",") if part] if isinstance(by, str) else list(by)


def label(by: Iterable[str], key: Key) -> str:
    """A group's name: ``launch 3, SM 5``."""
    return ", ".join(f"{_WORDS.get(name, f'{name} ')}{value}" for name, value in zip(by, key, strict=True))


def _of_calls(trace: TraceData, key: str) -> tuple[tuple[str, ...], Int64]:
    """The distinct values of a key of calls, and the index of each launch's."""
    names = dict[str, int]()
    codes = np.zeros(len(trace.launches), np.int64)
    for call in trace.calls:
        text = _FRAMES.join(call.stack) if key == "stack" else str(getattr(call, key))
        codes[call.launch] = names.setdefault(text or _NO_CALL, len(names))
    return tuple(names), codes


def _check_keys(by: str | Iterable[str], trace: TraceData) -> tuple[str, ...]:
    keys = split_keys(by)
    for name in keys:
        if name in CALL_KEYS and not trace.calls:
            raise UsageError(
                f"by={name!r}: this capture has no calls of launches; record with profile(launch_stacks=True), or give "
                "torch.profiler's trace of the same run: --torch trace.json, or kscope.merge(trace, 'trace.json').trace"
            )
        if name not in (*KEYS, *CALL_KEYS):
            already = "each row is a region already; " * (name == "region")
            raise UsageError(f"by={name!r}: {already}expected {', '.join((*KEYS, *CALL_KEYS))}, or several of them")
    if len(trace.devices) > 1 and "sm" in keys:
        keys.append("device")  # SM 0 of one device is not SM 0 of another
    return tuple(key for key in (*CALL_KEYS, *KEYS) if key in keys and key != "kernel")


def _one(column: Int64) -> tuple[Int64, Int64]:
    first, _, code = group_equal(column)
    return column[first][:, None], code
