"""Data about the instructions that are inserted into a function of a cubin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...capture.model import RowLayout
from .attributes import Attribute
from .control_codes import Control
from .instructions import Instruction


@dataclass(frozen=True)
class Word:
    """The record to which the word of an instruction belongs.

    Attributes:
        record: name and kind of the record.
        kind: "once" for one record; "held" for a value or a predicate that waits for it; "always" for all of them;
            "count" if it counts the records of a row; "flag" if it concerns the flag of a record that waits to be
            stored.
        clock: index among a row's clocks; None for other words.
        more: for a row, records less one, if the instruction stores or counts it.
        row: the layout of a row with short clocks, if the instruction stores it.
        parts: the records of such a row.
    """

    record: tuple[str, str]
    kind: Literal["once", "held", "always", "count", "flag"] = "once"
    clock: int | None = None
    more: int = 0
    row: RowLayout | None = None
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class New:
    """An instruction to insert.

    Attributes:
        word: its 128 bits.
        to: target of a branch: an address in the original function, or a label of an inserted instruction.
        label: its name among the inserted instructions; empty for none.
        listed: attributes of the kernel that list it, by number, each with its register or mask.
        borrowed: registers of the function that it reads.
        operands_of: address of the function's instruction whose operands it reads, which must be unchanged here;
            None without.
        word_of: the record whose word it writes or that it stores; None for neither.
        proof: checks what nvdisasm reads; None if the word was assembled from a learned form.
        seen: the registers that it reads and writes; None if nothing depends on them.
        half: the half of the control block's address that it moves, "low" or "high"; empty for others.
    """

    word: int
    to: int | str | None = None
    label: str = ""
    listed: tuple[int, ...] = ()
    borrowed: frozenset[str] = frozenset()
    operands_of: int | None = None
    word_of: Word | None = None
    proof: Callable[[Instruction], bool] | None = None
    seen: Instruction | None = None
    half: Literal["", "low", "high"] = ""


@dataclass(frozen=True)
class Insertion:
    """Instructions to insert into a function.

    Attributes:
        before: instructions inserted before the one at an address; branches to it go to these first.
        after: instructions inserted after the one at an address; branches to the next one skip these.
        tail: code after the function's.
        registers: registers a thread that the function needs now; None if unchanged.
        attributes: attributes without addresses that the function gets if it lacks them.
        controls: new control codes of the function's instructions, by address.
        replaced: replacements of the function's instructions, by address.
    """

    before: Mapping[int, Sequence[New]] = field(default_factory=dict)
    after: Mapping[int, Sequence[New]] = field(default_factory=dict)
    tail: Sequence[New] = ()
    registers: int | None = None
    attributes: Sequence[Attribute] = ()
    controls: Mapping[int, Control] = field(default_factory=dict)
    replaced: Mapping[int, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        changed = (*self.before.values(), *self.after.values(), self.tail, self.controls, self.replaced)
        return not any(changed) and self.registers is None
