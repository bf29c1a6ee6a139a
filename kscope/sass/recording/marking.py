"""Inserts the instructions of marks: at their spots, or a few kernel instructions later where they need time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..checks import hazards
from ..checks.hazards import CONTROL_FLOW
from ..cubin.control_codes import Control, control, controlled
from ..cubin.insertion import New, Word
from ..cubin.instructions import BYTES, Function, Instruction
from ..encoding import writing
from ..placing import place
from ..placing.basic_blocks import LANDMARKS
from . import interleaving, registers, stall_cycles
from .deferred_records import PREDICATES, Later
from .records import Steps, Writer
from .sites import Needed, Site

STARTS = ("enter", "clock")
"""Marks that only read a clock."""
_CLOCK = 8
"""Cycles until a clock can be stored."""
_FAR = 96
"""Kernel instructions that are examined."""
_TENSOR_CORES = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA"})
_TENSORS = _TENSOR_CORES | {"WARPGROUP"}
_BATCH = 24
"""Kernel instructions around those of tensor cores."""
_WAITS = frozenset({"WARPGROUP", "BAR", "DEPBAR", "SYNCS"})
_LIMITS = frozenset({"USETMAXREG", "BRX", "RET"})
_LOUD = frozenset({"HMMA", "IMMA", "DMMA", "SHFL", "MUFU"})


@dataclass
class Marks:
    """The instructions of marks.

    Attributes:
        before: code inserted before the kernel instruction at each address.
        after: code inserted after the kernel instruction at each address.
        replaced: replacements of kernel instructions.
        holding: the replaced instructions, with the value that each holds.
    """

    before: dict[int, list[New]] = field(default_factory=dict)
    after: dict[int, list[New]] = field(default_factory=dict)
    replaced: dict[int, int] = field(default_factory=dict)
    holding: dict[int, Word] = field(default_factory=dict)


def place_marks(
    function: Function,
    sites: Sequence[Site],
    writer: Writer,
    claims: frozenset[int],
    used: frozenset[int],
    left: Mapping[int, Later],
) -> Marks:
    """Place the instructions of all marks.

    Args:
        function: the kernel without its marks.
        sites: copies of marks; those at one place in the order in which they are inserted.
        writer: writes their instructions.
        claims: the instructions before which the kernel claims its slab.
        used: registers that the kernel uses.
        left: records that are stored before an instruction, by address.
    """
    needed = registers.needed_predicates(function)
    tensors = any(one.name in _TENSOR_CORES for one in function.instructions)
    made, clocks = Marks(), dict[int, _Clock]()
    for at, some in left.items():
        predicates = Needed(needed[at], registers.calm_predicates(function, at))
        made.before[at] = list(
            stall_cycles.nops(max(_CLOCK - _cycles(function, one.spot.at, at) for one in some.sites))
        )
        made.before[at] += stall_cycles.with_least_stalls(
            writer.at(some.sites[0]).elsewhere(some, predicates), function.arch
        )
    all_writers = writer
    for number, site in enumerate(sites):
        spot, writer = site.spot, all_writers.at(site)
        made.replaced |= writer.replaced(site)
        made.holding |= dict.fromkeys(writer.replaced(site), Word(site.record.key, "held"))
        known = clocks.get(spot.at)
        # a part with few registers ends the instructions that are examined, and uses none of these
        lent = not site.low and bool(used & frozenset(range(site.quad, site.quad + registers.RECORD)))
        ahead, open_end = _ahead(function, sites[number:], claims, known.at if known else spot.at)
        ahead = [] if lent else ahead
        on, many = _on(writer, site, ahead, needed)
        delay = 0
        if on is None and tensors and not site.guard:
            on, delay = _later(ahead, needed)
            many = len(ahead)
        if writer.flexible(site) and on is not None:
            open_end = open_end and many == len(ahead)
            ahead = ahead[:many]
            others = frozenset(other.spot.next for other in sites[number + 1 :]) - {spot.at}
            around = _Around(ahead, list(_quiet(ahead, others)), open_end if tensors else None, delay)
            _spread(site, writer.steps(site, on), around, made.before, clocks, function.arch)
            continue
        here = (made.after if spot.after else made.before).setdefault(known.at if known else spot.at, [])
        if spot.behind_wait and not here:
            here.append(writing.new("NOP", Control(stall=place.STOPS)))
        predicates = Needed(needed[spot.next], registers.calm_predicates(function, spot.next))
        if spot.guard and spot.guard.lstrip("@!") not in predicates.calm:
            here.append(writing.new("NOP", Control(stall=hazards.GUARD)))
        here.extend(writer.inserted(site, predicates))
        if known:
            known.last = None
    return made


@dataclass
class _Clock:
    """The last clock that was read for the marks of one spot.

    Attributes:
        at: the kernel instruction before which it is inserted.
        last: its position among the inserted ones there; None if others must follow all of these.
        stored: registers of records that are stored after it.
    """

    at: int
    last: int | None
    stored: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Around:
    """The kernel instructions that the instructions of a site may follow.

    Attributes:
        ahead: all of them.
        quiet: those that only compute, which its clock may follow.
        open_end: no other mark needs the place after these: the block ends, or the rest was not examined. None in a
            kernel without tensor cores.
        delay: number of kernel instructions before its store, because no predicate is free earlier; or 0.
    """

    ahead: Sequence[Instruction]
    quiet: Sequence[Instruction]
    open_end: bool | None
    delay: int = 0


def _cycles(function: Function, start: int, end: int) -> int:
    """Least cycles of the kernel's instructions from one address to another."""
    if not start < end < start + _CLOCK * BYTES:
        return _CLOCK
    return sum(max(1, one.control.stall) for one in function.instructions[start // BYTES : end // BYTES])


def _on(
    writer: Writer, site: Site, ahead: Sequence[Instruction], needed: Mapping[int, frozenset[str]]
) -> tuple[int | None, int]:
    """The predicate of the lanes that record: the kernel's, or the one that is free after most of the kernel
    instructions that the site's may follow; and the number of these. None if there is none.
    """
    if site.act in STARTS or site.later or (writer.state.on is not None and not site.guard):
        return writer.state.on or 0, len(ahead)
    taken = needed[site.spot.at] | {f"P{writer.state.on}"}
    free = [f"P{number}" for number in range(PREDICATES) if f"P{number}" not in taken]
    for many, one in enumerate(ahead):
        left = [name for name in free if name not in needed[one.at + BYTES] | one.writes | one.reads]
        if not left:
            return (int(free[0][1:]), many) if free else (None, 0)
        free = left
    return (int(free[0][1:]), len(ahead)) if free else (None, 0)


def _later(ahead: Sequence[Instruction], needed: Mapping[int, frozenset[str]]) -> tuple[int | None, int]:
    """A predicate that is free as late as a mark's store may come, and the number of kernel instructions before
    that.
    """
    for many in range(len(ahead), 0, -1):
        busy = needed[ahead[many - 1].at + BYTES]
        free = [number for number in range(PREDICATES) if f"P{number}" not in busy]
        if free and not any(one.name in _TENSORS for one in ahead[:many]):
            return free[0], many
    return None, 0


def _spread(
    site: Site,
    steps: Steps,
    around: _Around,
    before: dict[int, list[New]],
    clocks: dict[int, _Clock],
    arch: int,
) -> None:
    """Add the instructions of a flexible site.

    After a barrier or a wait, kernel instructions that only compute fill the time until it has stopped the warp. Marks
    of one spot read their clocks one after the other, as far as their registers allow.
    """
    read, early, follows = steps.read, steps.early, steps.follows
    ahead, quiet, open_end = around.ahead, around.quiet, around.open_end
    spot, many, known = site.spot, 0, clocks.get(site.spot.at)
    starts = [known.at if known else spot.at, *(one.at + BYTES for one in ahead)]
    if known is not None and known.last is not None and site.quad not in known.stored:
        known.last += 1
        before[known.at].insert(known.last, read)
    else:
        stops = place.STOPS if spot.behind_wait and known is None else 0
        groups = interleaving.spread([read], quiet if stops else (), arch, stops)
        many = next(place for place, group in enumerate(groups) if group)
        here = before.setdefault(starts[many], [])
        here.extend(groups[many])
        known = clocks[spot.at] = _Clock(starts[many], len(here) - 1)
    left = ahead[many:]
    late = (around.delay - many if around.delay else _late(left, open_end)) if follows else 0
    most = late if late or any(one.name in _TENSORS for one in left) else len(left)
    bounds = [(0, 0), *[_bounds(site, left)] * len(early), *[(late, most)] * len(follows)]
    groups = interleaving.spread([read, *early, *follows], left, arch, bounds=bounds)
    for start, group in zip(starts[many:], groups, strict=True):
        for new in group:
            if new.seen is read.seen:  # with the cycles that it takes
                assert known.last is not None
                before[known.at][known.last] = replace(before[known.at][known.last], word=_with(read, new))
            else:
                before.setdefault(start, []).append(new)
    if site.act not in STARTS and not site.later:
        known.stored.add(site.quad)


def _bounds(site: Site, ahead: Sequence[Instruction]) -> tuple[int, int]:
    """The least and the most kernel instructions before those that read the operands of the mark's instruction: after
    that one, while the operands stay.
    """
    source = site.spot.source
    if source is None or not ahead or ahead[0].at != source.at:
        return 0, 0
    used = source.read | {source.guard.lstrip("@!")}
    return 1, next((place for place, one in enumerate(ahead) if place and one.writes & used), len(ahead))


def _late(ahead: Sequence[Instruction], open_end: bool | None) -> int:
    """Number of kernel instructions before a record's store in a kernel with tensor cores; 0 for as few as its clock
    needs.

    A store before these, or before copies, delays them, even one that does not run. So it precedes the last wait that
    the next record leaves room for, or the end of the block.
    """
    if open_end is None:
        return 0
    waits = [number for number, one in enumerate(ahead) if one.name in _WAITS and one.code != "WARPGROUP.ARRIVE"]
    if open_end:
        return len(ahead) if not any(one.name in _TENSORS for one in ahead[-_BATCH:]) else max([0, *waits])
    return max([0, *waits])


def _with(read: New, new: New) -> int:
    """Adds the cycles of a further clock read to one."""
    return controlled(read.word, replace(control(read.word), stall=control(new.word).stall))


def _ahead(
    function: Function, sites: Sequence[Site], claims: frozenset[int], start: int
) -> tuple[list[Instruction], bool]:
    """The kernel instructions that the first site's instructions may follow: those before the next mark that stores, or
    uses its registers. And True if something else than such a mark ends them.
    """
    site, *others = sites
    targets, found = function.targets, list[Instruction]()
    for one in function.instructions[start // BYTES :][:_FAR]:
        entered = one.at != start and (one.at in targets or one.at in claims)
        if any(
            (other.spot.next in (one.at, site.spot.at) and (other.act not in STARTS or other.quad == site.quad))
            or (one.at in (other.spot.value, other.spot.when) and other.quad == site.quad)
            for other in others
        ):
            return found[:-1] if entered and one.at in targets else found, False
        if entered or one.name in CONTROL_FLOW or one.name in _LIMITS:
            if entered and one.at in targets:  # code after the last instruction is also branched to
                found = found[:-1]
            break
        found.append(one)
    return found, True


def _quiet(ahead: Sequence[Instruction], marks: frozenset[int]) -> Iterator[Instruction]:
    """The instructions up to the first that does more than computing, waits, or has other marks before it."""
    if any(one.name in _TENSORS for one in ahead):
        return
    for one in ahead:
        if one.at in marks or one.name in LANDMARKS or one.name in _LOUD or one.control.waits:
            return
        yield one
