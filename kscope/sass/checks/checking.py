"""Checks a kernel that was made to record: its instructions are those that were meant, and none is in the way."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import UnsupportedError
from ..cubin import insert, reading
from ..cubin.insertion import Insertion, New, Word
from ..cubin.instructions import BYTES, Function, Instruction
from ..encoding import forms
from . import clobbers, hazards, record_words


def check(data: bytes, before: Function, insertion: Insertion, holding: Mapping[int, Word]) -> None:
    """Refuse code that nvdisasm reads as another one, or that a checker finds wrong.

    Args:
        data: the cubin with what was inserted.
        before: the function without.
        insertion: what was inserted.
        holding: the replaced instructions, with what each holds.

    Raises:
        UnsupportedError: the code is wrong; the message says where.
    """
    (function,) = [one for one in reading.functions(data) if one.name == before.name]
    added, places = insert.added(before, insertion), insert.places(before, insertion)
    for one in function.instructions:
        if one.at in added and not _meant(added[one.at], one):
            raise UnsupportedError(f"{before.name}: nvdisasm reads {one} where another instruction was meant")
    new = added.keys()
    moves = insert.borrowed(before, insertion)
    moves |= {places[at]: before.instructions[at // BYTES].reads for at in insertion.replaced}
    words = {at: one.word_of for at, one in added.items() if one.word_of is not None} | {
        places[at]: word for at, word in holding.items()
    }
    found = (
        *hazards.check(function, new | moves.keys()),
        *clobbers.check(function, new, moves, {at for at, one in added.items() if one.proof is not None}),
        *record_words.check(function, words),
    )
    if found:
        raise UnsupportedError(f"{function.name}: {found[0]}" + (f", and {len(found) - 1} more" if found[1:] else ""))


def _meant(new: New, one: Instruction) -> bool:
    """Whether nvdisasm reads what was meant: by its proof, or by the text that it was assembled from."""
    if new.proof is not None:
        return new.proof(one)
    return new.seen is None or _text(new.seen) == _text(one)


def _text(one: Instruction) -> tuple[object, ...]:
    """What an instruction's text says, apart from where it leads and how numbers are spelled; and its registers."""
    operands = ", ".join(one.operands).replace("[RZ]", "[0x0]")  # how nvdisasm prints a constant's offset of 0
    key, values = forms.shape(one.code, "" if one.name == "BRA" else operands)
    numbers = tuple(value % (1 << 32) if isinstance(value, int) else value for value in values)
    return one.guard, key, numbers, _registers(one.reads), _registers(one.writes)


def _registers(names: frozenset[str]) -> frozenset[str]:
    """Without uniform ones: a text does not say that a descriptor has two."""
    return frozenset(name for name in names if not name.startswith("U"))
