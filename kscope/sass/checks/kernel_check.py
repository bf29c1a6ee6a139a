"""Checks a kernel after insertion: its instructions are the intended ones, and none disturbs another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ...errors import UnsupportedError
from ..cubin import insert, reading
from ..cubin.insertion import Insertion, New, Word
from ..cubin.instructions import BYTES, Function, Instruction
from ..encoding import forms
from . import clobbers, hazards, record_words, short_rows


def check(data: bytes, before: Function, insertion: Insertion, holding: Mapping[int, Word]) -> None:
    """Refuse code that nvdisasm reads differently, or in which a checker finds an error.

    Args:
        data: the cubin after insertion.
        before: the function before insertion.
        insertion: what was inserted.
        holding: the replaced instructions, with the value that each holds.

    Raises:
        UnsupportedError: the code is wrong; the message has the address.
    """
    (function,) = [one for one in reading.functions(data) if one.name == before.name]
    added, places = insert.inserted_addresses(before, insertion), insert.places(before, insertion)
    for one in function.instructions:
        if one.at in added and not _is_intended(added[one.at], one):
            raise UnsupportedError(f"{before.name}: nvdisasm reads {one} where another instruction was inserted")
    new = added.keys()
    moves = insert.borrowed_by_address(before, insertion)
    moves |= {places[at]: before.instructions[at // BYTES].reads for at in insertion.replaced}
    words = {at: one.word_of for at, one in added.items() if one.word_of is not None} | {
        places[at]: word for at, word in holding.items()
    }
    own = {at: (one, places[one.operands_of]) for at, one in added.items() if one.operands_of is not None}
    found = (
        *hazards.check(function, new | moves.keys()),
        *clobbers.check(function, new, moves, {at for at, one in added.items() if one.proof is not None}),
        *record_words.check(function, words),
        *short_rows.check(function, new, words),
        *other_operands(function, new, own),
    )
    if found:
        raise UnsupportedError(f"{function.name}: {found[0]}" + (f", and {len(found) - 1} more" if found[1:] else ""))


def other_operands(
    function: Function, new: Collection[int], reading: Mapping[int, tuple[New, int]]
) -> Iterator[hazards.Hazard]:
    """Inserted instructions that read operands of a kernel instruction where these may have changed.

    Args:
        function: the code after insertion.
        new: addresses of the inserted instructions.
        reading: address of an inserted instruction -> itself, and the address of the kernel's.
    """
    by_address, targets = {one.at: one for one in function.instructions}, function.targets
    for at, (one, own) in reading.items():
        read = frozenset(name for name in one.borrowed if not name.startswith(("P", "UP")))
        first, last = min(at, own), max(at, own)
        between = [by_address[there] for there in range(first, last, BYTES)]
        written = frozenset[str]().union(*(other.writes for other in between if other.at not in new))
        parted = any(other.name in hazards.CONTROL_FLOW for other in between)
        entered = any(there in targets for there in range(first + BYTES, last + BYTES, BYTES))
        if not read <= by_address[own].reads or read & written or parted or entered:
            yield hazards.Hazard(at, own, f"{', '.join(sorted(read))} may have other values than there")


def _is_intended(new: New, one: Instruction) -> bool:
    """True if nvdisasm reads the intended instruction, by its proof or by the text from which it was assembled.

    Its table must have no registers that the architecture lacks.
    """
    if new.proof is not None:
        return new.proof(one)
    return new.seen is None or (_text(new.seen) == _text(one) and _uniform(new.seen) <= _uniform(one))


def _uniform(one: Instruction) -> frozenset[str]:
    return frozenset(name for name in one.reads | one.writes if name.startswith("UR"))


def _text(one: Instruction) -> tuple[object, ...]:
    """An instruction's text without its target and the spelling of numbers; and its registers."""
    operands = ", ".join(one.operands).replace("[RZ]", "[0x0]")  # how nvdisasm prints a constant's offset of 0
    key, values = forms.shape(one.code, "" if one.name == "BRA" else operands)
    numbers = tuple(value % (1 << 32) if isinstance(value, int) else value for value in values)
    return one.guard, key, numbers, _registers(one.reads), _registers(one.writes)


def _registers(names: frozenset[str]) -> frozenset[str]:
    """The registers without uniform ones: a text does not show that a descriptor has two."""
    return frozenset(name for name in names if not name.startswith("U"))
