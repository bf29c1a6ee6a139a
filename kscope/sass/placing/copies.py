"""Finds where the machine code has copies of the blocks with marks. ptxas unrolls loops, peels iterations, copies
blocks and turns branches into predicates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...errors import UnsupportedError
from ..cubin.instructions import Instruction
from .basic_blocks import FENCES, LANDMARKS, LOADS, Machine, Text
from .loop_iterations import Iterations

_SPECULATED = frozenset({"LDS", "LDSM"})
"""Loads that cannot fault, so ptxas may issue them before the branch that guards them."""
_ATOMICS = frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG"})
Position = tuple[int, int]
"""Number of a block in its chain, and of an instruction in it."""


@dataclass(frozen=True)
class Copy:
    """A copy of some blocks of the text.

    Attributes:
        chain: machine blocks that run as often as this copy, in order.
        number, many: index of the copy in its chain, and the number of copies there.
        first, last: its first and last landmark; None if it has none.
        guard: predicate of its instructions, if ptxas made one of a branch.
        landmarks: positions of the landmarks by which it was found, by statement.
    """

    chain: tuple[int, ...]
    number: int = 0
    many: int = 1
    first: Position | None = None
    last: Position | None = None
    guard: str = ""
    landmarks: tuple[tuple[int, Position], ...] = ()


@dataclass(frozen=True)
class Unit:
    """Blocks of the text that run equally often, and their copies in the machine code."""

    blocks: tuple[int, ...]
    copies: tuple[Copy, ...]


def unit(block: int, text: Text, machine: Machine) -> Unit:
    """Return the copies of a block of the text.

    ptxas runs each store, barrier and asynchronous copy exactly as often as the text does, except stores that later
    iterations overwrite. So a block's marks run as often as in the text if each machine copy of its landmarks gets a
    copy of them. A block without landmarks runs as often as the others on every path through it. Loads may be left out
    if others have read the same: they count only if all copies have all of them.

    Args:
        block: its number.
        text, machine: the kernel.

    Returns:
        The copies of it, or, if it has no landmarks or not all copies have them, those of all blocks like it.

    Raises:
        UnsupportedError: it is not certain which code runs as often as the block.
    """
    alike = text.flow.alike[text.flow.group[block]]
    refusals = list[str]()
    for blocks in dict.fromkeys(((block,), alike)):
        try:
            found = _copies(blocks, text, machine)
        except UnsupportedError as error:
            refusals.append(str(error))
            continue
        if found:
            return Unit(blocks, found)
    if exits := _exits(block, text, machine):
        return Unit((block,), exits)
    if 0 in alike:  # runs once, as the entry does
        return Unit(alike, (Copy(machine.flow.alike[machine.flow.group[0]]),))
    if refusals:
        raise UnsupportedError(refusals[0])
    try:
        return Unit(alike, (_without_landmarks(alike, text, machine),))
    except UnsupportedError:
        for blocks in dict.fromkeys(((block,), alike)):
            with suppress(UnsupportedError):
                found = _copies(blocks, text, machine, conditional=True)
                if found and _branches_stay(Unit(blocks, found), text, machine):
                    return Unit(blocks, found)
        raise


def _branches_stay(unit: Unit, text: Text, machine: Machine) -> bool:
    """True if the same branches decide if a block runs and if its copies do: no branch became a predicate there, and no
    predicate became a branch.
    """
    there = {
        statement
        for block in machine.flow.order
        for _, one, statement in machine.labeled(block)
        if one.name in ("BRA", "EXIT")
    }
    branches = [
        one
        for block in unit.blocks
        for decides in text.flow.deciding(block)
        for one in text.within(decides)
        if text.branch(one) and text.conditional(one)
    ]
    copied = [
        machine.statements.get(machine.blocks[decides][-1].at)
        for copy in unit.copies
        for decides in machine.flow.deciding(copy.chain[0])
    ]
    made = [one for one in copied if one is not None and text.conditional(one) and not text.branch(one)]
    return there.issuperset(branches) and not made


def _copies(blocks: tuple[int, ...], text: Text, machine: Machine, conditional: bool = False) -> tuple[Copy, ...]:
    """The copies by their landmarks; none if there are no landmarks.

    conditional: by those that have a predicate in the text. Where the machine code has them under one, too, or a branch
    around them, they stand in code that runs as often as theirs, if every branch of the text is still there.
    """
    found, keys = (_keys_under_predicates if conditional else _keys)(blocks, text, machine)
    copies = list[Copy]()
    for (chain, guard), some in found.items():
        parts = _parts(some)
        if any({statement for _, statement in part} != keys for part in parts):
            raise UnsupportedError("in several copies in the machine code, which do not have the same memory accesses")
        if len(parts) > 1:
            _check_agree(len(parts), chain, keys, blocks, text, machine)
        for number, part in enumerate(parts):
            landmarks = tuple((statement, position) for position, statement in part)
            copies.append(Copy(chain, number, len(parts), part[0][0], part[-1][0], guard, landmarks))
    if copies:
        _check_all_found(copies, blocks, text, machine)
        _check_iterations(len(copies), found, blocks, text, machine)
    return tuple(copies)


def _check_iterations(many: int, found: Found, blocks: Collection[int], text: Text, machine: Machine) -> None:
    """Refuse copies in a loop if only stores to one address were found of them.

    When ptxas unrolls a loop, it keeps only the last of these stores. So there must be a copy for each copy of a
    statement that runs in every iteration.
    """
    keys = {statement for some in found.values() for _, statement in some}
    iterations = Iterations(text)
    if not text.flow.around[next(iter(blocks))] or not all(map(iterations.overwritten, keys)):
        return
    counts = Counter(
        statement
        for block in machine.flow.order
        for _, one, statement in machine.labeled(block)
        if text.block[statement] in blocks and (one.name in LANDMARKS or text.single(one, statement))
    )
    if many not in (count for statement, count in counts.items() if iterations.counts(statement)):
        raise UnsupportedError("in a loop, and only shown by stores that later iterations overwrite")


def _exits(block: int, text: Text, machine: Machine) -> tuple[Copy, ...]:
    """The copies of the block in which all threads leave, where ptxas leaves under a predicate or in several places.

    A thread leaves once, so the block runs once before each exit. None if the only exit is without a predicate.
    """
    leaves = [one for one in text.within(block) if text.branch(one)]
    if not block or text.flow.leaves != frozenset((block,)) or any(map(text.conditional, leaves)):
        return ()
    leaving = [one for one in machine.flow.order if machine.blocks[one][-1].name == "EXIT"]
    if len(leaving) == 1 and not machine.blocks[leaving[0]][-1].conditional:
        return ()
    left = [machine.statements.get(machine.blocks[one][-1].at) for one in leaving]
    if any(one is not None and text.conditional(one) and not text.branch(one) for one in left):
        return ()  # it leaves in place of the block's last store, which is under a predicate
    copies = list[Copy]()
    for one in leaving:
        last = machine.blocks[one][-1]
        place = (0, len(machine.blocks[one]) - 1)
        copies.append(Copy((one,), first=place, last=place, guard=last.guard if last.conditional else ""))
    return tuple(copies)


Found = dict[tuple[tuple[int, ...], str], list[tuple[Position, int]]]
"""Landmarks with their statements, by chain and guard."""


def _keys(blocks: Collection[int], text: Text, machine: Machine) -> tuple[Found, set[int]]:
    """The landmarks by which copies are found: the surest kind that there is."""
    kinds: tuple[Found, Found] = (defaultdict(list), defaultdict(list))
    group, alike = machine.flow.group, machine.flow.alike
    for block in machine.flow.order:
        chain = alike[group[block]]
        for place, one, statement in machine.labeled(block):
            known = one.name in LANDMARKS - FENCES - _SPECULATED and not text.conditional(statement)
            if text.block[statement] not in blocks or not (known or (one.name == "STL" and statement in text.holders)):
                continue
            guard = one.guard if one.conditional else ""
            if guard and one.name in _ATOMICS:  # one lane may add for its warp
                continue
            where = (block,) if guard else chain
            kinds[one.name in LOADS][where, guard].append(((where.index(block), place), statement))
    found = kinds[0] or kinds[1]
    return found, {statement for some in found.values() for _, statement in some}


def _keys_under_predicates(blocks: Collection[int], text: Text, machine: Machine) -> tuple[Found, set[int]]:
    """The landmarks that have a predicate in the text, and the branches that ptxas made of such predicates."""
    found: Found = defaultdict(list)
    passed, inside = Counter[int](), defaultdict[int, list[int]](list)
    for block in machine.flow.order:
        chain = machine.flow.alike[machine.flow.group[block]]
        for place, one, statement in machine.labeled(block):
            if text.block[statement] not in blocks or text.branch(statement):
                continue
            landmark = one.name in LANDMARKS - FENCES - _SPECULATED
            if landmark and not text.conditional(statement):
                raise UnsupportedError("in several copies, of which one has other memory accesses")
            if landmark and not one.conditional:
                inside[statement].append(block)
            elif landmark or (one.name == "BRA" and text.conditional(statement)):
                passed[statement] += one.name == "BRA"
                found[chain, ""].append(((chain.index(block), place), statement))
    keys = {statement for some in found.values() for _, statement in some}
    around = {block for one in keys for block in inside[one]}
    if any(len(some) != passed[one] if one in keys else not around.issuperset(some) for one, some in inside.items()):
        raise UnsupportedError("in several copies, of which one has its memory accesses elsewhere")
    return found, keys


def _parts(found: Sequence[tuple[Position, int]]) -> list[list[tuple[Position, int]]]:
    """Landmarks of a chain, cut where one comes again."""
    parts, seen = list[list[tuple[Position, int]]](), set[int]()
    for position, statement in sorted(found):
        if not parts or statement in seen:
            parts.append([])
            seen = set()
        parts[-1].append((position, statement))
        seen.add(statement)
    return parts


def _check_agree(
    many: int, chain: Sequence[int], keys: Collection[int], blocks: Collection[int], text: Text, machine: Machine
) -> None:
    """Refuse copies that only landmarks show: one statement may have become several accesses."""
    counts = Counter(
        (statement, one.code)
        for block in chain
        for _, one, statement in machine.labeled(block)
        if text.block[statement] in blocks and statement not in keys
    )
    if many not in counts.values():
        raise UnsupportedError("in several copies in the machine code, which only its memory accesses show")


def _check_all_found(copies: Sequence[Copy], blocks: Collection[int], text: Text, machine: Machine) -> None:
    """Refuse if other instructions show more copies than the landmarks, or copies in a loop without any."""
    counts, loops = Counter[int](), set[int]()
    for block in machine.flow.order:
        for _, one, statement in machine.labeled(block):
            if text.block[statement] in blocks:
                counts[statement] += text.single(one, statement)
        if any(text.block[statement] in blocks for statement in _sure((block,), text, machine)):
            loops |= machine.flow.around[block]
    if max(counts.values(), default=0) > len(copies):
        raise UnsupportedError("in more copies in the machine code than there are of its memory accesses")
    if loops - frozenset().union(*(machine.flow.around[block] for copy in copies for block in copy.chain)):
        raise UnsupportedError("in a loop in the machine code, and its memory accesses are outside of it")


Some = dict[int, list[tuple[int, Instruction]]]
"""Instructions with their statements, by the number of their group of machine blocks."""


def _without_landmarks(blocks: tuple[int, ...], text: Text, machine: Machine) -> Copy:
    """The only copy of blocks that only compute."""
    flow = machine.flow
    where: tuple[Some, Some] = (defaultdict(list), defaultdict(list))
    for block in flow.order:
        # of a store under a predicate ptxas may make a branch
        sure = {one for one in _sure((block,), text, machine) if text.branch(one) or not text.conditional(one)}
        for _, one, statement in machine.labeled(block):
            if text.block[statement] in blocks:
                where[statement not in sure][flow.group[block]].append((statement, one))
    where_sure = where[0] or where[1]
    if not where_sure:
        raise UnsupportedError("no longer in the machine code: it has no instructions")
    if len(where_sure) > 1:
        raise UnsupportedError("in several parts of the machine code, and without memory accesses to tell copies apart")
    ((group, some),) = where_sure.items()
    chain = flow.alike[group]
    if any(one.conditional for _, one in some if one.name != "BRA"):
        raise UnsupportedError("computed under a predicate in place of a branch, and without memory accesses")
    counts = Counter((statement, one.code) for statement, one in some if text.single(one, statement))
    if max(counts.values(), default=0) > 1:
        raise UnsupportedError("in several copies in the machine code, without memory accesses to tell them apart")
    if len(flow.around[chain[0]]) != len(text.flow.around[blocks[0]]):
        raise UnsupportedError("outside of its loop in the machine code")
    if 0 in chain or any(text.block[statement] not in blocks for statement in _sure(chain, text, machine)):
        raise UnsupportedError("computed in place of a branch, and without memory accesses")
    return Copy(chain)


def _sure(chain: Sequence[int], text: Text, machine: Machine) -> Iterator[int]:
    """Statements whose instructions stand where the text has them: landmarks, branches, and what becomes one each."""
    for block in chain:
        for _, one, statement in machine.labeled(block):
            branches = one.name == "BRA" and not text.spins(statement)
            if one.name in LANDMARKS or branches or text.single(one, statement):
                yield statement
