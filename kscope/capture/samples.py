"""Stall samples, and the machine code in which they were taken. A sample is one warp of one SM sub-partition at one
instruction, with the reason why it did not issue; rows count them per function, instruction and reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

ROW = np.dtype([("function", "<u4"), ("pc", "<u4"), ("reason", "<u4"), ("count", "<u8")])
"""A count: index of the function, offset of the instruction in bytes, index of the reason, samples."""
WINDOW = np.dtype([("begin", "<i8"), ("end", "<i8"), ("function", "<u4"), ("count", "<u8")])
"""Samples of a function, all reasons, in a time window, UNIX ns."""
NOT_ISSUED = "_not_issued"
"""Suffix of the names of the vendor's subsets, whose samples are counted under the reason itself, too."""
NO_PLACE = -1
"""The place of an instruction without source line."""

Rows = npt.NDArray[np.void]
Place = tuple[str, int]
"""File and line."""


@dataclass(frozen=True)
class CodeWork:
    """The work of one warp in one execution of a region, including nested regions.

    Attributes:
        bytes: to and from global memory.
        shared: bytes to and from shared memory.
        flops: floating-point operations; a multiply-add is two.
        matrix: some of them are those of matrix instructions.
        most: some instructions have a predicate, and amounts are those of lanes that execute all.
        unknown: reason why the amounts are unknown; empty if they are known.
    """

    bytes: int = 0
    shared: int = 0
    flops: int = 0
    matrix: bool = False
    most: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class CodeRegion:
    """A region in a function's machine code.

    Attributes:
        name: its name.
        file: the source file of its lines; empty if they are unknown.
        first, last: its source lines, with those of the marks; 0 if they are unknown.
        work: bytes and operations; None if its code was not read.
    """

    name: str
    file: str = ""
    first: int = 0
    last: int = 0
    work: CodeWork | None = None

    def has(self, chain: Iterable[Place]) -> bool:
        """True if an instruction of these places belongs to the region's source lines."""
        return any(file == self.file and self.first <= line <= self.last for file, line in chain)


@dataclass(frozen=True)
class SampledFunction:
    """A function with samples, with its machine code if that is known.

    Attributes:
        name: its name in the code.
        kernel: the id of the kernel with marks; None for other functions.
        at: offsets of its instructions, ascending; empty if the code is unknown.
        text: each instruction as the disassembler prints it.
        live: general registers that hold a value at each instruction; empty if they were not counted.
        place: of each instruction, index into `places`; -1 for none.
        places: source lines, each as a chain: the line, then the calls that were inlined around it.
        opened: of each instruction, index into `stacks`.
        stacks: regions that are open, outermost first, as indices into `regions`. The wait of a clock read at a begin
            belongs to the region before it.
        regions: the regions in the code.
        ranged: as `opened`, by the addresses between the clock reads, of code in which they differ: kernels that are
            recorded in machine code, whose instructions belong to the region of their text. Empty for others.
        unresolved: names of regions whose clock reads could not be found.
        why_unknown: reason why the code is unknown; empty if it is known.
    """

    name: str
    kernel: int | None = None
    at: tuple[int, ...] = ()
    text: tuple[str, ...] = ()
    live: tuple[int, ...] = ()
    place: tuple[int, ...] = ()
    places: tuple[tuple[Place, ...], ...] = ()
    opened: tuple[int, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ((),)
    regions: tuple[CodeRegion, ...] = ()
    ranged: tuple[int, ...] = ()
    unresolved: tuple[str, ...] = ()
    why_unknown: str = ""

    def index(self, pcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Indices of the instructions at these offsets; -1 for offsets without one."""
        at = np.array(self.at, np.int64)
        if not len(at):
            return np.full(len(pcs), -1)
        found = np.minimum(np.searchsorted(at, pcs), len(at) - 1)
        return np.where(at[found] == pcs, found, -1)

    def chain(self, instruction: int) -> tuple[Place, ...]:
        """The source line of an instruction and the calls around it; empty if it is unknown."""
        if instruction < 0 or self.place[instruction] == NO_PLACE:
            return ()
        return self.places[self.place[instruction]]

    def stack(self, instruction: int) -> tuple[str, ...]:
        """Names of the regions that are open at an instruction, outermost first."""
        if instruction < 0:
            return ()
        return tuple(self.regions[one].name for one in self.stacks[self.opened[instruction]])

    def between_reads(self, instruction: int) -> tuple[str, ...]:
        """Names of the regions between whose clock reads an instruction is, outermost first."""
        if instruction < 0 or not self.ranged:
            return self.stack(instruction)
        return tuple(self.regions[one].name for one in self.stacks[self.ranged[instruction]])


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of a session.

    Attributes:
        period: cycles between two samples of an SM sub-partition.
        reasons: names of the vendor's library.
        functions: the functions with samples.
        rows: (n,) ROW, the counts, each function, instruction and reason once.
        dropped: samples that the hardware dropped.
        full: devices whose buffer for samples was full, which loses samples.
        elsewhere: samples in code without records, such as the driver's.
        left_out: samples of instructions that exceeded the table's limit.
        sources: text of the instructions' source files, by path; without unreadable ones.
        windows: (w,) WINDOW, the same samples by time, in order of time; on a GPU, each is the time between two
            reads, about 0.1 s after they were taken.
    """

    period: int
    reasons: tuple[str, ...] = ()
    functions: tuple[SampledFunction, ...] = ()
    rows: Rows = field(default_factory=lambda: np.zeros(0, ROW))
    dropped: int = 0
    full: int = 0
    elsewhere: int = 0
    left_out: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    windows: Rows = field(default_factory=lambda: np.zeros(0, WINDOW))

    def __len__(self) -> int:
        return int(self.whole["count"].sum())

    @property
    def whole(self) -> Rows:
        """The rows whose counts add up: without the subsets of samples that did not issue."""
        subsets = [number for number, name in enumerate(self.reasons) if name.endswith(NOT_ISSUED)]
        return self.rows[~np.isin(self.rows["reason"], subsets)] if subsets else self.rows

    def of(self, functions: Iterable[int]) -> Samples:
        """The samples of some functions, by index."""
        kept = sorted(set(functions))
        index = np.full(len(self.functions), -1)
        index[kept] = np.arange(len(kept))
        rows, windows = (table[np.isin(table["function"], kept)].copy() for table in (self.rows, self.windows))
        for table in (rows, windows):
            table["function"] = index[table["function"]]
        return replace(self, functions=tuple(self.functions[one] for one in kept), rows=rows, windows=windows)


def joined_samples(parts: Iterable[Samples]) -> Samples | None:
    """The samples of several devices as one; None without any. Their functions stay apart."""
    found = list(parts)
    if not found:
        return None
    reasons = tuple(dict.fromkeys(name for part in found for name in part.reasons))
    number = {name: index for index, name in enumerate(reasons)}
    rows, windows, before = [], [], 0
    for part in found:
        own = part.rows.copy()
        own["function"] += before
        own["reason"] = np.array([number[name] for name in part.reasons] or [0], np.uint32)[own["reason"]]
        rows.append(own)
        windows.append(part.windows.copy())
        windows[-1]["function"] += before
        before += len(part.functions)
    return Samples(
        period=found[0].period,
        reasons=reasons,
        functions=tuple(one for part in found for one in part.functions),
        rows=np.concatenate(rows),
        dropped=sum(part.dropped for part in found),
        full=sum(part.full for part in found),
        elsewhere=sum(part.elsewhere for part in found),
        left_out=sum(part.left_out for part in found),
        sources={file: text for part in found for file, text in part.sources.items()},
        windows=np.sort(np.concatenate(windows), order=["begin", "function"]),
    )
