"""Several traces on one time axis as one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..util.runs import inverse, least_of
from .clock_curves import Curves
from .data import Launch, T
from .kernel_names import of_kernels
from .recording_facts import Gpu
from .region import MOST_REGIONS, Region
from .warps import Warps

_U32 = 1


def concatenate(parts: Sequence[T], gpus: Sequence[Sequence[Gpu]], labels: Sequence[str]) -> T:
    """Concatenate traces.

    Args:
        parts: at least one; filtered ones keep their filters.
        gpus: the devices of each part, with their new numbers and names.
        labels: prefixes of the texts of each part's problems, such as "rank 3: ".

    Raises:
        UsageError: together they have too many regions.
    """
    origin = min(part.origin for part in parts)
    regions, roles = dict[Region, int](), dict[str, int]()
    kernels = dict[tuple[str, int], int]()
    warps = {field.name: list[npt.NDArray[Any]]() for field in fields(Warps)}
    columns = {name: list[npt.NDArray[Any]]() for name in ("region", "track", "start_ticks", "dur_cycles", "bits")}
    types, launches, rows, devices, curves = dict[tuple[int, int], int](), list[Launch](), 0, 0, 0
    for part, named in zip(parts, gpus, strict=True):
        region = np.array([regions.setdefault(one, len(regions)) for one in part.regions], np.int64)
        keys = zip(part.kernels, of_kernels(part), strict=True)
        kernel = np.array([kernels.setdefault(key, len(kernels)) for key in keys], np.int64)
        role = np.array([*(roles.setdefault(one, len(roles)) for one in part.role_names), -1], np.int16)
        for row, here in enumerate(kernel.tolist()):
            types |= {(here, to): int(part.types[row, at]) for at, to in enumerate(region.tolist())}
        kept, place, old = part.shown_warps, np.zeros(len(part.warps), np.int32), part.warps
        place[kept] = np.arange(len(kept)) + rows
        shift = float(part.origin - origin)
        changed: dict[str, npt.NDArray[Any]] = {
            "device": old.device + devices, "kernel": kernel[old.kernel] if len(kernel) else old.kernel,
            "launch": old.launch + len(launches), "role": role[old.role], "start_ns": old.start_ns + shift,
            "end_ns": old.end_ns + shift, "curve": old.curve + np.where(old.curve >= 0, np.int32(curves), np.int32(0)),
        }  # fmt: skip
        for name, found in warps.items():
            found.append((changed[name] if name in changed else getattr(old, name))[kept])
        records: dict[str, npt.NDArray[Any]] = {
            "region": region[part.region].astype(np.uint16),
            "track": place[part.track],
        }
        for name, found in columns.items():
            found.append(records[name] if name in records else getattr(part, name))
        number = dict(zip(part.devices, (one.device for one in named), strict=True))
        launches += [replace(one, device=number[one.device]) for one in part.launches]
        rows, devices, curves = rows + len(kept), devices + len(part.devices), curves + len(part.curves)
    if len(regions) > MOST_REGIONS:
        raise UsageError(f"{len(regions):,} regions together, expected at most {MOST_REGIONS:,}: join fewer traces")
    table = np.full((max(1, len(kernels)), len(regions)), _U32, np.uint8)
    for where, code in types.items():
        table[where] = code
    every = [one for named in gpus for one in named]
    problems = [
        replace(one, text=label + one.text) for part, label in zip(parts, labels, strict=True) for one in part.problems
    ]
    more: dict[str, Any] = {name: np.concatenate(found) for name, found in columns.items()}
    joined = Warps(**{name: np.concatenate(found) for name, found in warps.items()})
    order, moved = _by_begin(joined, len(launches))
    return replace(
        parts[0], warps=replace(joined, launch=moved[joined.launch]), regions=tuple(regions), types=table,
        kernels=tuple(name for name, _ in kernels), launches=tuple(launches[at] for at in order.tolist()),
        devices=tuple(one.device for one in every), origin=origin, problems=tuple(problems), role_names=tuple(roles),
        lost_launches=tuple(one for part in parts for one in part.lost_launches), calls=(), _whole=None,
        curves=Curves.joined([part.curves for part in parts]),
        recorded=replace(parts[0].recorded, gpus=tuple(every)), **more,
    )  # fmt: skip


def _by_begin(warps: Warps, launches: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The launches in order of start, and the place of each in it."""
    order = np.argsort(least_of(warps.launch, warps.start_ns, launches, np.inf), kind="stable")
    return order, inverse(order)
