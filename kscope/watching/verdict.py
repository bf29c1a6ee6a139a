"""The state of a program by its pool file: per launch, where each group of warps is. Nothing is guessed."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture import layout, wire
from ..capture.model import ModuleMeta
from ..capture.pools.keeper_socket import refresh
from ..capture.pools.pool_reading import HostLaunch, Pool, batches, entry_of, journal, launches, modules
from ..marks.names import ROLE_TRACK, split
from ..util.grouping import grouped
from ..util.text import number_ranges
from .observing import Observer
from .warp_columns import Warps
from .warps import drained_blocks, warps

IN, BEHIND, NOWHERE, FINISHED = "in", "behind", "unknown", "finished"
"""A warp is in a region; after the last one that it left; without stored data; or it has left the kernel."""
_STATES = IN, BEHIND, NOWHERE, FINISHED  # as Warps numbers them
_FINISHED = _STATES.index(FINISHED)
_VALUES = {"i32": "<i", "u32": "<I", "f32": "<f", "i64": "<i", "u64": "<I"}
"""Formats of the 32 bits of a value, by the type of a region."""
_MOST_GROUPS, _MOST_VALUES = 64, 4
_MOST_WARPS = 1 << wire.EPOCH_SHIFT
"""Most warps of a block, as numbered in a head."""


@dataclass(frozen=True)
class Group:
    """Warps of one launch at the same place.

    Attributes:
        state: "in" a region, "behind" the one that it left last, "unknown" if it has stored none, or "finished".
        region: its name; None if nothing is stored, or its name is unknown.
        where: file:line of the region, None if unknown.
        role: the warps' role, None if they have none.
        warps, blocks: numbers, as in 0-3,8; block numbers are linear.
        count: number of warps.
        block_count: number of their blocks.
        values: the least and the greatest value of the region, None without values.
        sms: numbers of their SMs.
        unchanged_s: seconds since any of them changed; None before a second observation.
    """

    state: str
    region: str | None
    where: str | None
    role: str | None
    warps: str
    blocks: str
    count: int
    block_count: int
    values: tuple[float, float] | None
    sms: str
    unchanged_s: float | None


@dataclass(frozen=True)
class LaunchState:
    """A launch with warps in the pool.

    Attributes:
        kernel: its name, or its hash.
        number: %gridid.
        blocks: of its grid; 0 if unknown.
        begun: blocks of which a warp has begun, as far as the pool shows.
        all_begun_known: True if blocks that are not among `begun` have certainly not begun.
        unfinished, finished: warps.
        groups: warps by place: the smallest groups first, finished warps last.
    """

    kernel: str
    number: int
    blocks: int
    begun: int
    all_begun_known: bool
    unfinished: int
    finished: int
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Verdict:
    """The known state of a program.

    Attributes:
        file: the pool file.
        pid: the process.
        command: its command line.
        running: True if the process exists.
        ended: True if its session has ended normally.
        device: the device's name and ordinal.
        unchanged_s: seconds without any change; None before a second observation.
        enters_per_s: regions stored when entered, a second, since the previous observation; None before a second
            one.
        launches: with warps that have not finished, the oldest first; without any, empty.
        host_launches: the last launches that the host made, the newest first.
        problems: errors of the driver, and unknown facts.
    """

    file: str
    pid: int
    command: tuple[str, ...]
    running: bool
    ended: bool
    device: str
    unchanged_s: float | None
    enters_per_s: float | None
    launches: tuple[LaunchState, ...]
    host_launches: tuple[tuple[str, HostLaunch], ...]
    problems: tuple[str, ...] = field(default=())


class _Names:
    """The names in a pool's modules."""

    def __init__(self, metas: tuple[ModuleMeta, ...]) -> None:
        self.kernels = {kernel.id: kernel.name for meta in metas for kernel in meta.kernels}
        self.modules = {kernel.id: meta for meta in metas for kernel in meta.kernels}
        self.roles = {
            layout.name_hash(region.name): split(region.name)[0]
            for meta in metas
            for region in meta.regions
            if split(region.name)[1] == ROLE_TRACK
        }
        self._partitions = {
            (kernel.id, warp): role.name
            for meta in metas
            for kernel in meta.kernels
            for role in kernel.roles
            for warp in role.warps
        }

    def kernel(self, number: int) -> str:
        return self.kernels.get(number, f"0x{number:016x}" if number else "an unknown launch")

    def region(self, kernel: int, number: int) -> tuple[str | None, str | None, str | None]:
        """(name, place, value type) of a region of a kernel."""
        meta = self.modules.get(kernel)
        for region in meta.regions if meta else ():
            if layout.name_hash(region.name) == number:
                return split(region.name)[0], region.where, region.type
        return (None, None, None) if not number else (f"0x{number:07x}", None, None)

    def role(self, kernel: int, warp: int, named: Mapping[tuple[int, int], int]) -> str | None:
        found = named.get((kernel, warp))
        return self.roles.get(found) if found else self._partitions.get((kernel, warp))


def verdict(pool: Pool, observer: Observer | None = None) -> Verdict:
    """The current verdict.

    Args:
        pool: the pool file.
        observer: has earlier observations, for how long nothing has changed; None for a single look.
    """
    outdated = refresh(pool)
    entries = journal(pool)
    names = _Names(modules(entries))
    found = warps(pool, frozenset(names.roles))
    since = None if observer is None else observer.look(pool, found, time.monotonic())
    host, device = entry_of(entries, "host"), entry_of(entries, "device")
    facts, options = host.get("facts"), host.get("options")
    command = facts.get("command") if isinstance(facts, dict) else None
    problems = [str(one.get("text")) for one in entries if one.get("kind") == "problem"]
    problems += [outdated] if outdated else []
    if left_out := pool.state["journal_left_out"]:
        problems.append(f"{left_out} names and problems did not fit into the file: some regions have no names")
    if count := sum(found.torn):
        problems.append(f"{count} warps entered regions faster than they could be read")
    return Verdict(
        file=str(pool.path),
        pid=pool.pid,
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        running=pool.is_running(),
        ended=pool.has_ended,
        device=f"{device.get('name', 'device')} {pool.header['device']}",
        unchanged_s=None if observer is None else observer.unchanged_s,
        enters_per_s=None if observer is None else observer.enters_per_s,
        launches=tuple(_launches(pool, found, names, since, options if isinstance(options, dict) else {})),
        host_launches=tuple((names.kernel(one.kernel), one) for one in launches(pool)),
        problems=tuple(problems),
    )


def _launches(
    pool: Pool, found: Warps, names: _Names, since: Sequence[float] | None, options: Mapping[str, Any]
) -> list[LaunchState]:
    rows: dict[int, list[int]] = {
        grid: []
        for grid in sorted({grid for grid, state in zip(found.grid, found.state, strict=True) if state != _FINISHED})
    }
    if not rows:
        return []
    for row, grid in enumerate(found.grid):
        if grid in rows:
            rows[grid].append(row)
    drained, lost = batches(pool)
    every = not lost and not {"block", "warp", "sm"} & options.keys()
    triples = {one for one in zip(found.kernel, found.warp, found.role, strict=True) if one[2]}
    named = {(kernel, warp): role for kernel, warp, role in triples}
    made = []
    for grid, mine in rows.items():
        kernel, nx, yz = found.kernel[mine[0]], found.nctaid_x[mine[0]], found.nctaid_yz[mine[0]]
        before = [block for batch in drained if grid for block in drained_blocks(batch, grid)]
        done = sum(found.state[row] == _FINISHED for row in mine)
        made.append(
            LaunchState(
                kernel=names.kernel(kernel),
                number=grid,
                blocks=nx * (yz & 0xFFFF) * (yz >> 16),
                begun=len({found.block[row] for row in mine}.union(before)),
                all_begun_known=bool(every and grid),
                unfinished=len(mine) - done,
                finished=done + len(before),
                groups=tuple(
                    _groups(found, mine, names, [names.role(kernel, n, named) for n in range(_MOST_WARPS)], since)
                ),
            )
        )
    return made


def _groups(
    found: Warps, mine: Sequence[int], names: _Names, roles: Sequence[str | None], since: Sequence[float] | None
) -> list[Group]:
    """Groups of the warps `mine` by place. roles: of a block's warps."""
    known = list(dict.fromkeys(roles))
    role = [known.index(one) for one in roles]
    places = grouped(((found.state[row], role[found.warp[row]], found.region[row]), row) for row in mine)
    made = list[Group]()
    for place, rows in sorted(places.items()):
        values = sorted({found.value[row] for row in rows})
        parts = [rows] if len(values) > _MOST_VALUES else [[r for r in rows if found.value[r] == one] for one in values]
        made += [_group(found, part, _STATES[place[0]], place[2], known[place[1]], names, since) for part in parts]
    return sorted(made, key=lambda one: (one.state == FINISHED, one.count, one.region or ""))[:_MOST_GROUPS]


def _range(words: Iterable[int], kind: str) -> tuple[float, float] | None:
    """The least and the greatest value of open words; None if one has more than 32 bits."""
    unknown = wire.OPEN_UNKNOWN.get(kind)
    found = set[float]()
    for word in words:
        if word == unknown:
            return None
        code, data = ("<d", word << 32) if kind == "f64" else (_VALUES[kind], word)
        found.add(float(struct.unpack(code, data.to_bytes(struct.calcsize(code), "little"))[0]))
    return (math.nan, math.nan) if any(map(math.isnan, found)) else (min(found), max(found))


def _group(
    found: Warps, rows: Sequence[int], state: str, number: int, role: str | None, names: _Names,
    since: Sequence[float] | None,
) -> Group:  # fmt: skip
    name, where, kind = names.region(found.kernel[rows[0]], number)
    blocks = sorted({found.block[row] for row in rows})
    values = None
    if kind is not None and not any(found.has_more[row] for row in rows):
        values = _range({found.value[row] for row in rows}, kind)
    return Group(
        state=state,
        region=name,
        where=where,
        role=role,
        warps=number_ranges(sorted({found.warp[row] for row in rows}), 8),
        blocks=number_ranges(blocks, 8),
        count=len(rows),
        block_count=len(blocks),
        values=values,
        sms=number_ranges(sorted({found.sm[row] for row in rows}), 8),
        unchanged_s=None if since is None else min(since[row] for row in rows),
    )
