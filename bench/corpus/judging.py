"""One kernel, recorded with both placements and checked: what comes out is data."""

from __future__ import annotations

import re
import signal
import time
import traceback
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from unit.sass.stripping import stripped

from kscope.errors import KscopeError, UnsupportedError
from kscope.instrument.recording import Recording
from kscope.lowering import register_budget, schedule_placement
from kscope.lowering.plan import lower, without_marks
from kscope.lowering.register_usage import Usage
from kscope.machine_code import elf
from kscope.sass.checks import kernel_check
from kscope.sass.cubin import insert, reading
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import Function
from kscope.sass.placing.basic_blocks import LANDMARKS
from kscope.sass.recording import kernel as recording_kernel

from .keeping import Kept

_SECONDS = 300
_OF_MODULE = re.compile(r"c\[0x[34]\]")
_FENCE = 3
"""Every third kernel is recorded with placement="fence", too."""


@dataclass
class Verdict:
    """The result of a kernel.

    Attributes:
        source, name: which one.
        plain: whether ptxas takes its text without marks.
        schedule: "recorded", "refused", "rejected" by a checker, or "crashed".
        why: the message, if not recorded.
        stripped: how its own instructions differ from the plain code; empty if not at all.
        same: its code without marks is that of the kernel compiled without kscope; None if that was not compiled.
        registers, warps: a thread's and an SM's, before and with placement="schedule".
        copies: marks in the machine code, by how many there are in the text.
        fence: "recorded", "refused", "not assembled" or "crashed".
        fence_why: the message, if not recorded.
        fence_registers: a thread's, before and with placement="fence".
        fence_spills: bytes that spill, before and with it.
        problems: kinds that are reported with placement="fence".
        seconds: with placement="schedule".
    """

    source: str
    name: str
    plain: bool = False
    schedule: str = ""
    why: str = ""
    stripped: str = ""
    same: bool | None = None
    registers: tuple[int, int] = (0, 0)
    warps: tuple[int, int] = (0, 0)
    copies: tuple[int, int] = (0, 0)
    fence: str = ""
    fence_why: str = ""
    fence_registers: tuple[int, int] = (0, 0)
    fence_spills: tuple[int, int] = (0, 0)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0


class TooSlowError(Exception):
    """It did not end."""


@dataclass
class _Seen:
    """The stages of the recording: the plain code, the insertion, and the result."""

    data: bytes = b""
    before: Function | None = None
    insertion: Insertion | None = None
    after: Function | None = None
    rejected: bool = False


def judge(source: str, kept: Kept, marked: str, plain: str, ptxas: str) -> Verdict:
    """Record a kernel with both placements. plain: its text compiled without kscope; empty if it was not."""
    found = Verdict(source, kept.name)

    def assemble(text: str) -> register_budget.Assembled | None:
        return register_budget.assemble(text, ptxas, kept.flags)

    bare = assemble(without_marks(marked))
    found.plain = bare is not None
    if bare is None:
        return found
    if plain:
        other = assemble(plain)
        found.same = other is not None and _code(other.cubin) == _code(bare.cubin)
    with _within(_SECONDS):
        _schedule(found, kept, marked, bare.cubin, lambda text, _: getattr(assemble(text), "cubin", None))
    if zlib.crc32(kept.name.encode()) % _FENCE:
        return found
    with _within(_SECONDS):
        _fence(found, kept, marked, bare.usage, lambda text: getattr(assemble(text), "usage", None))
    return found


def _schedule(found: Verdict, kept: Kept, marked: str, plain: bytes, code: Callable[[str, bool], bytes | None]) -> None:
    seen, options, begun = _Seen(), Recording(placement="schedule"), time.monotonic()
    made: list[recording_kernel.Recorded] = []
    try:
        with _watched(seen, made):
            low = lower(marked, options, frontend=kept.frontend)
            schedule_placement.record_machine_code(low, options, code, kept.shared, False)
    except UnsupportedError as error:
        found.schedule, found.why = "rejected" if seen.rejected else "refused", str(error)
    except KscopeError as error:
        found.schedule, found.why = "refused", f"{type(error).__name__}: {error}"
    except Exception as error:
        found.schedule, found.why = "crashed", _last(error)
    else:
        found.schedule, found.registers, found.warps = "recorded", made[0].registers, made[0].warps
        found.copies = len(made[0].marks), len(made[0].spots)
        found.stripped = _differs(seen, plain)
    found.seconds = time.monotonic() - begun


def _fence(found: Verdict, kept: Kept, marked: str, plain: Usage, measure: Callable[[str], Usage | None]) -> None:
    try:
        low = register_budget.lower_to_fit(
            marked, Recording(), frontend=kept.frontend, measure=measure, shared=kept.shared
        )
        usage = measure(low.text)
    except KscopeError as error:
        found.fence, found.fence_why = "refused", str(error)
    except Exception as error:
        found.fence, found.fence_why = "crashed", _last(error)
    else:
        found.problems = sorted({one.kind for one in low.problems})
        found.fence = "not assembled" if usage is None else "recorded" if low.text is not marked else "refused"
        if usage is not None:
            found.fence_registers = plain.registers, usage.registers
            found.fence_spills = plain.spill_bytes, usage.spill_bytes


@contextmanager
def _watched(seen: _Seen, made: list[recording_kernel.Recorded]) -> Generator[None, None, None]:
    """Look at what the steps of a recording are given, and give."""
    inserted, check, hazards, record = (
        insert.inserted,
        kernel_check.check,
        kernel_check.hazards.check,
        schedule_placement.record,
    )

    def with_insertion(data: bytes, function: Function, insertion: Insertion) -> bytes:
        seen.data, seen.before, seen.insertion = data, function, insertion
        return inserted(data, function, insertion)

    def with_rejection(*given: Any) -> None:
        try:
            check(*given)
        except UnsupportedError:
            seen.rejected = True
            raise

    def with_code(function: Function, *given: Any) -> Any:
        seen.after = function
        return hazards(function, *given)

    def with_result(*given: Any) -> recording_kernel.Recorded:
        made.append(record(*given))
        return made[-1]

    with (
        patch.object(insert, "inserted", with_insertion),
        patch.object(kernel_check, "check", with_rejection),
        patch.object(kernel_check.hazards, "check", with_code),
        patch.object(schedule_placement, "record", with_result),
    ):
        yield


def _code(cubin: bytes) -> list[bytes]:
    return [one.content for one in elf.read(cubin).sections if one.name.startswith(".text")]


def _moved(plain: bytes, before: Function) -> bool:
    """True if other instructions differ than those that load a constant of the module, which kscope's has moved."""
    function = next(one for one in reading.functions(plain) if one.name == before.name)
    pairs = list(zip(function.instructions, before.instructions, strict=False))
    same = all(one.word == other.word or _OF_MODULE.search(str(other)) for one, other in pairs)
    return not same or len(function.instructions) != len(before.instructions)


def _differs(seen: _Seen, plain: bytes) -> str:
    """How the code without what was inserted differs from the plain code, but for what is documented."""
    assert seen.before is not None and seen.after is not None and seen.insertion is not None
    if _code(plain) != _code(seen.data) and _moved(plain, seen.before):
        return "the code before insertion is not the plain code"
    before = stripped(seen.before, frozenset())
    after = stripped(seen.after, frozenset(insert.inserted_addresses(seen.before, seen.insertion)))
    if len(after) < len(before) or any(one[1] != "NOP" for one in after[len(before) :]):
        return f"{len(after)} instead of {len(before)} instructions"
    for one, other in zip(before, after, strict=False):
        if one != other and not _documented(one, other):
            return f"{other} instead of {one}"
    return ""


def _documented(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """One cycle became two, or the last access before an exit got a scoreboard."""
    (*rest, stall, stay, writes, reads, waits), (*others, more, other_stay, other_writes, other_reads, other_waits) = (
        one,
        other,
    )
    if (rest, stay, writes, waits) != (others, other_stay, other_writes, other_waits):
        return False
    stored = str(one[1]).partition(".")[0] in LANDMARKS and reads is None
    return (stall == more or (stall, more) == (1, 2)) and (reads == other_reads or stored)


@contextmanager
def _within(seconds: int) -> Generator[None, None, None]:
    def stop(*_: Any) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _last(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{one.filename.rpartition('/')[2]}:{one.lineno}" for one in reversed(frames))
    return f"{error!r} at {where}"
