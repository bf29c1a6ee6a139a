"""Where a kernel may look at its claim's answer, and which scoreboards are idle somewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..checks import parting
from ..checks.hazards import successors
from ..cubin.instructions import Function, Instruction

_LOADS = frozenset({"LDG", "LDGSTS", "LD", "ATOMG"})
_WAITS = frozenset({"BAR", "DEPBAR", "SYNCS", "WARPGROUP"})
_Flow = Mapping[int, tuple[int, ...]]


def places(function: Function, stores: Sequence[int]) -> list[int]:
    """Instructions that run once in every warp, whole, in front of all exits and stores of records; the last one first.

    Args:
        function: the kernel.
        stores: the instructions at which records are stored.
    """
    flow = flow_of(function)
    by_address = {one.at: one for one in function.instructions}
    before = _dominators(flow)
    ends = [at for at in flow if by_address[at].name == "EXIT"]
    passed = [before[at] for at in (*ends, *(at for at in stores if at in flow))]
    common = set(flow) if passed else set[int]()
    for some in passed:
        common &= some
    whole = parting.whole(flow, by_address, frozenset())
    found = [at for at in common if at in whole and at not in _behind(flow, at)]
    return sorted(found, key=lambda at: -len(before[at]))


def waits(function: Function, after: int, at: int) -> bool:
    """Whether the kernel waits for memory or other warps between two instructions, of which one runs behind the other:
    then the answer of a claim comes meanwhile.
    """
    boards, found = set[int](), False
    for one in function.instructions:
        if after <= one.at < at:
            found |= bool(one.control.waits & boards) or one.name in _WAITS
        if one.name in _LOADS and one.at < at and one.control.writes is not None:
            boards.add(one.control.writes)
    return found


def flow_of(function: Function) -> dict[int, tuple[int, ...]]:
    """What may run next, for every instruction that can be reached."""
    by_address = {one.at: one for one in function.instructions}
    found, work = dict[int, tuple[int, ...]](), [0]
    while work:
        at = work.pop()
        if at not in found:
            found[at] = tuple(to for to in successors(by_address[at]) if to in by_address)
            work += found[at]
    return found


def reached(function: Function, at: int) -> frozenset[int]:
    """The instructions from which a way leads to one."""
    flow, before = flow_of(function), dict[int, list[int]]()
    for one, ways in flow.items():
        for to in ways:
            before.setdefault(to, []).append(one)
    found, work = set[int](), list(before.get(at, ()))
    while work:
        one = work.pop()
        if one not in found:
            found.add(one)
            work += before.get(one, ())
    return frozenset(found)


def _behind(flow: _Flow, at: int) -> set[int]:
    """The instructions that may run behind one."""
    found, work = set[int](), list(flow[at])
    while work:
        one = work.pop()
        if one not in found:
            found.add(one)
            work += flow[one]
    return found


def _dominators(flow: _Flow) -> dict[int, set[int]]:
    """Of each instruction, those that every way to it passes, and itself."""
    before: dict[int, list[int]] = {at: [] for at in flow}
    for at, ways in flow.items():
        for to in ways:
            before[to].append(at)
    found = {at: {0} if at == 0 else set(flow) for at in flow}
    changed = True
    while changed:
        changed = False
        for at in sorted(flow):
            if at:
                now = set[int].intersection(*(found[one] for one in before[at])) | {at}
                if now != found[at]:
                    found[at], changed = now, True
    return found


def idle(function: Function) -> dict[int, frozenset[int]]:
    """The scoreboards that count nothing of the kernel in front of each instruction: nobody waits for them there."""
    by_address = {one.at: one for one in function.instructions}
    counting: dict[int, frozenset[int]] = {0: frozenset()}
    work = [0]
    while work:
        at = work.pop()
        after = _counting(by_address[at], counting[at])
        for to in successors(by_address[at]):
            if to in by_address and not (to in counting and after <= counting[to]):
                counting[to] = counting.get(to, frozenset()) | after
                work.append(to)
    return {at: frozenset(range(6)) - some for at, some in counting.items()}


def _counting(one: Instruction, before: frozenset[int]) -> frozenset[int]:
    code = one.control
    return before - code.waits | {board for board in (code.writes, code.reads) if board is not None}
