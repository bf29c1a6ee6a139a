"""The contract's programs: what each launches and how it is recorded, told once for every frontend.

The simulator's kernels (frontend_sim.py) say what each kernel does; a frontend joins by giving kernels
of the same names that place the same marks, in a module of this folder called ``frontend_<name>.py``:

    KERNELS: dict[str, Callable]            its kernels, by the names used here; take n where the program has one
    ABSENT: dict[str, str]                  kernels that the DSL cannot express, and why
    NEEDS_GPU = True                        where it does
    available() -> str | None               why it cannot run here; None = it can
    run(program) -> Capture                 launch the program's kernels, recorded as the program says
    ARCHITECTURES: tuple[int, ...]          optional, with compile(): which there are; else 80, 90, 100
    compile(program, arch) -> list[str]     optional: the kernels' lowered PTX for sm_<arch>, without a GPU

What lives here: data. What does not: kernels, expectations (judge.py), reading words (reader.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kscope.recording import Recording
from kscope.sampling import Sampling
from kscope.strategies import AllThreads, Lane0Warp0, TargetWarp


@dataclass(frozen=True)
class Program:
    """kernels: launched in this order, each on `grid` blocks of `block` threads, `replays` times under one
    grid id. n: the number that every kernel gets."""

    name: str
    about: str
    kernels: tuple[str, ...]
    grid: tuple[int, int, int] = (3, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    n: int = 0
    recording: Recording = field(default_factory=lambda: Recording(records=16))
    sampling: Sampling = field(default_factory=Sampling)
    replays: int = 1


PROGRAMS = (
    Program("straight_line", "two regions, one after the other", ("straight",)),
    Program("nested", "regions in regions, one name at two depths of the tree", ("nested",)),
    Program("loop", "a region in a loop, with the iteration as its value", ("loop",), n=5),
    Program("early_exit", "blocks from n on return between two regions", ("early_exit",), grid=(5, 1, 1), n=2),
    Program("helper", "a region in a function that is called inside of a region and outside", ("helper",)),
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
    Program("strategies", "every region has a strategy of its own", ("strategies",)),
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
    Program("values", "every type of value; instants and counters", ("values",), recording=Recording(records=32)),
    Program("globaltimer", "clocks in nanoseconds", ("nested",), recording=Recording(records=16, clock="globaltimer")),
    Program(
        "live", "records stored where their region ends", ("loop",), n=5, recording=Recording(records=16, live=True)
    ),
    Program("roles", "warps of one block in different branches", ("roles",), block=(256, 1, 1), n=4),
    Program(
        "sampled",
        "every fifth block of a range, one warp of each",
        ("coordinates",),
        grid=(4, 3, 2),
        block=(8, 4, 2),
        sampling=Sampling.of(blocks=range(2, 20, 5), warps=1),
    ),
    Program("replayed", "one launch, three times under one grid id", ("straight",), replays=3),
    Program("unmarked", "a kernel without marks between two that have some", ("straight", "unmarked", "straight")),
)
