"""Finds the statements that ptxas keeps in every iteration of a loop, even if it unrolls the loop."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from .basic_blocks import Text
from .flow import bits

_STORES = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?st\.(?!\S*(?:volatile|relaxed|release|mmio))")
_ATOMIC = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?atom\.")
_CODE = re.compile(r"\s*(?:@!?\s*([%\w$]+)\s+)?[\w.:]+\s+(\{[^}]*\}|\[[^\]]*\]|[^,;]*)(.*)", re.S)
_ADDRESS = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(r"[%$A-Za-z_][\w$%]*")


@dataclass(frozen=True)
class Iterations:
    """Statements that run in every iteration of the loops around them."""

    text: Text
    known: dict[int, bool] = field(default_factory=dict)

    def counts(self, statement: int) -> bool:
        """True if the machine code certainly runs the statement in each iteration of all loops around it.

        ptxas leaves out a store if a later one overwrites it and nothing reads in between, and it computes or loads a
        value once if all iterations have the same. So a statement certainly runs in each iteration only if its address,
        or what it computes, depends on a register that the previous iteration wrote.
        """
        if statement not in self.known:
            heads = [one for one in self.text.flow.around[self.text.block[statement]] if self._may_be_unrolled(one)]
            names = self._names(statement)
            self.known[statement] = all(self._carried(names, head) for head in heads)
        return self.known[statement]

    def _may_be_unrolled(self, head: int) -> bool:
        return self.text.labels.unrolled_never.isdisjoint(self.text.within(head))

    def overwritten(self, statement: int) -> bool:
        """True if a statement is a store that a later iteration overwrites."""
        return self._match(_STORES, statement) and not self.counts(statement)

    def _match(self, what: re.Pattern[str], statement: int) -> bool:
        one = self.text.labels.kernel.statements[statement]
        return what.match(self.text.labels.kernel.text, one.start, one.end) is not None

    def _names(self, statement: int) -> frozenset[str]:
        """The registers of a statement's address; without an address, the registers that it reads."""
        one = self.text.labels.kernel.statements[statement]
        addresses = _ADDRESS.findall(self.text.labels.kernel.text[one.start : one.end])
        if addresses:
            return frozenset(_WORD.findall(" ".join(addresses)))
        return self._uses[statement]

    def _carried(self, names: Iterable[str], head: int) -> bool:
        """True if one of the registers depends on a register that the previous iteration of a loop wrote."""
        blocks = frozenset(bits(self.text.flow.loops[head]))
        work, seen = [*names], set[str]()
        while work:
            name = work.pop()
            if name in seen:
                continue
            seen.add(name)
            writes = [one for one in self._written[name] if self.text.block[one] in blocks]
            if any(self._match(_ATOMIC, one) for one in writes) or (writes and self._read_first(name, head, blocks)):
                return True
            for one in writes:
                work += self._uses[one]
        return False

    def _read_first(self, name: str, head: int, blocks: frozenset[int]) -> bool:
        """True if an iteration may read a register before it writes it."""
        work, seen = [head], set[int]()
        while work:
            block = work.pop()
            if block in seen or block not in blocks:
                continue
            seen.add(block)
            for one in self.text.within(block):
                if name in self._uses[one]:
                    return True
                if name in self._defines[one] and not self.text.conditional(one):
                    break
            else:
                work += [to for to in self.text.flow.successors[block] if to != head]
        return False

    @cached_property
    def _parts(self) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
        """The registers that each statement writes, and those that it reads."""
        kernel = self.text.labels.kernel
        return tuple(
            _parts(kernel.text[one.start : one.end]) if one.mark is None else (frozenset(), frozenset())
            for one in kernel.statements
        )

    @cached_property
    def _defines(self) -> tuple[frozenset[str], ...]:
        return tuple(writes for writes, _ in self._parts)

    @cached_property
    def _uses(self) -> tuple[frozenset[str], ...]:
        return tuple(reads for _, reads in self._parts)

    @cached_property
    def _written(self) -> dict[str, list[int]]:
        found = defaultdict[str, list[int]](list)
        for number, names in enumerate(self._defines):
            for name in names:
                found[name].append(number)
        return found


def _parts(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """The registers that a statement writes (its first operand, unless that is an address), and those that it reads."""
    match = _CODE.match(code)
    if match is None or code.lstrip().startswith("."):
        return frozenset(), frozenset()
    guard, first, rest = match.groups()
    reads = {*_WORD.findall(rest), *([guard] if guard else ())}
    if first.startswith("["):
        return frozenset(), frozenset((*reads, *_WORD.findall(first)))
    writes = frozenset(_WORD.findall(first))
    return writes, frozenset(reads | writes) if guard else frozenset(reads)
