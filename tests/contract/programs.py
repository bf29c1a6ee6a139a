"""The contract's programs: what each launches and how it is recorded, defined once for every frontend.

The simulator's kernels (frontend_sim.py) define what each kernel does. A frontend joins with a module of this folder
called ``frontend_<name>.py``, whose kernels have the same names, place the same marks, and take the address of 64 zero
ints and the program's n. The suite finds it; there is no test to write.

    KERNELS: dict[str, Any]                 its kernels, by the names used here, themselves called so or name_
    ABSENT: dict[str, str]                  kernels or programs that the DSL cannot express, and why

with a device (otherwise leave these three out):

    NEEDS_GPU = True
    available() -> str | None               why it cannot run here; None = it can
    ready(program) -> Callable[[], None]    compile the program's kernels and launch them once; returns a function that
                                            launches the whole program and waits for it. The suite switches recording
                                            meanwhile (device.py)

without a device (otherwise leave these out): the suite assembles the output and runs it in tests/ptxvm

    REFUSED: dict[str, Any]                 kernels with a mistake in the line that ends in "refused": compile() raises
    FRONTEND: str                           the frontend whose enable() makes compile() place marks
    compile(program, arch) -> list[str]     each kernel's PTX for sm_<arch>, as it would be loaded
    LATER: dict[str, int]                   optional: the least architecture of kernels that sm_80 cannot run
    OWN_ASSEMBLER = True                    optional: compile() also makes SASS, and fails if that fails
    NOT_INTERPRETED: dict[str, str]         optional: kernels that tests/ptxvm cannot run, and why
    block(program) -> Dim                   optional: the shape of a block, if it is not the program's
    parameters(out, n) -> list[int]         optional: a kernel's parameters, if there are more than these two
    described(text) -> tuple[ModuleMeta]    optional: a text's metadata, if they are not in kscope_meta
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from kscope.capture import wire
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.marks.strategies import AllThreads, Elected, Lane0Warp0, TargetWarp

Dim = tuple[int, int, int]
State = Literal["armed", "prepared", "plain"]


@dataclass(frozen=True)
class Program:
    """kernels: launched in this order, each on `grid` blocks of `block` threads, `replays` times under one
    grid id. n: the number that every kernel gets. pool: bytes to record into, None = enough. state: "prepared" kernels
    carry marks and run in no session, "plain" ones carry none. some: how many lanes record depends on the machine, and
    those that do record the same."""

    name: str
    about: str
    kernels: tuple[str, ...]
    grid: Dim = (3, 1, 1)
    block: Dim = (128, 1, 1)
    n: int = 0
    recording: Recording = field(default_factory=lambda: Recording(records=16))
    subset: Subset = field(default_factory=Subset)
    replays: int = 1
    pool: int | None = None
    state: State = "armed"
    some: bool = False

    @property
    def whole(self) -> Program:
        """The same where nothing keeps a lane from recording that the machine decides."""
        return replace(self, pool=None, subset=replace(self.subset, sm=None), some=False)


SMALL_POOL = 2 << 20
"""Bytes: enough to arm a device of 250 SMs, with at most half of them in one ring."""

PROGRAMS = (
    Program("straight_line", "two regions, one after the other", ("straight",)),
    Program("nested", "regions in regions, one name at two depths of the tree", ("nested",)),
    Program("loop", "a region in a loop, with the iteration as its value", ("loop",), n=5),
    Program("loop_never", "a loop that is not entered", ("loop",), n=0),
    Program("early_exit", "blocks from n on return between two regions", ("early_exit",), grid=(5, 1, 1), n=2),
    Program("helper", "a region in a function that is called inside of a region and outside", ("helper",)),
    Program("itself", "a region inside of another one of its name", ("itself",)),
    Program("names", "names that compilers, assemblers and JSON might mind", ("names",)),
    Program("explicit", "enter() and exit() calls around a loop and in it", ("explicit",), n=3),
    Program("two_kernels", "two kernels of one session, one of them twice", ("produce", "consume", "produce"), n=2),
    Program(
        "grid_3d",
        "3-D blocks of a 3-D grid; the value is the block's linear index",
        ("coordinates",),
        grid=(4, 3, 2),
        block=(8, 4, 2),
    ),
    Program(
        "partial_warps",
        "80 threads, of which those from n on return early; every thread records",
        ("partial",),
        block=(80, 1, 1),
        n=70,
        recording=Recording(records=16, strategy=AllThreads()),
    ),
    Program("partial_elected", "the same, and one lane per warp records", ("partial",), block=(80, 1, 1), n=70),
    Program("strategies", "every region has a different strategy", ("strategies",)),
    Program("divergent", "lanes from n on in a branch that lane 0 does not take", ("divergent",), n=16),
    Program(
        "divergent_lanes",
        "the same, and every lane records what it does",
        ("divergent",),
        n=16,
        recording=Recording(records=16, strategy=AllThreads()),
    ),
    Program("first_lane", "a branch is recorded by the first lane that takes it", ("first",), n=16),
    Program(
        "any_lane",
        "in every warp the first lane that gets there: lane 0, where none parts",
        ("nested",),
        recording=Recording(records=16, strategy=Elected(any_lane=True)),
    ),
    Program("lane0_warp0", "one thread per block", ("nested",), recording=Recording(records=16, strategy=Lane0Warp0())),
    Program(
        "target_warp",
        "lane 0 of warps 1 and 3",
        ("nested",),
        recording=Recording(records=16, strategy=TargetWarp(1, 3)),
    ),
    Program("all_threads", "every thread", ("nested",), recording=Recording(records=16, strategy=AllThreads())),
    Program(
        "ring", "more records than the slab holds: the newest stay", ("loop",), n=11, recording=Recording(records=4)
    ),
    Program(
        "stop",
        "more records than the slab holds: the oldest stay",
        ("loop",),
        n=11,
        recording=Recording(records=4, fill="stop"),
    ),
    Program("auto_records", "slabs as large as the kernel seems to need", ("nested",), recording=Recording()),
    Program("values", "every type of value; instants and counters", ("values",)),
    Program("wide", "integers of 64 bits, which may fit 32, as values and keys", ("wide",), n=5),
    Program("constants", "a constant of every Python and numpy type", ("constants",)),
    Program("points", "instants and counters in a loop, with separate strategies", ("points",), n=3),
    Program("chosen", "marks that a predicate of the running kernel chooses, and of the compiler", ("chosen",), n=5),
    Program(
        "tracks",
        "one name on two tracks of the user's and on none; the warp names its role; a span with a key",
        ("tracks",),
    ),
    Program(
        "words",
        "what every thread learns of its place; the value on 'sm' is compared with the header",
        ("words",),
        grid=(2, 2, 2),
        block=(8, 4, 2),
        recording=Recording(records=16, strategy=AllThreads()),
    ),
    Program("pinned", "a value that is kept inside of its region", ("pinned",), n=7),
    Program("globaltimer", "clocks in nanoseconds", ("nested",), recording=Recording(records=16, clock="globaltimer")),
    Program("survive", "enters are stored, too", ("loop",), n=5, recording=Recording(records=16, survive="shm")),
    Program("roles", "warps of one block in different branches", ("roles",), block=(256, 1, 1), n=4),
    Program(
        "sampled",
        "every fifth block of a range, one warp of each",
        ("coordinates",),
        grid=(4, 3, 2),
        block=(8, 4, 2),
        subset=Subset.of(block=range(2, 20, 5), warp=1),
    ),
    Program(
        "sampled_sms",
        "blocks on SMs of even number",
        ("coordinates",),
        grid=(4, 3, 2),
        subset=Subset.of(sm=range(0, wire.MAX_SMS, 2)),
        some=True,
    ),
    Program(
        "sampled_nowhere",
        "blocks on an SM that no machine has",
        ("coordinates",),
        subset=Subset.of(sm=wire.MAX_SMS - 1),
    ),
    Program(
        "scarce_pool",
        "more lanes than there is room for: each records all, or is counted as lost",
        ("nested",),
        recording=Recording(records=1024, strategy=AllThreads()),
        pool=SMALL_POOL,
        some=True,
    ),
    Program(
        "empty_pool",
        "slabs that no ring can hold: every lane is counted as lost",
        ("straight",),
        recording=Recording(records=1 << 16),
        pool=SMALL_POOL,
    ),
    Program("prepared", "marks, and no session", ("straight", "nested"), state="prepared"),
    Program("off", "no marks, and no session", ("straight", "nested"), state="plain"),
    Program("replayed", "one launch, three times under one grid id", ("straight",), replays=3),
    Program("unmarked", "a kernel without marks between two that have some", ("straight", "unmarked", "straight")),
)

BY_NAME = {program.name: program for program in PROGRAMS}
