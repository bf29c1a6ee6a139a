"""The state of a program by its pool file: per launch, where each group of warps is. Nothing is guessed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..capture import layout, wire
from ..capture.layout import HEADER, HEADER_BYTES, HEADER_WORD
from ..capture.model import ModuleMeta
from ..capture.pools.keeper_socket import refresh
from ..capture.pools.pool_reading import HostLaunch, Pool, journal, kept, launches, modules
from ..marks.grammar import ROLE_TRACK, split
from ..marks.strategies import MAX_WARPS
from ..marks.wide import CODES, floats, joined
from ..util.arrays import distinct
from ..util.text import number_ranges
from .observing import Observer
from .warps import Warps, warps

IN, BEHIND, NOWHERE, FINISHED = "in", "behind", "unknown", "finished"
"""A warp is in a region; behind the last one that it left; nothing is stored of it; or it has left the kernel."""
_STATES = IN, BEHIND, NOWHERE, FINISHED
_MOST_GROUPS, _MOST_VALUES = 64, 4


@dataclass(frozen=True)
class Group:
    """Warps of one launch at the same place.

    Attributes:
        state: "in" a region, "behind" the one that it left last, "unknown" if it has stored none, or "finished".
        region: its name; None if nothing is stored, or its name is unknown.
        where: file:line of the region, None if unknown.
        role: the warps' role, None if they have none.
        warps, blocks: which, as in 0-3,8; block numbers are linear.
        count: how many warps.
        block_count: how many blocks they are of.
        values: the least and the greatest value of the region, None without values.
        sms: on which SMs.
        unchanged_s: since when nothing of any of them changed, seconds; None before a second look.
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
        all_begun_known: whether blocks that are not among `begun` have certainly not begun.
        unfinished, finished: warps.
        groups: where they stand: the smallest groups first, finished warps last.
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
    """What is known.

    Attributes:
        file: the pool file.
        pid: the process.
        command: its command line.
        running: whether it is there.
        ended: whether its session has ended by itself.
        device: the device's name and ordinal.
        unchanged_s: since when nothing at all changed, seconds; None before a second look.
        enters_per_s: regions stored when entered, a second, since the look before; None before a second look.
        launches: with warps that have not finished, the oldest first; without any, empty.
        host_launches: the last launches that the host made, the newest first.
        problems: errors of the driver, and what is not known.
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

    @property
    def unfinished(self) -> int:
        """Warps that have not finished."""
        return sum(launch.unfinished for launch in self.launches)


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
    host: dict[str, Any] = next((one for one in entries if one.get("kind") == "host"), {})
    device: dict[str, Any] = next((one for one in entries if one.get("kind") == "device"), {})
    facts, options = host.get("facts"), host.get("options")
    command = facts.get("command") if isinstance(facts, dict) else None
    problems = [str(one.get("text")) for one in entries if one.get("kind") == "problem"]
    problems += [outdated] if outdated else []
    if left_out := int(pool.state["journal_left_out"][0]):
        problems.append(f"{left_out} names and problems did not fit into the file: some regions have no names")
    if count := int(found.torn.sum()):
        problems.append(f"{count} warps entered regions faster than they could be read")
    return Verdict(
        file=str(pool.path),
        pid=pool.pid,
        command=tuple(map(str, command)) if isinstance(command, list) else (),
        running=pool.is_running(),
        ended=pool.has_ended,
        device=f"{device.get('name', 'device')} {int(pool.header['device'])}",
        unchanged_s=None if observer is None else observer.unchanged_s,
        enters_per_s=None if observer is None else observer.enters_per_s,
        launches=tuple(_launches(pool, found, names, since, options if isinstance(options, dict) else {})),
        host_launches=tuple((names.kernel(one.kernel), one) for one in launches(pool)),
        problems=tuple(problems),
    )


def _launches(
    pool: Pool, found: Warps, names: _Names, since: np.ndarray | None, options: Mapping[str, Any]
) -> list[LaunchState]:
    grids = found.launch["grid_id"]
    order = sorted(set(grids[~found.finished].tolist()))
    if not order:
        return []
    drained, lost = kept(pool)
    headers = _headers(drained)
    every = not lost and not {"block", "warp", "sm"} & options.keys()
    rows = np.flatnonzero(found.role)
    triples = zip(
        found.launch["kernel"][rows].tolist(), found.warp[rows].tolist(), found.role[rows].tolist(), strict=True
    )
    named = {(kernel, warp): role for kernel, warp, role in set(triples)}
    made = []
    for grid in order:
        mine = np.flatnonzero(grids == grid)
        launch = found.launch[mine[0]]
        nx, yz = int(launch["nctaid_x"]), int(launch["nctaid_yz"])
        before = headers[(headers["grid_id"] == grid) & (grid != 0)]
        numbers = distinct(np.concatenate([found.block[mine], _linear(before)]))
        done = int(found.finished[mine].sum())
        made.append(
            LaunchState(
                kernel=names.kernel(int(launch["kernel"])),
                number=int(grid),
                blocks=nx * (yz & 0xFFFF) * (yz >> 16),
                begun=len(numbers),
                all_begun_known=bool(every and grid),
                unfinished=len(mine) - done,
                finished=done + len(before),
                groups=tuple(_groups(found, mine, names, named, since)),
            )
        )
    return made


def _headers(lines: np.ndarray) -> np.ndarray:
    """The headers of a capture's slabs, (s,) HEADER."""
    if not len(lines):
        return np.zeros(0, HEADER)
    at = np.flatnonzero(lines[:, 0] == HEADER_WORD)
    at = at[at + 1 < len(lines)]
    pairs = np.stack([lines[at], lines[at + 1]], axis=1).reshape(-1, HEADER_BYTES // 4)
    good = layout.header_check(pairs) == pairs[:, 15]
    return np.ascontiguousarray(pairs[good]).view(HEADER)[:, 0]


def _linear(headers: np.ndarray) -> np.ndarray:
    yz, nyz = headers["ctaid_yz"].astype(np.int64), headers["nctaid_yz"].astype(np.int64)
    nx, x = headers["nctaid_x"].astype(np.int64), headers["ctaid_x"].astype(np.int64)
    return np.asarray(x + nx * ((yz & 0xFFFF) + (nyz & 0xFFFF) * (yz >> 16)))


def _groups(
    found: Warps, mine: np.ndarray, names: _Names, named: Mapping[tuple[int, int], int], since: np.ndarray | None
) -> list[Group]:
    kernel = int(found.launch["kernel"][mine[0]])
    by_warp = [names.role(kernel, warp, named) for warp in range(MAX_WARPS)]
    known = list(dict.fromkeys(by_warp))
    role = np.array([known.index(one) for one in by_warp])[found.warp[mine] % MAX_WARPS]
    region, last = found.region[mine], found.last[mine]
    is_in = ~found.finished[mine] & (region != 0) & ~found.left[mine]
    state = np.select([found.finished[mine], is_in, last != 0], [3, 0, 1], 2)
    each = np.where(is_in, region, last)
    numbers = distinct(each)
    number = np.searchsorted(numbers, each)
    value = np.where(is_in, found.word["value"][mine], found.last_value[mine]).astype(np.int64)
    place = (state * len(known) + role) * len(numbers) + number
    made = list[Group]()
    for where in distinct(place).tolist():
        rows = np.flatnonzero(place == where)
        values = distinct(value[rows])
        parts = [rows] if len(values) > _MOST_VALUES else [rows[value[rows] == one] for one in values]
        at, place_role = divmod(where, len(numbers))[1], where // len(numbers)
        what = _STATES[place_role // len(known)], int(numbers[at]), known[place_role % len(known)]
        made += [_group(found, mine[part], *what, names, since) for part in parts]
    return sorted(made, key=lambda one: (one.state == FINISHED, one.count, one.region or ""))[:_MOST_GROUPS]


def _range(words: np.ndarray, kind: str) -> tuple[float, float] | None:
    """The least and the greatest value of open words; None if one has more than 32 bits."""
    if (words == wire.OPEN_UNKNOWN.get(kind, -1)).any():
        return None
    codes = np.full(len(words), CODES[kind], np.uint8)
    found = floats(joined(codes, words, np.zeros(len(words), np.uint32)), codes)
    return float(found.min()), float(found.max())


def _group(
    found: Warps, rows: np.ndarray, state: str, number: int, role: str | None, names: _Names, since: np.ndarray | None
) -> Group:
    name, where, kind = names.region(int(found.launch["kernel"][rows[0]]), number)
    blocks = distinct(found.block[rows])
    values = None
    if kind is not None and (state == IN or not found.last_more[rows].any()):
        words = np.where(state == IN, found.word["value"][rows], found.last_value[rows]).astype(np.uint32)
        values = _range(words, kind)
    return Group(
        state=state,
        region=name,
        where=where,
        role=role,
        warps=number_ranges(distinct(found.warp[rows]).tolist(), 8),
        blocks=number_ranges(blocks.tolist(), 8),
        count=len(rows),
        block_count=len(blocks),
        values=values,
        sms=number_ranges(distinct(found.sm[rows]).tolist(), 8),
        unchanged_s=None if since is None else float(since[rows].min()),
    )
