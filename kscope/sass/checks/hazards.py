"""Checks that inserted instructions race with no other instruction. Independent of the code that placed them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ...util.graph_walks import settled
from ..cubin.instructions import BYTES, Function, Instruction
from . import latencies
from .latencies import Latencies

COUNTED = 2
"""Cycles after which a scoreboard counts an instruction; one that waits for it earlier may find it at zero."""
_LONGEST = 40
"""Cycles after which every result of fixed latency is available."""
_SETTLED = 12
"""Cycles after which no other write to a result's register can come first."""
GUARD = 13
"""Cycles after which a predicate can guard an instruction."""
_ALU, _OF_MEMORY, _OTHER_PIPE = 4, 1, 1
_UNIFORM_SOON = frozenset({"ULDC", "UMOV", "VOTEU"})
_UNIFORM_OF_MEMORY = 9
_READS = "read "
_BOARD = "SB"
_VARIABLE = frozenset(
    {
        "LD", "LDG", "LDS", "LDSM", "LDC", "LDL", "ST", "STG", "STS", "STSM", "STL", "LDGSTS",
        "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "CCTL", "ERRBAR", "MEMBAR", "FENCE",
        "UTMALDG", "UTMASTG", "UTMAPF", "UTMAREDG", "UBLKCP", "SYNCS", "BAR", "B2R", "ARRIVES", "LDGDEPBAR",
        "MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV", "S2R", "S2UR", "SHFL", "REDUX", "MATCH",
        "DMMA", "HMMA", "IMMA", "BMMA",
    }
)  # fmt: skip
_APART = {
    **dict.fromkeys(("MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV"), "convert"),
    "S2R": "special",
    "S2UR": "uniform special",
    "LDC": "constant",
}
"""Instructions of variable latency that do not read their operands in order with memory accesses, and their pipes."""
_PIPES = _APART | {
    **dict.fromkeys(("HMMA", "IMMA", "BMMA", "DMMA"), "products"),
    **dict.fromkeys(("BAR", "B2R"), "barriers"),
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UTMAPF", "UTMAREDG", "UBLKCP"), "bulk copies"),
    "LDGDEPBAR": "groups of copies",
}
"""Instructions of one pipe finish in order; instructions that are not listed share the memory pipe."""
_TENSOR, _TENSOR_CORES = "tensor cores", frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
"""Asynchronous: until WARPGROUP.DEPBAR waits for all of them, their registers are in use."""
_SOON = frozenset({"SYNCS"})
"""Have variable latency, but read their operands as late as instructions that compute."""
_ASKS = frozenset({"VOTE", "VOTEU"})
"""Read predicates as late as guards are read."""
CONTROL_FLOW = frozenset({"BRA", "BRX", "BSSY", "BSYNC", "BREAK", "CALL", "EXIT", "JMP", "RET", "WARPSYNC"})
"""Instructions after which, or at which, control flow may jump."""
_LEAVES = frozenset({"BRA", "EXIT", "RET", "KILL", "BPT", "BRX", "JMP"})


@dataclass(frozen=True)
class Hazard:
    """A race: the instruction at `at`, the earlier one with which it races, and an explanation."""

    at: int
    earlier: int
    what: str

    def __str__(self) -> str:
        return f"{self.at:#x} after {self.earlier:#x}: {self.what}"


@dataclass(frozen=True)
class _Pending:
    """A result or operand of the instruction at `at`. scoreboards: waiting for one of them finishes it."""

    at: int
    register: str
    result: bool
    pipe: str
    scoreboards: frozenset[int]


_State = tuple[dict[tuple[str, int], int], frozenset[_Pending]]
"""Cycles since results of fixed latency were issued, by register and instruction; and everything else in flight."""


def check(function: Function, inserted: Collection[int] | None = None) -> tuple[Hazard, ...]:
    """The races of a function in which an inserted instruction takes part.

    Walks every path, and keeps for each register which results are not ready, which operands may not have been read,
    and the least cycles since then. An instruction of variable latency is finished when its scoreboard was waited for.

    Args:
        function: the code after insertion.
        inserted: addresses of the inserted instructions; None to judge all code alike.

    Returns:
        The races, by address; empty if there is none.
    """
    by_address = {one.at: one for one in function.instructions}
    chosen = by_address.keys() if inserted is None else frozenset(inserted)
    known = latencies.of(function.arch)
    found = set[Hazard]()
    for at, (ages, flight) in _states(by_address, known).items():
        one = by_address[at]
        found |= {
            hazard
            for hazard in (
                *_too_soon(one, ages, by_address, known),
                *_read_late(one, ages, known),
                *_not_counted(one, ages),
                *_in_flight(one, _waited(one, flight)),
            )
            if at in chosen or hazard.earlier in chosen
        }
    return tuple(sorted(found, key=lambda one: (one.at, one.earlier, one.what)))


def in_flight(function: Function) -> dict[int, frozenset[str]]:
    """The registers that unfinished instructions read or write, before each instruction that can be reached."""
    known = latencies.of(function.arch)
    settled = max(_SETTLED, *known.fixed.values(), 0)
    states = _states({one.at: one for one in function.instructions}, known)
    return {
        at: frozenset(one.register for one in flight)
        | {name.removeprefix(_READS) for (name, _), age in ages.items() if age < settled}
        for at, (ages, flight) in states.items()
    }


def _states(by_address: Mapping[int, Instruction], known: Latencies) -> dict[int, _State]:
    """The unfinished operations before each instruction that can be reached, on any path."""

    def onward(at: int, state: _State) -> Iterator[tuple[int, _State]]:
        one, (ages, flight) = by_address[at], state
        after = _issued(one, ages, _waited(one, flight), known)
        yield from ((to, after) for to in successors(one) if to in by_address)

    return settled({0: ({}, frozenset())}, onward, _join)


def successors(one: Instruction) -> tuple[int, ...]:
    """Addresses of the instructions that may run next."""
    sure = one.name in _LEAVES and not one.conditional and not one.second_condition
    follows = () if sure else (one.at + BYTES,)
    jumps = one.name in ("BRA", "WARPSYNC") and one.target is not None
    return (*follows, one.target) if jumps and one.target is not None else follows


def _waited(one: Instruction, flight: frozenset[_Pending]) -> frozenset[_Pending]:
    """The operations that are still in flight when the instruction is issued."""
    done = set(one.control.waits)
    if one.code.startswith("WARPGROUP.DEPBAR") and one.operands[-1] == "0x0":
        flight = frozenset(pending for pending in flight if pending.pipe != _TENSOR)
    if one.name == "DEPBAR" and one.operands[-1] == "0x0":
        done.add(int(one.operands[0].removeprefix("SB")))
    return frozenset(pending for pending in flight if not pending.scoreboards & done) if done else flight


def _too_soon(
    one: Instruction, ages: Mapping[tuple[str, int], int], by_address: Mapping[int, Instruction], known: Latencies
) -> Iterator[Hazard]:
    """Results of fixed latency that the instruction would read too early."""
    for (register, earlier), age in ages.items():
        if register in one.reads and (needed := _needed(by_address[earlier], one, register, known)) > age:
            yield Hazard(one.at, earlier, f"{register} is read after {age} cycles; its result takes {needed}")


def _read_late(one: Instruction, ages: Mapping[tuple[str, int], int], known: Latencies) -> Iterator[Hazard]:
    """Operands that an instruction of fixed latency may not have read yet, and this one would overwrite at once."""
    if one.code in known.fixed or _variable(one):
        return
    for (name, earlier), age in ages.items():
        if name.startswith(_READS) and age < known.read and (register := name.removeprefix(_READS)) in one.writes:
            yield Hazard(
                one.at, earlier, f"{register} is overwritten after {age} cycles; it is read up to {known.read}"
            )


def _not_counted(one: Instruction, ages: Mapping[tuple[str, int], int]) -> Iterator[Hazard]:
    """Scoreboards that the instruction waits for before they count the previous instruction."""
    for (name, earlier), age in ages.items():
        number = name.removeprefix(_BOARD)
        if number != name and int(number) in one.control.waits and age < COUNTED:
            yield Hazard(
                one.at, earlier, f"scoreboard {number} is waited for after {age} cycle; it counts after {COUNTED}"
            )


def _needed(producer: Instruction, consumer: Instruction, register: str, known: Latencies) -> int:
    """Least cycles between the two."""
    memory = consumer.name in _VARIABLE - _SOON - _APART.keys()
    guards = consumer.guard.lstrip("@!") == register
    if register.startswith("UP") and guards:
        return known.uniform_guard
    if register.startswith(("P", "UP")):
        return GUARD if memory or consumer.name in _ASKS or guards else _ALU
    latency = known.names.get(producer.name, _ALU)
    if register.startswith("UR"):
        soon = 2 if producer.name in _UNIFORM_SOON else latency
        return max(soon, _UNIFORM_OF_MEMORY) if memory and producer.name not in _UNIFORM_SOON else soon
    if producer.code in known.fixed:
        return known.fixed[producer.code]
    if producer.name == "CS2R":
        return known.clock_of_memory if memory else known.clock_32 if ".32" in producer.code else known.clock
    if producer.code.startswith("IMAD.WIDE") and register == producer.operands[0]:
        return known.wide_low[2 if memory else _elsewhere(producer, consumer)]
    late = known.late if consumer.code.startswith("IMAD.WIDE") and _only_high_half(consumer, register) else 0
    if late and latency == _ALU:
        return latency - late
    return latency + (_OF_MEMORY if memory else _OTHER_PIPE if _elsewhere(producer, consumer) else 0)


def _elsewhere(producer: Instruction, consumer: Instruction) -> bool:
    """True if a result is computed in one pipe and read in the other."""
    pipes = latencies.MULTIPLIERS, latencies.ALU
    return any(producer.name in one and consumer.name in other for one, other in (pipes, pipes[::-1]))


def _only_high_half(wide: Instruction, register: str) -> bool:
    """True if a wide multiplication reads a register only as the second one of its addend."""
    named = [one.removesuffix(".reuse") for one in wide.operands if not one.lstrip("!").startswith("P")]
    return len(named) == 4 and register not in named[1:] and named[3] == f"R{int(register[1:]) - 1}"


def _in_flight(one: Instruction, flight: frozenset[_Pending]) -> Iterator[Hazard]:
    """Registers of unfinished instructions that the instruction uses."""
    for pending in flight:
        if pending.pipe == _TENSOR and one.name in _TENSOR_CORES:
            continue  # these follow each other in order
        same = one.name in _VARIABLE and pending.pipe == _pipe(one)  # which reads its operands before this one writes
        boards = " or ".join(map(str, sorted(pending.scoreboards)))
        missing = f"scoreboard {boards} was not waited for" if boards else "no scoreboard counts it"
        if pending.result and pending.register in one.reads | one.writes:
            yield Hazard(one.at, pending.at, f"{pending.register} may not be written yet: {missing}")
        elif not pending.result and pending.register in one.writes and not same:
            yield Hazard(one.at, pending.at, f"{pending.register} may still be read: {missing}")


def _issued(
    one: Instruction, ages: dict[tuple[str, int], int], flight: frozenset[_Pending], known: Latencies
) -> _State:
    """The state when the next instruction is issued."""
    code = one.control
    fixed = one.code in known.fixed
    variable = _variable(one) and not fixed
    kept = {key: age for key, age in ages.items() if one.conditional or key[0] not in one.writes}
    if variable:
        pipe = _pipe(one)
        if code.writes is not None or code.reads is not None:
            flight = frozenset(_counted(pending, pipe, code.writes, code.reads) for pending in flight)
        result = frozenset(() if code.writes is None else (code.writes,))
        operand = result if code.reads is None else result | {code.reads}  # a finished one has read its operands
        flight |= {_Pending(one.at, register, True, pipe, result) for register in one.writes}
        # predicates and uniform registers are read at once
        flight |= {_Pending(one.at, register, False, pipe, operand) for register in one.reads if register[0] == "R"}
    elif one.name not in _TENSOR_CORES:
        kept |= {(register, one.at): 0 for register in one.writes}
        kept |= {(_READS + register, one.at): 0 for register in one.reads if fixed}
    if one.name in _TENSOR_CORES:
        used = [(register, register in one.writes) for register in one.reads | one.writes if register[0] == "R"]
        flight |= {_Pending(one.at, register, result, _TENSOR, frozenset()) for register, result in used}
    if one.name != "USETMAXREG":  # these stop the warp
        kept |= {(f"{_BOARD}{board}", one.at): 0 for board in (code.writes, code.reads) if board is not None}
    passed = max(1, code.stall)
    return {key: age + passed for key, age in kept.items() if age + passed < _LONGEST}, flight


def _variable(one: Instruction) -> bool:
    return one.name in _VARIABLE or one.control.writes is not None or one.control.reads is not None


def _counted(pending: _Pending, pipe: str, writes: int | None, reads: int | None) -> _Pending:
    """Operations for which all earlier ones of the pipe are finished when this instruction has read its operands, or is
    finished.

    A result that no scoreboard counts is ready with the next one that is counted.
    """
    if pending.pipe != pipe:
        return pending
    if pending.result:
        boards = pending.scoreboards or frozenset(() if writes is None else (writes,))
    else:
        boards = pending.scoreboards | {board for board in (writes, reads) if board is not None}
    return replace(pending, scoreboards=boards)


def _pipe(one: Instruction) -> str:
    return _PIPES.get(one.name, "memory")


def _join(one: _State, other: _State) -> _State:
    """The operations that may be unfinished where two paths meet."""
    ages, more = one[0], other[0]
    return ages | {key: min(age, ages.get(key, age)) for key, age in more.items()}, one[1] | other[1]
