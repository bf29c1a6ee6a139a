"""What is inserted into a function of a cubin: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from . import info
from .control import Control
from .instructions import Instruction


@dataclass(frozen=True)
class Word:
    """Whose word an instruction writes.

    Attributes:
        record: name and kind of the record.
        kind: "once" for one record; "held" for a value or a predicate that waits for it; "always" for all of them;
            "count" if it counts the records of a row; "flag" if it is about the flag of a record that is left.
        clock: which of a row's clocks it is; None for other words.
        more: of a row, records less one, if the instruction stores or counts it.
    """

    record: tuple[str, str]
    kind: Literal["once", "held", "always", "count", "flag"] = "once"
    clock: int | None = None
    more: int = 0


@dataclass(frozen=True)
class New:
    """An instruction to insert.

    Attributes:
        word: its 128 bits.
        to: what it names, for branches: an address in the function as it was, or a label of an inserted instruction.
        label: its name among the inserted instructions; empty for none.
        listed: attributes of the kernel that list it, by number, each with the register or mask that belongs to it.
        borrowed: registers of the function's own that it reads.
        operands_of: the own instruction by whose address these are operands, and must be so here; None if they are not.
        word_of: which record's word it writes, or which record it stores; None for neither.
        proof: whether what nvdisasm reads is what was meant; None if the word was assembled from a learned form.
        seen: what it reads and writes; None if nothing depends on it.
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


@dataclass(frozen=True)
class Insertion:
    """What is inserted into a function.

    Attributes:
        before: by the address of an instruction, what is inserted before it; branches to it go to these first.
        after: by the address of an instruction, what is inserted after it; branches to the next one skip these.
        tail: code after the function's.
        registers: registers a thread that the function needs now; None for as many as before.
        attributes: attributes without addresses that the function gets, unless it has them.
        controls: other control codes of the function's own instructions, by address.
        replaced: other instructions in place of the function's own, by address.
    """

    before: Mapping[int, Sequence[New]] = field(default_factory=dict)
    after: Mapping[int, Sequence[New]] = field(default_factory=dict)
    tail: Sequence[New] = ()
    registers: int | None = None
    attributes: Sequence[info.Attribute] = ()
    controls: Mapping[int, Control] = field(default_factory=dict)
    replaced: Mapping[int, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        changed = (*self.before.values(), *self.after.values(), self.tail, self.controls, self.replaced)
        return not any(changed) and self.registers is None
