"""A claim in two parts: the kernel asks for its slab at the entry, and looks at the answer in front of its first
record's store. Meanwhile, its own loads are on their way, too.

    begin   at the entry, as in claiming.py
    test    as there: is the gate open?
    ask     behind the kernel's own code, and back: lanes, the atomic
    look    in front of all stores of records and all exits: did this warp ask?
    answer  behind the kernel's own code, and back: is the slab granted, else try again; head

The atomic's answer is in the two registers that later hold a record's place, and what else the answer needs is in
uniform registers. Only where one lane of a warp records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ... import ptx
from ...errors import UnsupportedError
from ..checks import hazards
from ..cubin.control import SCOREBOARDS, Control, control, controlled
from ..cubin.insertion import New
from ..cubin.instructions import Function
from ..encoding.renaming import Names
from . import beginning, claim_registers, claiming, fragments, lending, looking, registers, timing
from .claim_parts import ANSWER, CONTROL, Parts, kept
from .claiming import Claim
from .fragments import Fragment
from .registers import State

_ANSWER_LABEL = "answer"
_UNIFORM = 60
"""Uniform registers from here on have other uses."""
_EVERY = 8
"""Of the places for the look, those that are tried."""


@dataclass(frozen=True)
class _Given:
    """What placing depends on.

    Attributes:
        known: the function.
        parts: both parts.
        kernel: what their texts depend on.
        allocation: registers of records and state.
        control: offset of the control block's address in constant bank 3.
        answer: the scoreboard of the answer.
        kept: the uniform registers of what the answer needs, by name.
        idle: scoreboards that count nothing of the kernel, by address.
    """

    known: claim_registers.Known
    parts: Parts
    kernel: ptx.Kernel
    allocation: registers.Allocation
    control: int
    answer: int
    kept: Mapping[str, int]
    idle: Mapping[int, frozenset[int]]

    @property
    def state(self) -> State:
        return self.allocation.state

    @property
    def uniform(self) -> frozenset[int]:
        """Uniform registers that no part may use otherwise."""
        return self.state.uniform | frozenset(self.kept.values())

    def boards(self, at: int) -> dict[int, int]:
        """Scoreboards of a part: a wait for one that counts the kernel's own loads would wait for these."""
        free = registers.uncounted(self.known.function)
        some = [board for board in free if board in self.idle[at] and board != self.answer] or free
        return {board: some[board % len(some)] for board in SCOREBOARDS}


def placed(
    function: Function,
    parts: Parts | None,
    kernel: ptx.Kernel,
    allocation: registers.Allocation,
    opened: Mapping[int, frozenset[int]],
    stores: Sequence[int],
    control: int,
    most: int,
) -> Iterator[Claim]:
    """Claims in two parts, the best one first; the arguments are those of claiming.placed().

    Args:
        stores: the instructions at which records are stored.
    """
    if parts is None or not allocation.state.uniform:
        return
    valued, flying, idle = lending.live(function), hazards.in_flight(function), looking.idle(function)
    known, room = claim_registers.Known(function, valued, flying), most - registers.EXTRA
    late = claiming.latest(function, min(stores, default=function.size))
    registers_kept = _uniform(function, kernel, allocation.state)
    for looked in looking.places(function, stores)[::_EVERY]:
        asks = [at for at in (*range(late, 0, -claiming.STEP), 0) if looking.waits(function, at, looked)]
        if not asks or not registers_kept:
            continue
        answer = _answer(function, late, looked, idle[looked])
        given = _Given(known, parts, kernel, allocation, control, answer, registers_kept, idle)
        try:
            before = looking.reached(function, looked)
            look = _answered(given, looked, _written(opened, before.__contains__))
        except UnsupportedError:
            continue
        for at in asks if look.highest < room else ():
            try:
                ask = _asked(given, at, _written(opened, at.__gt__))
            except UnsupportedError:
                continue
            if ask.highest < room:
                behind, highest = (*ask.behind, *look.behind), max(ask.highest, look.highest)
                yield replace(ask, behind=behind, looked=looked, look=look.test, highest=highest)
                break


def _written(opened: Mapping[int, frozenset[int]], before: Callable[[int], bool]) -> frozenset[int]:
    return frozenset[int]().union(*(some for at, some in opened.items() if before(at)))


def _answer(function: Function, at: int, looked: int, idle: frozenset[int]) -> int:
    """The scoreboard of the answer: the kernel waits for it least until it is looked at. idle: those that it does not
    use there.
    """
    between = [one for one in function.instructions if at <= one.at < looked]
    free = registers.uncounted(function)
    return min(free, key=lambda board: (board not in idle, sum(board in one.control.waits for one in between)))


def _uniform(function: Function, kernel: ptx.Kernel, state: State) -> dict[str, int]:
    """Registers for what the answer needs: those of the slab's address and clocks first; empty if there are too few."""
    used = {name for one in function.instructions for name in one.reads | one.writes}
    base = int(state.base[2:])
    found = {"clo": base, "glo": base + 1, "w": int(state.clocks[2:])}
    if state.last is not None:
        found["last"] = int(state.last[2:])
    free = [n for n in range(_UNIFORM - 1, -1, -1) if f"UR{n}" not in used and n not in {*state.uniform}]
    for name in kept(kernel):
        if name not in found:
            if not free:
                return {}
            found[name] = free.pop(0)
    return found


def _asked(given: _Given, at: int, written: frozenset[int]) -> Claim:
    """Begin, test, and the first part, in front of one of the entry's instructions."""
    function, ask, kernel, state = given.known.function, given.parts.ask, given.kernel, given.state
    values = fragments.between(kernel)
    ids = claiming.ids_of(given.allocation, written) if state.on is None else []
    of_ids = {int(name[1:]) for one in ids if one.seen for name in one.seen.writes}
    early, late = claim_registers.free(given.known, at, written, state.registers | of_ids)
    _, gate, loaded = claim_registers.boards(function, at)
    boards = given.boards(at)
    outs = (*kept(kernel), "asked", *ANSWER)
    there = claim_registers.left_there(ask, {outs.index("p"): state.offset, outs.index("limit"): state.address})
    if len(there) != len(ANSWER):
        raise UnsupportedError("ptxas moves the claim's answer")
    late = [one for one in late if one not in there.values()]
    second = claim_registers.blocks(ask, early, late, there)
    stays = claim_registers.stays(ask, values, second, frozenset(early))
    taken = frozenset(second.values()) - claim_registers.untouched(ask, second)
    begin = beginning.begun(
        kernel, stays, [one for one in early if one not in taken], gate, given.control,
        claiming.free_predicate(function, loaded), fragments.descriptor(ask),
    )  # fmt: skip
    names, saved = _names(given, ask, second, at)
    left = [one for one in late if one not in {*begin.where.values(), *second.values()} | state.registers]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = claiming.kept_predicates(state, saved, left)
    asked = list[int]()

    def comes(name: str, number: int) -> list[New]:
        return [] if begin.where[name] == number else [state.new(f"MOV R{number}, R{begin.where[name]}")]

    def goes(name: str, number: int) -> list[New]:
        if name == "asked":
            asked.append(number)
        return [state.new(f"R2UR UR{given.kept[name]}, R{number}")] if name in given.kept else []

    code, behind = fragments.spliced(ask, (values, outs), names, boards, comes, goes, f"{claiming.LABEL} ", True)
    if behind or not _last(ask, outs.index("asked")):
        raise UnsupportedError("ptxas moves the claim's answer")
    code = _counted(code, given, gate)
    after = [
        state.new("NOP", Control(waits=frozenset({gate}))),
        *([state.new(f"ISETP.NE.U32.AND P{state.on}, PT, R{asked[0]}, RZ, PT")] if state.on is not None else []),
        *([state.new(f"MOV R{state.mine}, R{asked[0]}")] if state.mine is not None else []),
        *give,
        *ids,
        state.new("BRA `()", Control(stall=5), to=claiming.BACK),
    ]
    rest = () if state.on is not None else (*claiming.at_rest(state), *_zeros(given), *ids)
    needed = registers.needed_predicates(function)[at]
    test = [*rest, *claiming.opens(state, begin.where[values[0]], gate, needed)]
    cold = timing.tight([*_labeled(state, claiming.LABEL, [*keep, *code]), *after], function.arch)
    highest = max(*begin.where.values(), *second.values(), *left[: len(saved)])
    parts = claiming.together(begin, test, loaded, at, function.arch)
    return Claim(*parts, tuple(cold), loaded, at, highest)


def _answered(given: _Given, at: int, written: frozenset[int]) -> Claim:
    """The look in front of an instruction, and the second part."""
    function, look, kernel, state = given.known.function, given.parts.look, given.kernel, given.state
    _, late = claim_registers.free(given.known, at, written, state.registers)
    comes_in, goes_out = (*kept(kernel), *CONTROL, *ANSWER), fragments.state(kernel)
    place = {"p": state.offset, "limit": state.address}
    doors = {comes_in[n]: number for door in look.comes for n, number in look.enters(door)}
    there = {doors[name]: register for name, register in place.items()}
    late = [one for one in late if one not in place.values()]
    second = claim_registers.blocks(look, late, late, there, state.registers)
    names, saved = _names(given, look, second, at)
    left = [one for one in late if one not in {*second.values()} | state.registers]
    if len(saved) > len(left):
        raise UnsupportedError("the kernel leaves too few registers for the claim")
    keep, give = claiming.kept_predicates(state, saved, left)

    def comes(name: str, number: int) -> list[New]:
        if name in place:
            return [] if place[name] == number else [state.new(f"MOV R{number}, R{place[name]}")]
        if name in CONTROL:
            load = [state.new(f"ULDC.64 UR{registers.DESCRIPTOR}, c[0x3][{given.control:#x}]")]
            half = CONTROL.index(name)
            return [*load[half:], state.new(f"MOV R{number}, UR{registers.DESCRIPTOR + half}")]
        return [state.new(f"MOV R{number}, UR{given.kept[name]}")]

    def goes(name: str, number: int) -> list[New]:
        return claiming.moved(state, name, number)

    code, behind = fragments.spliced(
        look, (comes_in, goes_out), names, given.boards(at), comes, goes, f"{_ANSWER_LABEL} "
    )
    ids = claiming.ids_of(given.allocation, written)
    after = [
        *(state.new(f"MOV R{one}, RZ") for one in (state.offset, state.extra) if one is not None),
        *claiming.knows(state),
        *give,
        *ids,
        state.new("BRA `()", Control(stall=5), to=claiming.LOOKED),
    ]
    cold = timing.tight([*_labeled(state, _ANSWER_LABEL, [*keep, *code]), *after, *behind], function.arch)
    test = _looks(state, given.answer, registers.needed_predicates(function)[at])
    return Claim((), (), tuple(test), tuple(cold), 0, at, max(*second.values(), *left[: len(saved)]))


def _looks(state: State, answer: int, needed: frozenset[str]) -> list[New]:
    """A branch to the second part if the warp asked. answer: the scoreboard of the answer, which others wait for in
    vain."""
    waits = frozenset({answer})
    if state.on is not None:
        return [state.new(f"@P{state.on} BRA `()", Control(stall=5, waits=waits), to=_ANSWER_LABEL)]
    free = [one for one in range(claim_registers.PREDICATES) if f"P{one}" not in needed]
    if not free:
        raise UnsupportedError("the kernel needs every predicate where it would look at the claim's answer")
    test = state.new(f"ISETP.NE.U32.AND P{free[0]}, PT, R{state.lane}, RZ, PT", Control(waits=waits))
    goes = state.new(f"@P{free[0]} BRA `()", Control(stall=5), to=_ANSWER_LABEL)
    return timing.tight([test, replace(goes, slab=True)], state.arch)


def _names(given: _Given, part: Fragment, second: Mapping[int, int], at: int) -> tuple[Names, tuple[int, ...]]:
    function = given.known.function
    uniform = claim_registers.uniform(function, part.used("UR"), at, given.uniform)
    predicates, saved = claim_registers.predicates(function, part, at)
    return Names(second, uniform, predicates), saved


def _last(ask: Fragment, number: int) -> bool:
    """Whether nothing changes a register behind the door that it goes through."""
    (at,) = [at for at, value in ask.goes.items() if value == number]
    return not any(f"R{ask.register(at)}" in one.writes for one in ask.code if one.at > at)


def _counted(code: list[New], given: _Given, gate: int) -> list[New]:
    """The first part with a scoreboard for the answer, and one for the last operands of memory that it reads."""
    answer = {f"R{given.state.offset}", f"R{given.state.address}"}
    memory = [n for n, one in enumerate(code) if one.seen and one.seen.name in ("ATOMG", "LDG")]
    for number in memory:
        one = code[number]
        assert one.seen is not None
        now = control(one.word)
        now = replace(now, writes=given.answer) if one.seen.writes & answer else now
        now = replace(now, reads=gate) if number == memory[-1] else now
        code[number] = replace(one, word=controlled(one.word, now))
    return code


def _zeros(given: _Given) -> list[New]:
    """What is kept for the answer, in a kernel without a predicate for lanes that asked."""
    rest = sorted(set(given.kept.values()) - given.state.uniform)
    return [given.state.new(f"UMOV UR{number}, URZ") for number in rest]


def _labeled(state: State, label: str, code: Sequence[New]) -> list[New]:
    first, *rest = code
    return [replace(first, label=label), *rest] if not first.label else [state.new("NOP", label=label), *code]
