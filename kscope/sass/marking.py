"""Where the instructions of marks stand: at their spots, and what needs time a few own instructions later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import hazards, place, registers, spreading, writing
from .code import LANDMARKS
from .control import Control, control, controlled
from .hazards import CONTROL_FLOW
from .insert import New
from .instructions import BYTES, Function, Instruction
from .records import PREDICATES, Needed, Site, Writer


_FAR = 32
"""Own instructions that are looked at."""
_LIMITS = frozenset({"USETMAXREG", "BRX", "RET"})
_LOUD = frozenset({"HGMMA", "IGMMA", "QGMMA", "BGMMA", "HMMA", "IMMA", "DMMA", "SHFL", "MUFU"})


@dataclass
class Marks:
    """The instructions of marks.

    Attributes:
        before: by the address of an own instruction, what stands in front of it.
        after: by the address of an own instruction, what stands behind it.
        replaced: other instructions in place of own ones.
    """

    before: dict[int, list[New]] = field(default_factory=dict)
    after: dict[int, list[New]] = field(default_factory=dict)
    replaced: dict[int, int] = field(default_factory=dict)


def placed(function: Function, sites: Sequence[Site], writer: Writer, claim: int, used: frozenset[int]) -> Marks:
    """Place the instructions of all marks.

    Args:
        function: the kernel without its marks.
        sites: copies of marks, in the order in which those of one place stand there.
        writer: writes their instructions.
        claim: the instruction in front of which the kernel claims its slab.
        used: registers that the kernel uses.
    """
    needed = registers.needed_predicates(function)
    made, clocks = Marks(), dict[int, _Clock]()
    for number, site in enumerate(sites):
        spot = site.spot
        made.replaced |= writer.replaced(site)
        lent = bool(used & frozenset(range(site.quad, site.quad + registers.RECORD)))
        ahead = [] if lent else list(_ahead(function, sites[number:], claim))
        if writer.flexible(site) and (on := _on(writer, site, ahead, needed)) is not None:
            _spread(site, writer, on, ahead, made.before, clocks)
            continue
        here = (made.after if spot.after else made.before).setdefault(spot.at, [])
        if spot.behind_wait and not here:
            here.append(writing.new("NOP", Control(stall=place.STOPS)))
        predicates = Needed(needed[spot.next], registers.calm_predicates(function, spot.next))
        if spot.guard and spot.guard.lstrip("@!") not in predicates.calm:
            here.append(writing.new("NOP", Control(stall=hazards.GUARD)))
        here.extend(writer.inserted(site, predicates))
        clocks.pop(spot.at, None)
    return made


@dataclass
class _Clock:
    """The last clock that was read for the marks of one spot: the own instruction in front of which it stands, and its
    place among the inserted ones there.
    """

    at: int
    place: int


def _on(writer: Writer, site: Site, ahead: Sequence[Instruction], needed: Mapping[int, frozenset[str]]) -> int | None:
    """The predicate of the lanes that record: the kernel's, or one that is free up to the last of the own instructions
    that the site's may stand behind. None if there is none.
    """
    if writer.state.on is not None or site.act == "enter":
        return writer.state.on or 0
    busy = needed[site.spot.at].union(*(needed[one.at + BYTES] | one.writes | one.reads for one in ahead))
    return next((number for number in range(PREDICATES) if f"P{number}" not in busy), None)


def _spread(
    site: Site,
    writer: Writer,
    on: int,
    ahead: Sequence[Instruction],
    before: dict[int, list[New]],
    clocks: dict[int, _Clock],
) -> None:
    """Add the instructions of a flexible site.

    Behind a barrier or a wait, own instructions that only compute take the time until it has stopped the warp. Marks of
    one spot read their clocks one behind the other.
    """
    read, follows = writer.steps(site, on)
    spot, many = site.spot, 0
    starts = [spot.at, *(one.at + BYTES for one in ahead)]
    known = clocks.get(spot.at)
    if known is None or site.waits:
        stops = place.STOPS if spot.behind_wait and known is None else 0
        quiet = list(_quiet(ahead)) if stops else []
        groups = spreading.spread([read], quiet, stops)
        many = next(place for place, group in enumerate(groups) if group)
        before.setdefault(starts[many], []).extend(groups[many])
        known = clocks[spot.at] = _Clock(starts[many], len(before[starts[many]]) - 1)
    else:
        known.place += 1
        before[known.at].insert(known.place, read)
        many = starts.index(known.at) if known.at in starts else 0
    assert known is not None
    for start, group in zip(starts[many:], spreading.spread([read, *follows], ahead[many:]), strict=True):
        for new in group:
            if new.seen is read.seen:  # with the cycles that it takes
                before[known.at][known.place] = replace(before[known.at][known.place], word=_with(read, new))
            else:
                before.setdefault(start, []).append(new)


def _with(read: New, new: New) -> int:
    """A clock read with the cycles of another one behind it."""
    return controlled(read.word, replace(control(read.word), stall=control(new.word).stall))


def _ahead(function: Function, sites: Sequence[Site], claim: int) -> Iterator[Instruction]:
    """The own instructions that the first site's instructions may stand behind: those in front of the next mark that
    stores, or uses its registers.
    """
    site, *others = sites
    targets = function.targets
    for one in function.instructions[site.spot.at // BYTES :][:_FAR]:
        stops = any(
            other.spot.next == one.at and (other.act != "enter" or other.quad == site.quad) for other in others
        )
        entered = one.at != site.spot.at and (one.at in targets or one.at == claim)
        if stops or entered or one.name in CONTROL_FLOW or one.name in _LIMITS:
            return
        yield one


def _quiet(ahead: Sequence[Instruction]) -> Iterator[Instruction]:
    """The instructions up to the first that does more than computing, or waits."""
    for one in ahead:
        if one.name in LANDMARKS or one.name in _LOUD or one.control.waits:
            return
        yield one
