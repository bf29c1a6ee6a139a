"""The marks of one instruction: the name of its record, and the mark's operand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ..marks import operations
from ..marks.grammar import Act, Mark
from ..marks.operations import Operation
from ..marks.strategies import ANY_LANE
from ..ptx.operations import EACH, FIRST, ONE, WIDE
from .known_registers import ONE_LANE, Registers

_OPERAND = re.compile(r"\{[^}]*\}|\[(?:[^\[\]{}]|\{[^}]*\})*\]|[^,\s][^,\[\]{}]*")
_WIDE = re.compile(r"%rd\d+")
_GROUPS = {
    "cp.async.commit_group": ("commit", "cp.async"),
    "cp.async.wait_group": ("drain", "cp.async"),
    "cp.async.wait_all": ("drain", "cp.async"),
    "cp.async.bulk.commit_group": ("commit", "cp.async.bulk"),
    "cp.async.bulk.wait_group": ("drain", "cp.async.bulk"),
    "cp.async.bulk.wait_group.read": ("drain", "cp.async.bulk.read"),
    "wgmma.commit_group.sync.aligned": ("commit", "wgmma"),
    "wgmma.wait_group.sync.aligned": ("drain", "wgmma"),
}


@dataclass
class Instruction:
    """One instruction. missed: reports operations that are not recorded. places: file:line of each name. bytes: of each
    thread in the group that it commits; None if unknown.
    """

    registers: Registers
    missed: Callable[[str], None]
    places: dict[str, str]
    found: re.Match[str]
    where: str | None
    number: int
    loops: bool = False
    bytes: int | None = None

    def marks(self) -> Iterator[tuple[bool, Mark]]:
        """(before the instruction, mark)."""
        negated, guard, code, rest = self.found.groups()
        arguments = [one.strip() for one in _OPERAND.findall(rest)]
        words = code.split(".")
        when = f"{negated}{guard}" if guard else None
        if code in _GROUPS:
            yield from self._group(code, arguments, when)
        elif words[0] == "mbarrier":
            yield from self._mbarrier(code, words, arguments, when)
        elif code.startswith("cp.async.mbarrier.arrive"):
            fixed = {} if ".noinc" in code else {"count": 0}
            yield self._point("follow", arguments[0], code, when, **fixed)
        elif code.startswith("tcgen05.commit"):
            yield self._point("follow", arguments[0], code, when, **self._several(code))
        elif "complete_tx::bytes" in code:
            yield from self._copy(code, words, arguments, when)

    def _group(self, code: str, arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        operation, of = _GROUPS[code]
        how = FIRST if of == operations.OF_WARP else ONE if self._is_one_lane(when) else ""
        if operation == "commit":
            size = {} if self.bytes is None else {"bytes": self.bytes}
            yield True, self._mark("instant", "commit", f"{how}0", when, of=of, **size)
        elif when is not None:
            self.missed(f"{code} under a predicate is not recorded")
        else:
            left = arguments[0] if arguments else "0"
            yield True, self._mark("enter", "drain", f"{how}{left}", None, of=of)
            yield False, self._mark("exit", "drain", None, None, of=of)

    def _mbarrier(
        self, code: str, words: list[str], arguments: list[str], when: str | None
    ) -> Iterator[tuple[bool, Mark]]:
        operation = words[1]
        if operation == "init":
            yield from self._counted("init", "count", arguments[0], arguments[1], code, when)
        elif operation in ("try_wait", "test_wait"):
            yield from self._wait(code, words, arguments, when)
        elif operation == "expect_tx":
            yield from self._counted("expect_tx", "bytes", arguments[0], arguments[1], code, when)
        elif operation == "arrive" and "expect_tx" in words:
            yield from self._counted("expect", "bytes", arguments[-2], arguments[-1], code, when)
        elif operation in ("arrive", "arrive_drop"):
            if operation == "arrive_drop":
                self.missed("mbarrier.arrive_drop changes how many arrivals a phase has: later phases are unknown")
            barrier = next((n for n, one in enumerate(arguments) if one.startswith("[")), 0)
            count = arguments[barrier + 1] if len(arguments) > barrier + 1 else "1"
            if self.registers.number(count) == 1:
                yield self._point("arrive", arguments[barrier], code, when)
            else:
                yield from self._counted("arrive", "count", arguments[barrier], count, code, when)
        elif operation in ("inval", "pending_count"):
            return
        else:
            self.missed(f"{code} is not recorded")

    def _wait(self, code: str, words: list[str], arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        if when is not None:
            self.missed(f"{code} under a predicate is not recorded")
            return
        if "parity" not in words:
            self.missed(f"{code} waits for a token, not for a parity: it is not recorded")
            return
        over = arguments[0].partition("|")[0].strip()
        address = self._address(arguments[1], code)
        yield True, self._mark("enter" if self.loops else "attempt", "wait", f"{address}|{arguments[2]}", None)
        yield False, self._mark("exit", "wait", None, None) if self.loops else self._mark("success", "wait", over, None)

    def _counted(
        self, operation: Operation, what: str, barrier: str, count: str, code: str, when: str | None
    ) -> Iterator[tuple[bool, Mark]]:
        """An operation with a number, in its name or in a record that follows."""
        number = self.registers.number(count)
        yield self._point(operation, barrier, code, when, **({} if number is None else {what: number}))
        if number is None:
            yield self._bytes(count, when)

    def _copy(self, code: str, words: list[str], arguments: list[str], when: str | None) -> Iterator[tuple[bool, Mark]]:
        places = [n for n, one in enumerate(arguments) if one.startswith("[")]
        bulk = words[:3] == ["cp", "async", "bulk"] or words[0] == "multimem"
        if len(places) < (3 if bulk else 2):
            self.missed(f"{code} is not recorded")
            return
        size = arguments[2] if bulk and "tensor" not in words else None
        known = self.registers.number(size) if size else None
        fixed: dict[str, int] = {} if known is None else {"bytes": known}
        fixed |= self._several(code)
        yield self._point("copy", arguments[places[2 if bulk else 1]], code, when, **fixed)
        if size and "bytes" not in fixed:
            yield self._bytes(size, when)

    def _several(self, code: str) -> dict[str, int]:
        """Name fields of an instruction visible to several blocks; reports its unknown part."""
        if "multicast::cluster" not in code:
            return {}
        self.missed(
            f"{code} completes at barriers of several blocks, but is recorded only for the block that its address"
            " names: when the other blocks' copies were issued is unknown"
        )
        return {"multicast": 1}

    def _point(
        self, operation: Operation, barrier: str, code: str, when: str | None, **fixed: int
    ) -> tuple[bool, Mark]:
        one = self._is_one_lane(when)
        several = operation == "init" or (operation == "arrive" and "shared::cluster" in code)
        how = FIRST if self.registers.is_lane_0(when) else ONE if one else EACH if several else ""
        return True, self._mark("instant", operation, f"{how}{self._address(barrier, code)}", when, **fixed)

    def _is_one_lane(self, when: str | None) -> bool:
        return ONE_LANE in (self.registers.condition(when) or ())

    def _bytes(self, register: str, when: str | None) -> tuple[bool, Mark]:
        how = FIRST if self.registers.is_lane_0(when) else ""
        return True, self._mark("instant", "bytes", f"{how}{register}", when)

    def _mark(self, act: Act, operation: Operation, operand: str | None, when: str | None, **fixed: int | str) -> Mark:
        file, _, line = (self.where or "").rpartition(":")
        name = operations.operation_name(
            operation, f"{PurePath(file).name}:{line}" if file else f"#{self.number}", **fixed
        )
        if self.where:
            self.places[name] = self.where
        return Mark(act, name, "u32" if act != "exit" else None, ANY_LANE, "pipeline", operand, when)

    def _address(self, operand: str, code: str) -> str:
        """The operand of a mark for an address in brackets."""
        inside = re.sub(r"\s", "", operand.strip("[]"))
        if ".shared" not in code:
            return f"generic:{inside}"
        return f"{WIDE}{inside}" if _WIDE.match(inside) else inside
