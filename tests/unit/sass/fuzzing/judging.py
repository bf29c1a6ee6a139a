"""One case: recorded, or refused with a reason; then stripped, checked, run by the interpreter and compared."""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from subprocess import CalledProcessError
from threading import local
from typing import Any
from unittest.mock import patch

from ptxvm.host import Host
from sassvm.launching import OUT_BYTES, Case, judged, launched
from sassvm.whole_kernel import KernelWarp

from kscope.errors import FormatError, UnsupportedError
from kscope.marks.grammar import PREFIX
from kscope.sass.checks import hazards, kernel_check
from kscope.sass.cubin import insert, reading
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import BYTES, Function
from kscope.sass.placing import labels, mark_order, place
from kscope.sass.recording.kernel import Recorded, record_kernel

from ..kernels import assembled
from ..stripping import stripped
from . import renamed, texts
from .cases import Drawn

NAME = "fuzzed"
_STALL, _WRITES, _READS = 5, 7, 8
"""Places in what stripped() gives for an instruction."""
_SHORT = (re.compile(r"'[^']*'"), re.compile(r"0x[0-9a-f]+|\b\d+\b|\b[0-9a-f]{4}\b"), re.compile(r"\b(?:U?[RP]|SB|B)#"))


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    Attributes:
        refused: why it was not recorded; empty if it was.
        wrong: what is wrong; empty if nothing is.
        renamed: its plain code had other registers.
        records: that all threads should leave.
    """

    refused: str = ""
    wrong: str = ""
    renamed: bool = False
    records: int = 0

    @property
    def reason(self) -> str:
        """The refusal without names and numbers."""
        return shortened(self.refused)

    @property
    def rejected(self) -> bool:
        """A checker found that what was inserted is wrong."""
        return self.refused.startswith(f"{NAME}: ")


def shortened(message: str) -> str:
    """A message without what differs from kernel to kernel."""
    return re.sub(r"#[#.x ,]*#", "#", _SHORT[1].sub("#", _SHORT[0].sub("'...'", message)))


@dataclass(frozen=True)
class _Made:
    """The result of record_kernel(), and its inputs."""

    recorded: Recorded
    before: Function
    insertion: Insertion
    renamed: bool


_OF = local()
"""For each thread: the random numbers of its case, and the arguments of checking.check()."""


@contextmanager
def watched() -> Iterator[None]:
    """Placements are changed as the case of a thread says, and what is checked is kept for it."""
    check, spots = kernel_check.check, place.spots

    def kept(data: bytes, before: Function, insertion: Insertion, holding: Mapping[int, Any]) -> None:
        _OF.kept = before, insertion
        check(data, before, insertion, holding)

    def elsewhere(text: Any, machine: Any) -> tuple[mark_order.Spot, ...]:
        found = spots(text, machine)
        return found if getattr(_OF, "dice", None) is None else _elsewhere(text, machine, found, _OF.dice)

    with patch.object(kernel_check, "check", kept), patch.object(place, "spots", elsewhere):
        yield


def _elsewhere(text: Any, machine: Any, found: Sequence[mark_order.Spot], dice: Random) -> tuple[mark_order.Spot, ...]:
    """The marks at other slots with as few instructions on the wrong side, where the proof holds there, too."""
    for number, spot in enumerate(found):
        if spot.after or spot.guard or not spot.choices or dice.random() < 0.3:
            continue
        at = dice.choice(sorted(spot.choices))
        block = next(some for some in machine.blocks if some[0].at <= at <= some[-1].at)
        behind = place._is_behind_wait([one for one in block if one.at < at])
        tried = [*found[:number], replace(spot, at=at, behind_wait=behind), *found[number + 1 :]]
        tried.sort(key=lambda one: (one.at, one.after))
        try:
            moved = mark_order.ordered(text, tried)
            mark_order.check(text, machine, moved)
        except UnsupportedError:
            continue
        found = moved
    return tuple(found)


def verdict(drawn: Drawn) -> Verdict:
    """The result of a case; within watched()."""
    try:
        made = _recorded(drawn)
    except CalledProcessError as error:  # such as too few registers
        return Verdict(refused=f"ptxas: {error.stderr.decode().splitlines()[0]}")
    except (UnsupportedError, FormatError) as error:  # nvdisasm leaves out code that cannot be reached
        return Verdict(refused=str(error) or "no reason", wrong="" if str(error) else "a refusal without a reason")
    except Exception:
        return Verdict(wrong=f"record_kernel() failed: {traceback.format_exc()}")
    try:
        (function,) = reading.functions(made.recorded.data)
        is_the_plain_kernel(made, function)
        problems = hazards.check(function, insert.inserted_addresses(made.before, made.insertion).keys())
        if problems:
            return Verdict(wrong=f"a hazard: {problems[0]}", renamed=made.renamed)
        return Verdict(renamed=made.renamed, records=_run(drawn, made, function))
    except Exception as error:
        short = traceback.format_exc() if not isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        return Verdict(wrong=short, renamed=made.renamed)


def _recorded(drawn: Drawn) -> _Made:
    text, dice = texts.text(drawn.outline, NAME), Random(drawn.seed)
    pair = None
    if drawn.renamed:
        pair = renamed.code(assembled.__wrapped__(labels.labeled(text).plain, drawn.tool, ()), NAME, dice)
    _OF.dice = dice if drawn.elsewhere else None

    def assemble(code: str, table: bool) -> bytes:
        made: bytes = assembled.__wrapped__(code, drawn.tool, ("-lineinfo",) if table else ())
        return made if pair is None else renamed.exchanged(made, *pair)

    found = record_kernel(text, drawn.kernel, assemble, moved=drawn.moved)
    return _Made(found, *_OF.kept, pair is not None)


def is_the_plain_kernel(made: _Made, function: Function) -> None:
    """The strip test: without what was inserted, it is the plain code, but for what docs/design/sass.md names."""
    inserted = frozenset(insert.inserted_addresses(made.before, made.insertion))
    plain, rest = stripped(made.before, frozenset()), stripped(function, inserted)
    replaced = made.insertion.replaced
    while len(rest) > len(plain) and rest[-1][1] == "NOP":
        rest.pop()
    while len(plain) > len(rest) and plain[-1][1] == "NOP":
        plain.pop()
    assert len(plain) == len(rest), f"{len(plain)} instructions became {len(rest)}"
    for number, (one, other) in enumerate(zip(plain, rest, strict=True)):
        if number * BYTES in replaced:
            assert one[1] == "STL", f"{one} was replaced by {other}"
            continue
        changes = [n for n in range(len(one)) if one[n] != other[n]]
        known = all(
            (n == _STALL and one[n] == 1 and other[n] == 2) or (n in (_READS, _WRITES) and one[n] is None)
            for n in changes
        )
        assert known, f"{one} became {other}"


def _run(drawn: Drawn, made: _Made, function: Function) -> int:
    """Records and the kernel's own stores."""
    oracle = _recording(texts.text(drawn.outline, NAME, oracle=True))
    case = Case(
        oracle, function, drawn.kernel, drawn.number, drawn.shape, drawn.pool, drawn.subset, drawn.size, drawn.epoch,
        drawn.bound, drawn.smid, drawn.grid_id, drawn.clocks, made.recorded.layouts, frozenset(made.recorded.shared),
        drawn.memory, KernelWarp, made.recorded.data,
    )  # fmt: skip
    found = judged(case)
    plain = launched(replace(case, function=made.before, bound=False, cubin=b""))
    mine, expected = _stores(found.host), _stores(plain.host)
    for key in expected.keys() | mine.keys():
        assert mine[key] == expected[key], f"{key}: the kernel's stores {mine[key]}, expected {expected[key]}"
    return sum(len(one.events) for one in found.ideals.values())


def _recording(text: str) -> str:
    """A text without the marks that never record: the machine code reads no clock for them."""
    found = labels.labeled(text)
    records = iter([n in found.recording for n, one in enumerate(found.kernel.statements) if one.mark is not None])
    return "\n".join(line for line in text.splitlines() if PREFIX not in line or next(records))


def _stores(host: Host) -> dict[Any, list[tuple[Any, ...]]]:
    """The kernel's own stores and atomics, of each thread in order."""
    out = next(one for one in host.memory._allocations if one.name == "out")
    found = defaultdict[Any, list[tuple[Any, ...]]](list)
    for one in host.memory.log:
        if out.base <= one.address < out.base + OUT_BYTES:
            found[one.thread.key].append((one.op, one.address - out.base, one.size, one.value))
    return found
