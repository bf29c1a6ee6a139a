"""Adds recording to the machine code of a kernel: claim at the entry, records at its marks, end at its exits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ... import ptx
from ...capture.model import RowLayout
from ...errors import UnsupportedError
from ...machine_code import control_words, elf
from ...marks.grammar import Mark
from ...marks.strategies import Elected
from ..checks import hazards, kernel_check, register_limits
from ..cubin import insert, reading, sections
from ..cubin.control_codes import Control, control
from ..cubin.insertion import Insertion, New
from ..cubin.instructions import BYTES, Function
from ..encoding import forms
from ..placing import basic_blocks, labels, mark_order, pipeline, place
from . import (
    borrowed_registers,
    claiming,
    deferring,
    early_clocks,
    ending,
    fragments,
    instruction_regions,
    marking,
    partitions,
    records,
    regions,
    register_choice,
    registers,
    released_registers,
    rows,
    sites,
    stores_in_flight,
)

Assembler = Callable[[str, bool], bytes]
"""ptxas: assembles a text to a cubin. The second argument is True if it needs a line table."""
_PIPELINES = frozenset({90})
"""Architectures with known barrier instructions."""
_RESULT, _ANY, _MOVES = 16, 255, 5
"""The first bit of an instruction's result register, the mask of a register, and the cycles of a move."""


@dataclass(frozen=True)
class Recorded:
    """A cubin that records.

    Attributes:
        data: the cubin.
        registers: of a thread, before and now.
        warps: that an SM has registers for, before and now.
        marks: the marks that record, in the order of the text.
        spots: places of their copies.
        layouts: of its rows of several records.
        shared: marks whose clock is also read for an earlier one.
    """

    data: bytes
    registers: tuple[int, int]
    warps: tuple[int, int]
    marks: tuple[Mark, ...]
    spots: tuple[mark_order.Spot, ...]
    layouts: tuple[RowLayout, ...] = ()
    shared: Mapping[int, int] = field(default_factory=dict)


def record_kernel(
    text: str,
    kernel: ptx.Kernel,
    assemble: Assembler,
    name: str = "",
    others: bytes | None = None,
    blocks: int | None = None,
    moved: bool = False,
) -> Recorded:
    """Assemble a module with marks without them, and insert what records them.

    The text is assembled as it is, where marks are comments, and once more with labels. Both give the same code, but
    only the first one has the line table of the user's source. Values and predicates of marks that are in registers are
    held up to their marks by instructions that are replaced, see labels.py.

    Args:
        text: PTX with marks, and with the module's symbols.
        kernel: the options of the protocol's code.
        assemble: ptxas, which may be called in threads.
        name: the kernel's symbol; empty: the only kernel with marks.
        others: the text's cubin in which other kernels record already; None if no kernel does.
        blocks: that fit on an SM without regard to registers; None if unknown.
        moved: the kernel moves the control block's address, which control_words.patched() writes into the copy that is
            loaded; else it loads it from the module's constant.

    Returns:
        The cubin, checked.

    Raises:
        UnsupportedError: the kernel is not supported; the message says why.
    """
    labeled = labels.labeled(text, name)
    kernel = _of_lane_0(replace(kernel, anchored=False), labeled)
    _check_options(kernel)
    regions.check(labeled, kernel.specs[0])
    found, paired = regions.records(labeled), regions.overlapping_records(basic_blocks.Text(labeled))
    # the claim is assembled, and read, with the labeled text: each call of the tools costs half a second
    with ThreadPoolExecutor(2) as pool:
        plain = None if others is not None else pool.submit(assemble, labeled.plain, False)
        tagged = assemble(labeled.text + fragments.text(kernel), True)
        data = others if plain is None else plain.result()
    assert data is not None
    file, labeled_file = elf.read(data), elf.read(tagged)
    read = {one.name: one for one in reading.functions(tagged)}
    function = read[labeled.kernel.name]
    claim = fragments.read(labeled_file, read[fragments.NAME])
    sections.check(file, function)
    _check_same_code(file, labeled_file, function)
    if 0 in function.targets:
        raise UnsupportedError(f"{function.name} runs its first instruction again")
    machine = basic_blocks.Machine(function, labels.statements(labeled_file, function, labeled))
    spots = place.spots(basic_blocks.Text(labeled), machine)
    machine = pipeline.Pipeline(basic_blocks.Text(labeled), machine).relabeled
    of_pipeline = _of_pipeline(labeled)
    plan = rows.planned(basic_blocks.Text(labeled), machine, found, spots, paired, kernel)
    plan = deferring.divided(machine, plan, of_pipeline)
    before, threads = register_choice.counts(file, function)
    spans = register_choice.spans(plan, function)
    free = registers.Pool(function, kernel.sized, plan.counts, fragments.is_one_lane(kernel), spans)
    together = plan.together | borrowed_registers.Lender(function).overlapping(spans)
    fitting = register_choice.Fitting(threads, function.arch, blocks)
    apart = deferring.candidates(machine, plan.placed, of_pipeline)
    chosen = register_choice.choose_registers(free, plan.records, together, apart, before, fitting)
    most = min(fitting.most(max(before, chosen.count)), free.fewest + registers.EXTRA)
    stores = min((one.spot.next for one in plan.placed if one.act not in marking.STARTS), default=function.size)
    sites = [_site(labeled, one, chosen, machine) for one in plan.placed]
    uses = [stores_in_flight.Use(one.spot, one.act, one.quad) for one in sites if one.act != "clock"]
    waiting = stores_in_flight.waiting_marks(function, uses)
    sites = [replace(one, waits=one.spot in waiting) for one in sites]
    fewest = register_limits.fewest_registers(function)
    highest = fitting.most(max(before, chosen.count))
    constant = control_words.offset(file)
    address = None if moved else constant
    in_place = deferring.Deferral(sites, chosen, {}, frozenset())

    def finished(deferral: deferring.Deferral, parted: bool = False) -> Recorded:
        chosen, state = deferral.chosen, deferral.chosen.state
        sites = early_clocks.with_early_clocks(deferral.sites, chosen, free.busy, most)
        if parted:
            claims = partitions.place_claims(
                machine, claim, kernel, chosen, sites, deferral.stores.keys(), address, fewest, highest
            )
        else:
            claims = (claiming.place_claim(function, claim, kernel, chosen, _opened(sites), stores, address, most),)
        end = ending.end(state, records.last(state, kernel.last))
        used = max(*(one.highest for one in claims), ending.highest(end) if state.extra is not None else 0)
        used = max(used, *(one.aside or 0 for one in sites), 0)
        count = max(before, chosen.count, used + 1 + registers.EXTRA)
        controls, put = dict[int, Control](), dict[int, list[New]]()
        put[0] = [*claims[0].begin]
        put.setdefault(claims[0].loaded, []).extend(claims[0].load)
        for where in claims:
            put.setdefault(where.at, []).extend(where.test)
        tested = [len(put[where.at]) for where in claims]
        writer = records.Writer(state, records.last(state, kernel.last), chosen.low)
        made = marking.place_marks(
            function, sites, writer, frozenset(one.at for one in claims), free.busy, deferral.stores
        )
        if not deferring.in_order(deferral, made.before):
            raise UnsupportedError("a record would be stored in front of an earlier one")
        for at, some in made.before.items():
            put.setdefault(at, []).extend(some)
        if chosen.low is not None and chosen.narrow is not None:
            put.setdefault(chosen.narrow.begin, []).extend(released_registers.moves(state, chosen.low))
            for at in chosen.narrow.ends:
                put[at] = [*released_registers.moves(chosen.low, state), *put.get(at, [])]
        for at in chosen.waits:
            put.setdefault(at, []).append(state.new("NOP", Control(stall=1, waits=frozenset({state.scoreboard}))))
        for one in function.instructions:
            if one.name == "EXIT":
                put.setdefault(one.at, []).extend(ending.jump_to_end(function, one, state))
                controls |= ending.read_before(function, one.at, state, made.replaced)
        controls |= _counted(function, put, controls, made.replaced)
        controls |= _moved(put, made.replaced)
        insertion = Insertion(
            put,
            made.after,
            [
                *(
                    new
                    for where, many in zip(claims, tested, strict=True)
                    for new in claiming.with_return(where, put, many)
                ),
                *end,
                *(new for where in claims for new in where.aside),
            ],
            registers=count,
            attributes=claim.stack,
            controls=controls,
            replaced=made.replaced,
        )
        out = insert.inserted(data, function, insertion)
        kernel_check.check(out, function, insertion, made.holding)
        out = instruction_regions.with_regions(out, insertion, machine, basic_blocks.Text(labeled))
        out = _noted(out, function, insertion)
        layouts = (*plan.layouts, *deferral.layouts)
        warps = (register_choice.warps(before, function.arch), register_choice.warps(count, function.arch))
        return Recorded(out, (before, count), warps, labeled.marks, spots, layouts, plan.shared)

    for kinds in deferring.ALL_KINDS:
        deferral = deferring.planned(machine, sites, chosen, free.busy, fewest, highest, kinds, rows.able(kernel))
        for parted in (True, False) if deferral.stores else ():
            with suppress(UnsupportedError):
                return finished(deferral, parted)
    return finished(in_place)


def _check_same_code(file: elf.Elf, labeled: elf.Elf, function: Function) -> None:
    """Refuse a kernel whose code the labels changed."""
    plain, other = (one.find(function.section) for one in (file, labeled))
    if plain is None or other is None or plain.content != other.content:
        raise UnsupportedError(f"{function.name}: this ptxas makes other code of other line numbers")


def _noted(data: bytes, function: Function, insertion: Insertion) -> bytes:
    """The cubin with a note about the moves of the control block's address, if it has any."""
    found = {new.half: at for at, new in insert.inserted_addresses(function, insertion).items() if new.half}
    if not found:
        return data
    return control_words.noted(data, control_words.Moves(function.name, found["low"], found["high"]))


def _of_lane_0(kernel: ptx.Kernel, labeled: labels.Labeled) -> ptx.Kernel:
    """The kernel with records of lane 0 only: lane 0 also records marks of a pipeline that any lane may record, see
    pipeline.py.
    """
    if not any(map(pipeline.is_pipeline, labeled.marks)):
        return kernel
    own = kernel.recording.strategy.spec
    if kernel.arch not in _PIPELINES:
        raise UnsupportedError(f'auto="pipeline" is not supported on sm_{kernel.arch}')
    if own != Elected().spec:
        raise UnsupportedError(f'auto="pipeline" with the strategy {own} is not supported')
    return replace(kernel, specs=(own,), pins=False)


def _of_pipeline(labeled: labels.Labeled) -> frozenset[int]:
    """The numbers of the marks of a pipeline."""
    return frozenset(number for number, mark in enumerate(labeled.marks) if pipeline.is_pipeline(mark))


def _check_options(kernel: ptx.Kernel) -> None:
    options = kernel.recording
    for what, known in (
        (f"fill={options.fill!r}", options.fill == "ring"),
        (f"clock={options.clock!r}", options.clock == "cycles"),
        (f"the strategies {', '.join(kernel.specs)}", len(kernel.specs) == 1 and not kernel.late),
        (f"sm_{kernel.arch}", forms.has_forms(kernel.arch)),
    ):
        if not known:
            raise UnsupportedError(f"{what} is not supported")


def _site(
    labeled: labels.Labeled, placed: rows.Placed, chosen: registers.Allocation, machine: basic_blocks.Machine
) -> sites.Site:
    spot, quad = placed.spot, chosen.quads[placed.record.key]
    statement = labeled.recording[spot.mark]
    held = tuple(None if at is None else machine.function.instructions[at // BYTES] for at in (spot.value, spot.when))
    value, when = labeled.constants(statement)
    both, own = (held[0], held[1]), quad in chosen.own
    if spot.source is not None and spot.source.constant:
        value = spot.source.fixed
    of_pipeline = pipeline.is_pipeline(labeled.marks[spot.mark])
    return sites.Site(
        placed.act, placed.record, quad, own, spot, value, when, both, True, placed.word, placed.more,
        pipeline=of_pipeline,
        low=chosen.narrow is not None and spot.at in chosen.narrow.inside,
    )  # fmt: skip


def _counted(
    function: Function, put: Mapping[int, list[New]], controls: Mapping[int, Control], replaced: Mapping[int, int]
) -> dict[int, Control]:
    """Give a kernel instruction a second cycle if the inserted one after it waits for its scoreboard."""
    found = dict[int, Control]()
    for at, some in put.items():
        if at - BYTES in replaced:  # a move has no scoreboard
            continue
        if at and some:
            code = controls.get(at - BYTES, function.instructions[at // BYTES - 1].control)
            if {code.writes, code.reads} & control(some[0].word).waits and code.stall < hazards.COUNTED:
                found[at - BYTES] = replace(code, stall=hazards.COUNTED)
    return found


def _moved(put: Mapping[int, list[New]], replaced: Mapping[int, int]) -> dict[int, Control]:
    """Give moves of a value or a predicate enough cycles if the inserted instruction after them reads the register."""
    found = dict[int, Control]()
    for at, word in replaced.items():
        some, register = put.get(at + BYTES), f"R{word >> _RESULT & _ANY}"
        if some and some[0].seen is not None and register in some[0].seen.reads:
            code = control(word)
            found[at] = replace(code, stall=max(code.stall, _MOVES))
    return found


def _opened(sites: Iterable[sites.Site]) -> dict[int, frozenset[int]]:
    """The registers that hold a part of an open record, by the address at which they are written."""
    found = defaultdict[int, frozenset[int]](frozenset)
    for site in sites:
        enters = site.spot.next if site.act in marking.STARTS else None
        for at in (site.spot.value, site.spot.when, enters):
            if at is not None:
                found[at] |= site.early
    return found
