"""The options for which a kernel is compiled, which change its text and so its cache key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Literal, get_args

from ..capture.layout import MAJOR, MAX_LOG2_RECORDS, MIN_LOG2_RECORDS, MINOR
from ..capture.model import KernelMeta, ModuleMeta, Problem, RegionMeta
from ..errors import UsageError
from ..marks.strategies import Elected, Strategy, strategy_of
from .selection.auto import Selection

Clock = Literal["cycles", "globaltimer"]
Fill = Literal["ring", "stop"]
Placement = Literal["fence", "schedule"]
Survive = Literal["shm", "keeper", "auto"]
SURVIVE: tuple[Survive, ...] = get_args(Survive)
AUTO_RECORDS = 256
"""Records of a slab with records="auto" and marks in loops, before any launch has shown its number of records."""
EMITTING = (
    *("marks", "ptx", "lowering", "instrument/selection", "instrument/code_objects.py", "instrument/recording.py"),
    *(f"language/{name}.py" for name in ("helpers", "regions", "selected_scopes")),
    *(f"capture/{name}.py" for name in ("layout", "metadata", "model", "wire")),
    *(f"machine_code/{name}.py" for name in ("disassembly", "elf", "occupancy")),
    *(f"util/{name}.py" for name in ("graph_walks", "grouping", "json_values", "python_source")),
    *("util/struct_layout.py", "util/thread_stacks.py"),
    "sass/cubin/attributes.py",  # CuTe's use of registers
)
"""The code that emits a kernel's text: folders and files below kscope/."""
SCHEDULING = (
    *("sass", "machine_code/instruction_regions.py", "machine_code/control_words.py"),
    *("capture/clock_rows.py", "capture/heads.py", "util/arrays.py"),
    "lowering/schedule_placement.py",
)
"""The code that placement="schedule" needs besides."""


@dataclass(frozen=True)
class Recording:
    """Compile-time options of recording.

    Attributes:
        strategy: threads that record a region without a strategy.
        records: capacity of a slab, rounded up to a power of two; "auto" is what the marks need if none is in a
            loop, else 256 at first, and then the number that launches make.
        fill: "ring" keeps a slab's newest records, "stop" its oldest; both count all.
        clock: "cycles" (%clock64) or "globaltimer" (ns, in steps of 32 ns on an H200).
        placement: "fence" puts marks into the text that is assembled, which keeps instructions in their order;
            "schedule" records in the machine code, which stays the kernel's own.
        survive: where records outlive the program, see profile(); kernels then store the enters of regions that wait.
        pending: finished records that may wait in registers for the end of their basic block.
        selection: code to mark in kernels without annotations.

    Raises:
        UsageError: a field has an invalid value.
    """

    strategy: Strategy = field(default_factory=Elected)
    records: int | Literal["auto"] = "auto"
    fill: Fill = "ring"
    clock: Clock = "cycles"
    placement: Placement = "fence"
    survive: Survive | None = None
    pending: int = 8
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        strategy_of(self.strategy)
        most = 1 << MAX_LOG2_RECORDS
        if self.records != "auto" and not (isinstance(self.records, int) and 1 <= self.records <= most):
            raise UsageError(f"records={self.records!r}: expected 'auto' or 1 to {most} records per warp")
        if self.fill not in ("ring", "stop"):
            raise UsageError(f"fill={self.fill!r}: expected 'ring' (keep the newest) or 'stop' (keep the oldest)")
        if self.clock not in ("cycles", "globaltimer"):
            raise UsageError(f"clock={self.clock!r}: expected 'cycles' or 'globaltimer'")
        if self.placement not in ("fence", "schedule"):
            raise UsageError(
                f"placement={self.placement!r}: expected 'fence' (exact boundaries) or 'schedule' (the kernel's own "
                "machine code)"
            )
        if self.survive not in (None, *SURVIVE):
            raise UsageError(f"survive={self.survive!r}: expected one of {', '.join(map(repr, SURVIVE))}")
        if self.survive and self.placement == "schedule":
            raise UsageError(
                f"survive={self.survive!r}: does not work with placement='schedule', which stores nothing when a warp"
                " enters a region; leave placement= out"
            )
        if not isinstance(self.pending, int) or not 0 <= self.pending <= 64:
            raise UsageError(f"pending={self.pending!r}: expected 0 (store in place) to 64 records")

    def module(
        self,
        frontend: str,
        kernels: tuple[KernelMeta, ...] = (),
        regions: tuple[RegionMeta, ...] = (),
        problems: tuple[Problem, ...] = (),
        variables: bool = False,
    ) -> ModuleMeta:
        """The metadata of a module that is compiled for these options; arguments are its fields."""
        return ModuleMeta(
            frontend, kernels, regions, self.clock, self.fill, self.strategy.spec, problems, variables=variables
        )

    def tag(self, *own: Path) -> str:
        """A cache key for compilers: equal tags promise equal emitted text.

        Args:
            own: folders of a frontend whose code helps to emit it.
        """
        fields = {**asdict(self), "survive": self.survive is not None, "strategy": self.strategy.spec}
        fields |= {"layout": [MAJOR, MINOR], "emitter": _digest(self.placement, own)}
        return "kscope-" + sha256(dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def emitting_files(placement: Placement) -> list[Path]:
    """The files of kscope whose code can change the text or the machine code of kernels with this placement."""
    root = Path(__file__).parent.parent
    parts = (*EMITTING, *(SCHEDULING if placement == "schedule" else ()))
    found = dict.fromkeys(path for part in parts for path in _sources(root / part))
    if placement != "schedule":
        del found[root / SCHEDULING[-1]]
    return list(found)


@lru_cache
def _digest(placement: Placement, own: tuple[Path, ...]) -> str:
    """A digest of the emitting code: a compiler's disk cache must not return the output of an older version."""
    digest = sha256()
    for path in (*emitting_files(placement), *(path for folder in own for path in _sources(folder))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(part: Path) -> list[Path]:
    """A file, or those in a folder."""
    found = [part] if part.suffix else [path for kind in ("*.py", "*.json") for path in part.rglob(kind)]
    return sorted(path for path in found if path.name != "demo.py")


def log2_records(records: int) -> int:
    """log2 of the capacity of the smallest slab that holds `records`."""
    return max(MIN_LOG2_RECORDS, (records - 1).bit_length())
