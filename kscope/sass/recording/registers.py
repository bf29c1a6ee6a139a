"""Chooses the registers of records and of a lane's state: those that the kernel never uses, or does not use there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...errors import UnsupportedError
from ..checks import register_limits
from ..cubin.control_codes import SCOREBOARDS
from ..cubin.instructions import BRANCHES, BYTES, Function, Instruction
from .borrowed_registers import Lender, Span
from .lane_state import State
from .liveness import live
from .regions import Key, Record
from .released_registers import Narrow
from .released_registers import narrowest_part as narrow_part

_ALIGNED = 4
"""Alignment of the uniform registers with a slab's address, as tested on a device."""
RECORD = 4
"""Registers of a record, and the alignment of the first one."""
UNIFORM = tuple(range(61, 3, -1))
"""Uniform registers that may be used. ptxas uses UR0 to UR3 and UR62 in no kernel for sm_90.

A kernel that did ended with an illegal instruction on an H200.
"""
NUMBERS, _PREDICATES = 255, 7
"""Registers, and predicates, of a thread."""
_RECENT = 13
"""Instructions after which every predicate is there."""
_TRIES = 12
"""Registers to lend that are compared."""
_LAST = frozenset({"LDG", "LD", "ATOMG", "ATOM", "LDGDEPBAR", "LDGSTS", "UTMALDG", "UTMASTG", "SYNCS"})
_GROUP = "UTMACMDFLUSH"
"""Commits bulk copies; its scoreboard waits until all of them are read."""
_LONG, _SHORT, _ITERATIONS = 30, 1, 16
"""Relative times for which instructions keep a scoreboard; and the assumed iterations of a loop."""
EXTRA = 2
"""A kernel's count of registers is its highest number, plus one, plus these."""


@dataclass(frozen=True)
class Allocation:
    """Registers of a kernel that records.

    Attributes:
        state: registers of the lane's state.
        quads: the first register of each record.
        own: first registers that belong to one record alone, with its id.
        waits: the instructions before which the kernel waits for a record's store, because it uses its registers.
        count: registers a thread that the kernel needs.
        low: the state in the part of the kernel with few registers, if it has other ones there.
        narrow: that part.
    """

    state: State
    quads: dict[Key, int]
    own: dict[int, int]
    count: int
    waits: frozenset[int] = frozenset()
    low: State | None = None
    narrow: Narrow | None = None


@dataclass(frozen=True)
class Pool:
    """Registers of a kernel.

    Attributes:
        function: the kernel.
        sized: each warp reads the size of its slab.
        counts: the records of rows are counted.
        alone: at most one lane of a warp records, so its values may be in uniform registers.
        spans: the instructions at which each record is open.
    """

    function: Function
    sized: bool
    counts: bool = False
    alone: bool = False
    spans: Mapping[Key, Span] = field(default_factory=dict[Key, Span])

    @cached_property
    def used(self) -> frozenset[str]:
        """All registers that the kernel names."""
        return frozenset[str]().union(*(one.reads | one.writes for one in self.function.instructions))

    @cached_property
    def busy(self) -> frozenset[int]:
        return frozenset({int(one[1:]) for one in self.used if one[0] == "R"} | {0, 1})

    @cached_property
    def fewest(self) -> int:
        """The fewest registers that the kernel leaves a thread anywhere."""
        return min(NUMBERS, *register_limits.limits(self.function).values())

    @cached_property
    def room(self) -> dict[Key, int]:
        """The fewest registers of a thread where each record is used."""
        fewest, lender = register_limits.fewest_registers(self.function), Lender(self.function)
        used = {key: lender.inside(span) | span.ends for key, span in self.spans.items()}
        return {key: min((fewest[at] for at in some if at in fewest), default=NUMBERS) for key, some in used.items()}

    def owned(self, records: Sequence[Record], numbers: Mapping[Key, int]) -> Allocation:
        """Registers that the kernel never uses.

        Args:
            records: records of the kernel's marks.
            numbers: which registers each record has, see regions.apart() and regions.shared().

        Raises:
            UnsupportedError: there are not enough, or the kernel uses warp-wide registers.
        """
        free, most = self._free(), dict[int, int]()
        for key, number in numbers.items():
            most[number] = min(self.room.get(key, NUMBERS), most.get(number, NUMBERS))
        few = [n for n in sorted(most) if most[n] <= self.fewest]
        try:
            found = {n: _take(free, RECORD, self.function, self.fewest) for n in few}
            state, low, narrow, waits = self._state(free, self.fewest), None, None, frozenset[int]()
        except UnsupportedError:
            if (narrow := narrow_part(self.function)) is None:
                raise
            free = self._free()
            state = self._state(free, narrow.limit)
            low, found, waits = self._low(narrow, state, {n: [k for k in numbers if numbers[k] == n] for n in few})
        # registers that every thread has are for the others
        found |= {n: _take_high(free, self.function, self.fewest, most[n]) for n in sorted(most) if n not in found}
        quads = [found[n] for n in range(len(found))]
        ids = [{record.id for record in records if numbers[record.key] == number} for number in range(len(quads))]
        own = {quads[n]: min(some) for n, some in enumerate(ids) if len(some) == 1 and not (narrow and n in few)}
        kept = {key: quads[n] for key, n in numbers.items()}
        return Allocation(state, kept, own, self._count(state, quads), waits, low, narrow)

    def _low(
        self, narrow: Narrow, state: State, keys: Mapping[int, Sequence[Key]]
    ) -> tuple[State, dict[int, int], frozenset[int]]:
        """Registers in a part with few: the lane's state, those of records by number; and where the kernel waits until
        a store has read them.
        """
        if not state.uniform:
            raise UnsupportedError(f"{self.function.name} leaves no registers where it has {self.fewest}")
        free, lender, waits = list(narrow.free), Lender(self.function), frozenset[int]()
        found = {n: _take(free, RECORD, self.function) for n in keys}

        def moved(register: int | None) -> int | None:
            return None if register is None else _take(free, 1, self.function)

        address, offset = (_take(free, 1, self.function) for _ in range(2))
        spare, extra, mine = map(moved, (state.spare, state.extra, state.mine))
        low = replace(
            state, address=address, offset=offset, spare=spare, extra=extra, mine=mine, addresses=(*free[:1],)
        )
        for n, some in keys.items():
            names = frozenset(f"R{one}" for one in (low.address, *low.addresses, *range(found[n], found[n] + RECORD)))
            waits = waits.union(*(lender.waits(self.spans[key], names) for key in some))
        return low, found, waits

    def lent(self, spans: Mapping[Key, Span], together: frozenset[frozenset[Key]]) -> Allocation:
        """Registers that the kernel uses elsewhere, as far as there are any.

        Args:
            spans: the instructions at which each record is open.
            together: pairs of records that are open at the same time.
        """
        free, lender = self._free(), Lender(self.function)
        quads, unused, waits = dict[Key, int](), set[int](), frozenset[int]()
        for key, span in spans.items():
            others = {quads[other] for other in quads if frozenset((key, other)) in together}
            names = lender.busy(span)
            borrowable = [
                first
                for first in range(0, max(self.busy) // RECORD * RECORD, RECORD)
                if first not in others
                and first + RECORD <= self.room.get(key, NUMBERS)
                and not any(f"R{n}" in names or n in free or n < 2 for n in range(first, first + RECORD))
            ]
            costs = {
                first: lender.waits(span, frozenset(f"R{n}" for n in range(first, first + RECORD)))
                for first in borrowable[-_TRIES:]
            }
            again = sorted(unused - others)
            if again:
                quads[key] = again[0]
            elif costs:
                quads[key] = min(costs, key=lambda first: (len(costs[first]), -first))
                waits |= costs[quads[key]]
            else:
                quads[key] = _take(free, RECORD, self.function, self.room.get(key, NUMBERS))
                unused.add(quads[key])
        state = self._state(free, self.fewest)
        return Allocation(state, quads, {}, self._count(state, list(quads.values())), waits)

    def _free(self) -> list[int]:
        """The registers that the kernel never uses."""
        return [number for number in range(NUMBERS) if number not in self.busy]

    def _state(self, free: list[int], most: int) -> State:
        """Registers for the lane's state, below a number; takes them from the free ones."""
        lasting = list(free)
        predicates = [number for number in range(_PREDICATES) if f"P{number}" not in self.used]
        pair, others = self._uniform()
        uniform = self.alone and pair % _ALIGNED == 0 and len(others) > self.sized
        address = _take(lasting, 1 if uniform else 2, self.function, most)
        constant = iter([f"UR{one}" for one in (pair, *others)] if uniform else self._lasting(lasting, most))
        base, offset, clocks = next(constant), _take(lasting, 1, self.function, most), next(constant)
        last = next(constant) if self.sized else None
        on, spare = (predicates[-1], None) if predicates else (None, _take(lasting, 1, self.function, most))
        extra, arch = _take(lasting, 1, self.function, most) if self.counts else None, self.function.arch
        mine = _take(lasting, 1, self.function, most) if uniform and on is None else None
        free[:] = lasting
        board = _scoreboard(self.function)
        return State(base, address, offset, pair, clocks, last, on, board, spare, extra, arch, mine)

    def _uniform(self) -> tuple[int, list[int]]:
        """The first of two uniform registers in a row that the kernel never uses, and all others.

        They belong to the whole warp: where lanes diverge, one that has no value on a path has one on another.
        """
        free = [number for number in UNIFORM if f"UR{number}" not in self.used]
        pairs = [number for number in free if number % 2 == 0 and number + 1 in free]
        if not pairs:
            raise UnsupportedError(f"{self.function.name} leaves no two uniform registers in a row")
        pair = next((number for number in pairs if number % _ALIGNED == 0), pairs[0])
        return pair, [number for number in free if number not in (pair, pair + 1)]

    def _lasting(self, free: list[int], most: int) -> Iterator[str]:
        """Registers for the parts of the state that never change."""
        while True:
            yield f"R{_take(free, 1, self.function, most)}"

    def _count(self, state: State, quads: Sequence[int]) -> int:
        """Registers a thread that the kernel needs."""
        ends = [first + RECORD - 1 for first in quads]
        return max([*state.registers, *ends, *self.busy]) + 1 + EXTRA


def _take_high(free: list[int], function: Function, least: int, most: int) -> int:
    """The first of a record's registers, from a number on if there are any."""
    least = least if least < NUMBERS else 0
    high = [number for number in free if number >= least]
    if len(high) < len(free):
        try:
            found = _take(high, RECORD, function, most)
        except UnsupportedError:
            return _take(free, RECORD, function, most)
        free[:] = [number for number in free if not found <= number < found + RECORD]
        return found
    return _take(free, RECORD, function, most)


def _take(free: list[int], many: int, function: Function, most: int = NUMBERS) -> int:
    """Take the first of so many consecutive registers below a number."""
    for first in free:
        row = range(first, first + many)
        if first % many == 0 and first + many <= most and all(number in free for number in row):
            for number in row:
                free.remove(number)
            return first
    raise UnsupportedError(f"{function.name} leaves no {many} registers in a row")


def _scoreboard(function: Function) -> int:
    """The scoreboard on which a record waits least for the kernel's instructions; none that a DEPBAR counts."""
    loops = [
        range(one.target, one.at + 1)
        for one in function.instructions
        if one.target is not None and one.target <= one.at and one.name == "BRA"
    ]
    costs = dict.fromkeys(SCOREBOARDS, 0)
    for one in function.instructions:
        iterations = _ITERATIONS ** sum(one.at in loop for loop in loops)
        for board, cost in ((one.control.writes, _LONG if one.name in _LAST else _SHORT), (one.control.reads, _SHORT)):
            if board is not None:
                costs[board] += iterations * cost
    grouped = {one.control.reads for one in function.instructions if one.name == _GROUP}
    free = uncounted(function)
    return min([board for board in free if board not in grouped] or free, key=lambda board: costs[board])


def uncounted(function: Function) -> list[int]:
    """The scoreboards that no DEPBAR counts.

    Raises:
        UnsupportedError: there is none.
    """
    counted = {
        int(one.operands[0].removeprefix("SB"))
        for one in function.instructions
        if one.name == "DEPBAR" and one.operands[0].startswith("SB") and one.operands[-1] != "0x0"
    }
    free = [board for board in SCOREBOARDS if board not in counted]
    if not free:
        raise UnsupportedError(f"every scoreboard of {function.name} is counted in flight by a DEPBAR")
    return free


def needed_predicates(function: Function) -> dict[int, frozenset[str]]:
    """The predicates that the code reads before it writes them, before each instruction.

    Not from nvdisasm's table, which lacks the predicates that P2R reads.
    """
    return live(
        function.instructions,
        lambda one: frozenset(name for name in one.reads if name.startswith(("P", "UP"))),
        _ways,
    )


def _ways(one: Instruction) -> tuple[int, ...]:
    """The addresses of the instructions that may run next, and where threads of a warp reconverge."""
    sure = one.name in BRANCHES and not one.conditional and not one.second_condition
    follows = () if sure else (one.at + BYTES,)
    return (*follows, *(() if one.target is None else (one.target,)))


def calm_predicates(function: Function, at: int) -> frozenset[str]:
    """The predicates that none of the preceding instructions of an address writes."""
    number = at // BYTES
    recent = function.instructions[max(0, number - _RECENT) : number]
    found = {f"P{one}" for one in range(_PREDICATES)}
    return frozenset(found - {name for one in recent for name in one.writes})
