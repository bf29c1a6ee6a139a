"""A launch of a kernel that is recorded in its machine code, and what it must leave: judged as kernels in PTX are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ptxvm import judge, oracle
from ptxvm.host import Host, Pool, Ring, Slab
from ptxvm.machine import Clocks, Grid, Launch
from ptxvm.oracle import Ideal

from kscope import ptx
from kscope.capture import layout, wire
from kscope.capture.clock_rows import Layouts
from kscope.capture.expand import Expander
from kscope.capture.model import KernelMeta, ModuleMeta, RowLayout
from kscope.instrument.subset import Subset
from kscope.machine_code import control_words
from kscope.marks.strategies import AllThreads, parse_strategy
from kscope.sass.cubin.instructions import BYTES, Function
from kscope.sass.placing.labels import RECORDED

from .machine import Warp, warps
from .values import M32

ROOMY = Pool((Ring(14), Ring(14), Ring(14)))
OUT_BYTES = 1 << 14
_SHAPE, _CLOCKS, _ALL = Grid((2, 1, 1), (128, 1, 1)), Clocks(steps=(3, 1, 70)), Subset()


@dataclass(frozen=True)
class Case:
    """A launch.

    Attributes:
        text: PTX with marks, of one kernel with the parameters (address, number).
        function: the machine code that records them.
        kernel: what the texts of the protocol depend on.
        number: the second parameter.
        size: records of a slab whose size each warp reads.
        bound: the module is armed.
        layouts: of the rows with three clocks that it writes.
        shared: its marks, by their number, whose clock is that of the mark before.
        memory: the initial contents of the kernel's memory; zeros after it.
        kind: the class of its warps.
        cubin: the kernel's, if it moves the control block's address: it is loaded with that.
    """

    text: str
    function: Function
    kernel: ptx.Kernel
    number: int
    shape: Grid = _SHAPE
    pool: Pool = ROOMY
    subset: Subset = _ALL
    size: int = 16
    epoch: int = 7
    bound: bool = True
    smid: int = 1
    grid_id: int = 0x123456789
    clocks: Clocks = _CLOCKS
    layouts: tuple[RowLayout, ...] = ()
    shared: frozenset[int] = frozenset()
    memory: bytes = b""
    kind: type[Warp] = Warp
    cubin: bytes = b""


@dataclass(frozen=True)
class Outcome:
    """The result of a launch."""

    host: Host
    warps: list[Warp]
    slabs: list[Slab]
    ideals: dict[judge.Key, Ideal]
    rows: list[Slab]


def launched(case: Case) -> Outcome:
    """Run a case, and what its marks mean."""
    host = _host(case)
    launch = _launch(case, host)
    started = warps(
        loaded(case, host),
        host.memory,
        [thread for thread, _ in launch.start()],
        case.shape,
        launch.params[0].to_bytes(8, "little") + case.number.to_bytes(8, "little"),
        (host.control.base if case.bound else 0).to_bytes(8, "little"),
        case.kind,
    )
    for warp in started:
        warp.run()
    plain = _launch(case, _host(case))
    ideals = oracle.ideal(plain, case.kernel.recording, repeated=_lines(case, plain))
    rows = host.slabs()
    return Outcome(host, started, [_expanded(case, slab) for slab in rows], ideals, rows)


def loaded(case: Case, host: Host) -> Function:
    """The kernel as it is loaded: its moves have the control block's address."""
    code, address = list(case.function.instructions), host.control.base if case.bound else 0
    for one in control_words.moves(case.cubin):
        for at, word in (
            ((one.low, address & M32), (one.high, address >> 32)) if one.kernel == case.function.name else ()
        ):
            move = code[at // BYTES]
            assert (move.code, move.operands[1]) == ("MOV", "0x0")
            code[at // BYTES] = replace(move, operands=(move.operands[0], hex(word)))
    return replace(case.function, instructions=tuple(code))


def _lines(case: Case, plain: Launch) -> set[int]:
    """The lines of the marks that share a clock."""
    blocks = plain.program.module.kernels[plain.kernel].blocks
    lines = sorted(one.line for block in blocks for one in block if one.mark is not None and one.mark.act in RECORDED)
    return {lines[mark] for mark in case.shared}


def _expanded(case: Case, slab: Slab) -> Slab:
    """A slab with the records that the host makes of its rows."""
    if slab.entry is None:
        return slab
    kernel = KernelMeta("kernel", int(slab.entry["kernel"]), 2)
    head, entry = np.array([slab.head], wire.HEAD), np.array([slab.entry], wire.LAUNCH)
    layouts = Layouts([ModuleMeta("", (kernel,), (), layouts=case.layouts)])
    units = np.concatenate([head.view(np.uint32), slab.ring.view(np.uint32)]).reshape(-1, wire.UNIT // 4)
    at = np.zeros(1, np.uint32)
    lines = Expander(case.epoch, layouts=layouts).expand(units, at.astype(np.int64), entry, at, at)
    header = lines[: layout.HEADER_LINES].reshape(-1).view(layout.HEADER)[0]
    ring, written = lines[layout.HEADER_LINES :].reshape(-1).view(layout.RECORD), int(header["count"])
    kept = np.roll(ring, -(written % len(ring)))[int(header["anchors"]) :] if written > len(ring) else ring
    head["count"] = written = written - int(header["anchors"])
    return replace(slab, head=head[0], ring=np.roll(kept, written % len(kept)) if written > len(kept) else kept)


def _host(case: Case) -> Host:
    return Host(case.pool, case.subset, case.epoch, case.size)


def _launch(case: Case, host: Host) -> Launch:
    out = host.memory.allocate("out", OUT_BYTES)
    out.data[: len(case.memory)] = case.memory
    x, y, z = case.shape.grid
    blocks = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    host.launched(case.shape, blocks)
    program = host.load(case.text, bound=case.bound)
    (name,) = program.module.kernels
    parameters = [out.base, case.number]
    return Launch(program, host.memory, name, case.shape, parameters, blocks, None, lambda _: case.smid, case.grid_id,
                  case.clocks)  # fmt: skip


def judged(case: Case) -> Outcome:
    """The same, and every property of judge.py; raises judge.Wrong."""
    found = launched(case)
    host, slabs, kernel = found.host, found.slabs, case.kernel
    log2 = case.size.bit_length() - 1 if kernel.sized else kernel.log2_records
    (strategy,) = map(parse_strategy, kernel.specs)
    chosen = {
        key
        for key, one in found.ideals.items()
        if case.bound
        and case.epoch
        and strategy.records(one.thread.warp, one.thread.lane)
        and oracle.sampled(case.subset, case.shape, one.thread)
    }
    if strategy.spec != AllThreads().spec:  # whose claims ptxas gathers: one atomic for the lanes of a warp
        judge.stores_stay_inside_claimed_slabs(host, wire.slab_units(log2))
        judge.claims_account_for_every_unit(host, found.rows, wire.slab_units(log2), chosen)
        judge.heads_tell_where_the_lane_was(host, slabs, found.ideals)
    judge.require({slab.key for slab in slabs} <= chosen, "a slab of a lane that does not record")
    flags = layout.FLAG_LANES * (strategy.spec == AllThreads().spec)
    about = (wire.VARYING if kernel.sized else log2) | flags << layout.FLAG_SHIFT - layout.LOG2_SHIFT
    number = sum(int(word, 0) << 32 * place for place, word in enumerate(kernel.id))
    first = found.ideals[0, 0, 0, 0]
    judge.entries_describe_the_launch(host, slabs, first, case.shape, kernel.recording, number, about)
    judge.records_are_the_marks_in_order(slabs, found.ideals, kernel.recording)
    return found
