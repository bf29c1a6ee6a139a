"""What the marks of a text mean, by running the text with its marks in place.

The oracle runs the same kernel un-lowered on the same machine; at a mark it reads the thread's
clock and keeps a record in a Python list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kscope.capture import layout
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.marks.grammar import Mark
from kscope.marks.strategies import Elected, Strategy, parse_strategy

from .machine import Grid, Launch, Thread, run
from .syntax import Instr

M32, M64 = 0xFFFFFFFF, (1 << 64) - 1


@dataclass(frozen=True)
class Event:
    """One expected record: the fields of layout.RECORD, and their 64-bit ticks."""

    start: int
    id: int
    end: int
    value: int
    ticks: tuple[int, int]


@dataclass
class Ideal:
    """What one thread should leave: its anchors (clock, time, width), its events in order of their ends. late: some
    of them because it was the first that got there."""

    thread: Thread
    start: tuple[int, int, int] = (0, 0, 0)
    end: tuple[int, int, int] = (0, 0, 0)
    events: list[Event] = field(default_factory=list)
    late: bool = False
    ended: int = 0  # clock of the last exit
    clock: int = 0  # the last one that was read for a mark
    open: dict[str, list[tuple[int, int | None, bool]]] = field(default_factory=dict)


def strategies(marks: Iterable[Mark], recording: Recording) -> list[Strategy]:
    """The strategies that a kernel with these marks uses; without marks, the recording's."""
    used = {mark.strategy or recording.strategy.spec for mark in marks} or {recording.strategy.spec}
    return [parse_strategy(spec) for spec in used]


def sampled(subset: Subset, shape: Grid, thread: Thread) -> bool:
    """True if the gate lets this thread's block, warp and SM record."""
    x, y, z, _ = thread.key
    block = x + shape.grid[0] * (y + shape.grid[1] * z)
    if subset.block is not None:
        first = subset.block.start
        if not first <= block < subset.block.stop or ((block - first) & M32) % subset.block.step:
            return False
    if subset.warp is not None and thread.warp not in subset.warp:
        return False
    return subset.sm is None or thread.special["%smid"] in subset.sm


def begins_right_behind_ends(
    blocks: Iterable[Iterable[Instr]], without: frozenset[str], recording: Recording
) -> set[int]:
    """Lines of the enters without their own clock read: directly after an exit, in a sequence of three or more such
    pairs without a label or jump, whose records are all pending until its end."""
    found: set[int] = set()
    for block in blocks:
        run: list[Instr] = []
        for one in (*block, None):
            if one is not None:
                run.append(one)
            if one is None or one.op[0] in ("bra", "brx", "ret", "exit", "trap"):
                found |= _of_run(run, without, recording)
                run = []
    return found


def _of_run(run: Sequence[Instr], without: frozenset[str], recording: Recording) -> set[int]:
    pairs: set[int] = set()
    ended: list[str] = []
    before, again = "", False
    for one in run:
        mark = one.mark if one.mark is not None and one.mark.name not in without else None
        if mark is not None:
            again = again or mark.name in ended
            if mark.act == "enter" and before == "exit":
                pairs.add(one.line)
            if mark.act in ("exit", "instant", "counter"):
                ended.append(mark.name)
        before = mark.act if mark is not None else ""
    waits = len(ended) <= recording.pending and not again
    return pairs if len(pairs) >= 3 and waits else set()


def halves(kind: str | None, bits: int) -> tuple[int, int]:
    """The record's word, and that of the row before it, as docs/design/protocol.md says."""
    low, high = bits & M32, bits >> 32
    if kind == "f64":
        return high, low
    return (low, high ^ (M32 if kind == "i64" and low >> 31 else 0)) if kind in ("i64", "u64") else (bits, 0)


def ideal(
    launch: Launch,
    recording: Recording,
    without: frozenset[str] = frozenset(),
    repeated: Collection[int] | None = None,
) -> dict[tuple[int, int, int, int], Ideal]:
    """Run the un-lowered text of `launch`; the expected result of each thread, by Thread.key. Ignores marks of the
    names in `without`. repeated: lines of the marks whose clock is the last one that was read for a mark; None for
    what the lowering of the text does."""
    found: dict[tuple[int, int, int, int], Ideal] = {}

    def now(thread: Thread) -> int:
        return thread.clock() if recording.clock == "cycles" else thread.globaltimer()

    def anchor(thread: Thread) -> tuple[int, int, int]:
        before, time, after = thread.clock(), thread.globaltimer(), thread.clock()
        return before, time, min((after - before) & M64, M32)

    instructions = launch.program.module.kernels[launch.kernel].blocks
    marked = [one.mark for block in instructions for one in block if one.mark is not None]
    kinds = {mark.name: mark.type for mark in marked if mark.type is not None}
    shared = begins_right_behind_ends(instructions, without, recording) if repeated is None else set()

    def read(one: Ideal, line: int) -> int:
        one.clock = one.clock if line in (repeated or ()) else now(one.thread)
        return one.clock

    def on_mark(thread: Thread, mark: Any, value: int | None, held: bool, line: int) -> None:
        one = found[thread.key]
        if mark.name in without:
            return
        spec = parse_strategy(mark.strategy or recording.strategy.spec)
        elects = isinstance(spec, Elected) and spec.any_lane
        if mark.act != "exit":
            held = held and not (elects and thread.lane in thread.followers)
        if mark.act == "enter":
            begin = one.ended if line in shared else read(one, line)
            one.open.setdefault(mark.name, []).append((begin, value, held))
            return
        if mark.act == "pin":
            return
        if mark.act == "exit":
            start, value, held = one.open[mark.name].pop()
            end = one.ended = read(one, line)
            kind = layout.Kind.SPAN if value is None else layout.Kind.SPAN_VALUE
        else:
            start = end = read(one, line)
            kind = layout.Kind.INSTANT if value is None else layout.Kind.INSTANT_VALUE
            kind = layout.Kind.COUNTER if mark.act == "counter" else kind
        if held and (elects or spec.records(thread.warp, thread.lane)):
            one.late = one.late or elects
            number, ticks = layout.record_id(mark.name, kind), (start, end)
            word, more = halves(kinds.get(mark.name), 0 if value is None else value)
            if more:
                one.events.append(Event(start & M32, number & ~15 | layout.MORE, end & M32, more, ticks))
                number |= layout.HAS_MORE
            one.events.append(Event(start & M32, number, end & M32, word, ticks))

    launch.on_mark = on_mark
    threads = launch.start()
    for thread, _ in threads:
        found[thread.key] = Ideal(thread, anchor(thread))
    run(threads, "turns")
    for thread, _ in threads:
        found[thread.key].end = anchor(thread)
    return found
