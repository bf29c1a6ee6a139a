"""Operations of several lanes, warps and the copy engine: barriers, shuffles, votes, atomics, mbarriers, bulk copies.

An mbarrier: [arrivals of a phase, arrivals missing, bytes missing, phases that are over]. A bulk copy takes no time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptxvm.syntax import Instr, Pair, PtxError

from .machine import Lanes, Machine, width

_NUMBERS = {"f32": np.float32, "u32": np.uint32, "s32": np.int32, "u64": np.uint64}


def _barrier(m: Machine, i: Instr, lanes: Lanes) -> None:
    if i.op[1] != "warp":
        m.waiting[lanes] = True


def _shuffle(m: Machine, i: Instr, lanes: Lanes) -> None:
    """shfl.sync in its four modes, as the PTX ISA has it; lanes that take part must be here."""
    offset, limits = (m.read(arg, "u32", lanes).astype(np.int64) for arg in i.args[2:4])
    lane = lanes % 32
    clamp, segment = limits & 31, limits >> 8 & 31
    most, least = lane & segment | clamp & ~segment, lane & segment
    other, inside = {
        "bfly": lambda: (lane ^ offset, (lane ^ offset) <= most),
        "down": lambda: (lane + offset, lane + offset <= most),
        "up": lambda: (lane - offset, lane - offset >= most),
        "idx": lambda: (least | offset & ~segment, (least | offset & ~segment) <= most),
    }[i.op[2]]()
    source = lanes - lane + np.where(inside, other, lane)
    if not np.isin(source, lanes).all():
        raise PtxError(i.line, f"reads the word of an inactive lane: {i.text}")
    to = i.args[0]
    value = m.raw(i.args[1], np.arange(m.count))[source]
    if isinstance(to, Pair):
        m.write(to.second, inside, "pred", lanes)
        to = to.first
    m.write(to, value, "b32", lanes)


def _vote(m: Machine, i: Instr, lanes: Lanes) -> None:
    message = m.raw(i.args[1], lanes) > 0
    warps = m.warp[lanes]
    some = np.isin(warps, warps[message])
    every = ~np.isin(warps, warps[~message])
    m.write(i.args[0], {"any": some, "all": every}[i.op[2]], "pred", lanes)


def _atomic(m: Machine, i: Instr, lanes: Lanes) -> None:
    """red and atom, of addition; lane after lane."""
    kind, returns = i.op[-1], i.op[0] == "atom"
    if "add" not in i.op:
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
    place, value = i.args[1:3] if returns else i.args[:2]
    size, before = width(kind) // 8, []
    for at, number in zip(m.address(place, lanes).tolist(), m.read(value, kind, lanes), strict=True):
        word = m.memory.bytes[at : at + size].view(_NUMBERS[kind])
        before.append(word[0])
        word[0] += _NUMBERS[kind](number)
    if returns:
        m.write(i.args[0], np.array(before, _NUMBERS[kind]), kind, lanes)


def _over(barrier: list[int]) -> None:
    """Begins the next phase where nothing is missing of this one."""
    assert barrier[1] >= 0, "more arrivals than the mbarrier counts"
    if barrier[1] == barrier[2] == 0:
        barrier[1], barrier[3] = barrier[0], barrier[3] + 1


def _mbarrier(m: Machine, i: Instr, lanes: Lanes) -> None:
    if i.op[1] == "init":
        counts = m.read(i.args[1], "u32", lanes).astype(int).tolist()
        for at, count in zip(m.address(i.args[0], lanes).tolist(), counts, strict=True):
            m.barriers[at] = [count, count, 0, 0]
        return
    places = m.address(i.args[1], lanes).tolist()
    numbers = m.read(i.args[2], "u32", lanes).astype(int).tolist() if len(i.args) > 2 else [0] * len(lanes)
    if i.op[1] == "arrive":
        for at, expected in zip(places, numbers, strict=True):
            m.barriers[at][1] -= 1
            m.barriers[at][2] += expected
            _over(m.barriers[at])
    elif i.op[1] in ("try_wait", "test_wait"):
        past = [m.barriers[at][3] % 2 != parity for at, parity in zip(places, numbers, strict=True)]
        m.write(i.args[0], np.array(past), "pred", lanes)
    else:
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")


def _copy(m: Machine, i: Instr, lanes: Lanes) -> None:
    """cp.async.bulk from global to shared memory, with completion at an mbarrier."""
    if i.op[:3] != ("cp", "async", "bulk") or "complete_tx::bytes" not in i.text:
        raise PtxError(i.line, f"unknown form of an instruction: {i.text}")
    to, source, barrier = (m.address(i.args[n], lanes).tolist() for n in (0, 1, 3))
    for n, size in enumerate(m.read(i.args[2], "u32", lanes).astype(int).tolist()):
        assert to[n] % 16 == source[n] % 16 == size % 16 == 0, f"bulk copies are of 16 bytes: {i.text}"
        m.memory.bytes[to[n] : to[n] + size] = m.memory.bytes[source[n] : source[n] + size]
        m.barriers[barrier[n]][2] -= size
        _over(m.barriers[barrier[n]])


TOGETHER: dict[str, Callable[[Machine, Instr, Lanes], None]] = {
    "bar": _barrier,
    "barrier": _barrier,
    "shfl": _shuffle,
    "vote": _vote,
    "red": _atomic,
    "atom": _atomic,
    "mbarrier": _mbarrier,
    "cp": _copy,
}
