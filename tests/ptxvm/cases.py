"""hypothesis: whole cases (recording, pool, launch, order), and how a case is run and judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from kscope.capture import layout, wire
from kscope.instrument.recording import AUTO_RECORDS, Recording, log2_records
from kscope.instrument.subset import Subset
from kscope.lowering.lowered import Lowered
from kscope.lowering.plan import lower
from kscope.marks.grammar import Mark
from kscope.marks.strategies import ANY_LANE, AllThreads, Elected, Lane0Warp0, Strategy, TargetWarp

from . import judge, oracle
from .host import Host, Pool, Ring, Slab
from .kernels import kernels
from .machine import Clocks, Dim, Grid, Launch, Order, Started, run
from .oracle import Ideal
from .writing import KernelText

OUT_BYTES = 64
Key = tuple[int, int, int, int]


@dataclass(frozen=True)
class Case:
    """Everything that one run depends on. Block 0 and its first thread, who writes the launch's entry, are part of
    it."""

    kernel: KernelText
    recording: Recording
    shape: Grid
    blocks: tuple[Dim, ...]
    threads: tuple[int, ...]
    pool: Pool
    subset: Subset = field(default_factory=Subset)
    smids: tuple[int, ...] = (0,)
    grid_id: int = 1
    clocks: Clocks = field(default_factory=Clocks)
    order: Order = "turns"
    seed: int = 0
    garbage: int = 0
    epoch: int = 7
    bound: bool = True
    arch: str = "90"
    followers: frozenset[int] = frozenset()
    spare: bool = False
    size: int = AUTO_RECORDS
    """Records of the slabs whose size the host sets."""

    def lowered(self) -> Lowered:
        """Without anchors among the records, whose clock reads the oracle does not make."""
        found = lower(self.kernel.text(self.arch), self.recording, frontend="test", spare=self.spare)
        return replace(found, text=without_anchors(found.text))


@dataclass(frozen=True)
class Outcome:
    """The result of a run. `out`: the kernel's own output, with kscope and without."""

    case: Case
    lowered: Lowered
    host: Host
    slabs: list[Slab]
    ideals: dict[Key, Ideal]
    out: tuple[bytes, bytes]

    @property
    def marks(self) -> list[Mark]:
        """The lowered marks: those whose names pair."""
        return [mark for mark in self.case.kernel.marks if mark.name not in left_out(self.case, self.lowered)]


def without_anchors(text: str) -> str:
    """A lowered text without the anchors among its records."""
    anchor = r"\t\{ \.reg \.pred ks_q;\n\t@!ks_due bra KS_SOON;.*?KS_SOON:\n\t\}\n"
    now = r"\t\{ \.reg \.b64 ks_k; mov\.u64 ks_k, %clock64;\n"
    text = re.sub(r"\t\{ [^\n]*setp\.ne\.u32 ks_due, [^\n]*\n", "", text)
    return re.sub(anchor, "", re.sub(rf"{now}{anchor}\t\}}\n", "", text, flags=re.S), flags=re.S)


def left_out(case: Case, lowered: Lowered) -> frozenset[str]:
    """Names that are not recorded because their marks do not pair."""
    return frozenset({mark.name for mark in case.kernel.marks} - {region.name for region in lowered.meta.regions})


def launch(case: Case, host: Host, text: str) -> tuple[Launch, bytearray]:
    """The case's launch of a text on a host, and the memory that the kernel's own stores go to."""
    out = host.memory.allocate("out", OUT_BYTES)
    smid = {block: case.smids[i % len(case.smids)] for i, block in enumerate(case.blocks)}
    who = (case.shape, [out.base], case.blocks, case.threads, smid.__getitem__)
    program = host.load(text, bound=case.bound)
    made = Launch(program, host.memory, case.kernel.name, *who, case.grid_id, case.clocks, case.garbage)
    made.followers = case.followers
    host.launched(case.shape, case.blocks)
    return made, out.data


def host_of(case: Case) -> Host:
    """A device for a case."""
    return Host(case.pool, case.subset, case.epoch, case.size, survive=case.recording.survive is not None)


def prepared(case: Case) -> tuple[Host, list[Started], dict[Key, Ideal], int]:
    """Host, started threads, expected records and kernel id of a case that the caller steps."""
    lowered, host = case.lowered(), host_of(case)
    plain, _ = launch(case, host_of(case), case.kernel.text(case.arch))
    work, _ = launch(case, host, lowered.text)
    return host, work.start(), oracle.ideal(plain, case.recording, left_out(case, lowered)), lowered.meta.kernels[0].id


def execute(case: Case, *, mutate: Callable[[str], str] = lambda text: text) -> Outcome:
    """Run the case's lowered text, changed by `mutate`, and its oracle."""
    lowered = case.lowered()
    host = host_of(case)

    work, out = launch(case, host, mutate(lowered.text))
    run(work.start(), case.order, case.seed)
    slabs, log = host.slabs(), list(host.memory.log)
    plain, out_plain = launch(case, host, case.kernel.text(case.arch))
    ideals = oracle.ideal(plain, case.recording, left_out(case, lowered))
    host.memory.log[:] = log
    return Outcome(case, lowered, host, slabs, ideals, (bytes(out), bytes(out_plain)))


def flags(marks: Iterable[Mark], recording: Recording) -> int:
    """The flags of the strategies."""
    used = oracle.strategies(marks, recording)
    every, first = (any(s.spec == spec for s in used) for spec in (AllThreads().spec, ANY_LANE))
    return layout.FLAG_LANES * every | layout.FLAG_ANY * first


def should_record(outcome: Outcome) -> set[Key]:
    """The lanes that must claim: armed, selected by a strategy of the kernel, and sampled."""
    case = outcome.case
    used = oracle.strategies(outcome.marks, case.recording)
    return {
        key
        for key, one in outcome.ideals.items()
        if case.bound
        and case.epoch
        and (one.late or any(s.records(one.thread.warp, one.thread.lane) for s in used))
        and oracle.sampled(case.subset, case.shape, one.thread)
    }


def judged(outcome: Outcome, *, pairs: bool = True) -> Outcome:
    """All properties of judge.py; raises judge.Wrong. pairs=False: some marks may not pair."""
    case, host, slabs = outcome.case, outcome.host, outcome.slabs
    (about,) = outcome.lowered.meta.kernels
    judge.require(not pairs or not outcome.lowered.problems, f"problems: {outcome.lowered.problems}")
    sized = "ks_last" in outcome.lowered.text
    units = wire.slab_units(log2_records(case.size) if sized else about.log2_records)
    judge.stores_stay_inside_claimed_slabs(host, units)
    judge.claims_account_for_every_unit(host, slabs, units, should_record(outcome))
    judge.heads_tell_where_the_lane_was(host, slabs, outcome.ideals)
    anchored = layout.FLAG_ANCHORS * ("ks_edge" in outcome.lowered.text)
    layout_word = (wire.VARYING if sized else about.log2_records) | (
        flags(outcome.marks, case.recording) | anchored
    ) << layout.FLAG_SHIFT - layout.LOG2_SHIFT
    first = outcome.ideals[0, 0, 0, 0]
    judge.entries_describe_the_launch(host, slabs, first, case.shape, case.recording, about.id, layout_word)
    judge.records_are_the_marks_in_order(slabs, outcome.ideals, case.recording)
    if case.order == "turns":
        judge.require(len(outcome.ideals) > 1 or outcome.out[0] == outcome.out[1], "the kernel's own results changed")
    return outcome


SPECS: tuple[str | None, ...] = (None, None, None, "lane0-warp0", "elected", "all", "warps:0,2", ANY_LANE)
STRATEGIES: tuple[Strategy, ...] = (
    Elected(), Lane0Warp0(), TargetWarp(1), TargetWarp(0, 2, 31), AllThreads(), Elected(any_lane=True)
)  # fmt: skip

recordings = st.builds(
    Recording,
    strategy=st.sampled_from(STRATEGIES),
    records=st.sampled_from([4, 1, 5, 8, 16, "auto"]),
    fill=st.sampled_from(["ring", "stop"]),
    clock=st.sampled_from(["cycles", "globaltimer"]),
    survive=st.sampled_from([None, None, "shm"]),
    pending=st.sampled_from([0, 1, 2, 8]),
)
clocks = st.builds(
    Clocks,
    st.one_of(st.integers((1 << 32) - 60, 1 << 32), st.integers(0, 1 << 40)),
    st.one_of(st.integers((1 << 32) - 60, 1 << 32), st.integers(0, 1 << 60)),
    st.lists(st.sampled_from([0, 1, 3, 1 << 16, 1 << 31, (1 << 32) + 1]), min_size=1, max_size=5).map(tuple),
)


@st.composite
def shapes(draw: st.DrawFn) -> Grid:
    """Blocks of 1 to 1024 threads in 1 to 3 dimensions, also no multiple of 32; grids up to the limits."""
    x = draw(st.sampled_from([1, 7, 32, 33, 64, 96, 128, 1024]))
    y = draw(st.integers(1, min(5, 1024 // x)))
    z = draw(st.integers(1, min(3, 1024 // (x * y), 64)))
    cluster = draw(st.sampled_from([(1, 1, 1), (1, 1, 1), (2, 1, 1), (4, 2, 1), (1, 2, 2)]))
    big = draw(st.booleans())
    limits = [(1 << 31) - 1, 65535, 65535] if big else [8, 4, 4]
    grid = [max(1, draw(st.integers(1, limit)) // side) * side for limit, side in zip(limits, cluster, strict=True)]
    return Grid((grid[0], grid[1], grid[2]), (x, y, z), cluster, cluster != (1, 1, 1))


@st.composite
def pools(draw: st.DrawFn, units: int) -> Pool:
    """From an empty pool over one slab to room for all; heads near 2^32; some units not yet freed."""

    def ring() -> Ring:
        bits = units.bit_length()
        size = draw(st.sampled_from([bits, bits + 1, bits + 2, bits + 3, bits + 4, bits - 1, 0]))
        head = draw(st.one_of(st.integers(0, 3), st.integers(-64, -1), st.integers(0, 1 << 32))) & 0xFFFFFFFF
        free = draw(st.one_of(st.none(), st.none(), st.integers(0, 1 << size)))
        return Ring(size, head, free, draw(st.sampled_from([0, 5, 0xFFFFFFFE])))

    return Pool(tuple(ring() for _ in range(draw(st.integers(1, 4)))))


@st.composite
def samplings(draw: st.DrawFn, total: int) -> Subset:
    """Everything, or some blocks, warps and SMs."""
    if draw(st.integers(0, 3)) != 2:
        return Subset()
    first, step = draw(st.integers(0, max(0, total - 1))), draw(st.sampled_from([1, 2, 3, 7, 1 << 20]))
    blocks = draw(
        st.sampled_from([None, range(first, first + 5, step), slice(first, None, step), slice(0, None, step)])
    )
    warps = draw(st.sampled_from([None, (0,), (0, 2, 5), (31,)]))
    sms = draw(st.sampled_from([None, (0, 1), (131,), (0, 5, 33, 131, 511)]))
    return Subset.of(blocks, warps, sms)


@st.composite
def cases(draw: st.DrawFn, depth: int = 2, threads: int = 6, ample: bool = False) -> Case:
    """A whole case; ample=True: everything is sampled and every lane finds a slab."""
    recording = draw(recordings)
    specs = SPECS if draw(st.booleans()) else (None,)
    kernel = draw(kernels(specs, depth))
    if ANY_LANE in (recording.strategy.spec, *(mark.strategy for mark in kernel.marks)):
        recording = replace(recording, survive=None)  # the oracle does not know that these lanes claim as they enter
    shape = draw(shapes())
    nx, ny, _ = shape.grid
    others = st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape.grid)), max_size=2)
    by_number = {(x + nx * (y + ny * z)) % (1 << wire.BLOCK_BITS): (x, y, z) for x, y, z in draw(others)}
    blocks = list((by_number | {0: (0, 0, 0)}).values())
    some = st.integers(0, shape.threads - 1)
    first_lanes = st.integers(0, (shape.threads - 1) // 32).map(lambda warp: 32 * warp)
    chosen = draw(st.lists(st.one_of(first_lanes, first_lanes, some), min_size=2, max_size=threads))
    size = draw(st.sampled_from([4, 8, 16, AUTO_RECORDS]))
    units = wire.slab_units(log2_records(size if recording.records == "auto" else recording.records))
    case = Case(
        kernel, recording, shape, tuple(blocks), tuple(sorted({0, *chosen})),
        Pool((Ring(14), Ring(14), Ring(14))) if ample else draw(pools(units)),
        Subset() if ample else draw(samplings(shape.grid[0] * shape.grid[1] * shape.grid[2])),
        tuple(draw(st.lists(st.sampled_from([0, 1, 5, 33, 131, 511]), min_size=1, max_size=3))),
        draw(st.integers(1, (1 << 64) - 1)), draw(clocks), draw(st.sampled_from(["turns", "lockstep", "random"])),
        draw(st.integers(0, 1 << 16)), draw(st.sampled_from([0, (1 << 64) - 1, 0x5A5A5A5A_DEADBEEF])),
        followers=draw(st.sampled_from([frozenset(range(1, 32)), frozenset(), frozenset({2, 3, 31})])), size=size,
    )  # fmt: skip
    if draw(st.integers(0, 3)) == 3:  # no clusters before sm_90
        case = replace(case, arch="80", shape=replace(shape, cluster=(1, 1, 1), clustered=False))
    if not ample and draw(st.integers(0, 19)) == 13:
        return replace(case, bound=draw(st.booleans()), epoch=0)
    return case
