"""What a kernel is compiled for: the options that change its text, and so its cache key.

What lives here: the Recording and its spelling. What does not: options that a running kernel reads
from the control block (sampling.py), and what is done with the text (lowering/).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Literal

from ..capture.layout import MAJOR, MAX_LOG2_RECORDS, MIN_LOG2_RECORDS, MINOR
from ..errors import UsageError
from ..marks.strategies import Elected, Strategy
from .selection.auto import Selection

Clock = Literal["cycles", "globaltimer"]
Fill = Literal["ring", "stop"]
AUTO_RECORDS = 256


@dataclass(frozen=True)
class Recording:
    """Compile-time options of recording.

    strategy: who records where a region does not say otherwise.
    records: capacity of a slab, rounded up to a power of two; "auto" = what the marks outside loops
        need, else 256.
    fill: "ring" keeps the newest records of a lane, "stop" the oldest; either way all are counted.
    clock: "cycles" (%clock64) or "globaltimer" (ns, ticks every 32 ns on an H200).
    live: stores stand where the region ends, and the slab is claimed at the kernel's first instruction:
        for kernels that hang.
    pending: how many finished records may wait in registers for the end of their basic block.
    selection: what is marked in kernels without having been annotated.
    """

    strategy: Strategy = field(default_factory=Elected)
    records: int | Literal["auto"] = "auto"
    fill: Fill = "ring"
    clock: Clock = "cycles"
    live: bool = False
    pending: int = 8
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, Strategy):
            known = "Lane0Warp0(), Elected(), TargetWarp(n) or AllThreads()"
            raise UsageError(f"strategy={self.strategy!r}: expected {known}")
        if self.records != "auto" and not (
            isinstance(self.records, int) and 1 <= self.records <= 1 << MAX_LOG2_RECORDS
        ):
            most = 1 << MAX_LOG2_RECORDS
            raise UsageError(f"records={self.records!r}: expected 'auto' or 1 to {most} records per slab")
        if self.fill not in ("ring", "stop"):
            raise UsageError(f"fill={self.fill!r}: expected 'ring' (keep the newest) or 'stop' (keep the oldest)")
        if self.clock not in ("cycles", "globaltimer"):
            raise UsageError(f"clock={self.clock!r}: expected 'cycles' or 'globaltimer'")
        if not isinstance(self.pending, int) or not 0 <= self.pending <= 64:
            raise UsageError(f"pending={self.pending!r}: expected 0 (store in place) to 64 records")

    def tag(self, *own: Path) -> str:
        """A short word that differs wherever the emitted text may: for the cache keys of compilers. own: the folder of
        a frontend, whose code has a hand in that."""
        fields = asdict(self) | {"strategy": self.strategy.spec, "layout": [MAJOR, MINOR], "emitter": _emitter(own)}
        return "kscope-" + sha256(dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache
def _emitter(own: tuple[Path, ...]) -> str:
    """A digest of kscope's own code, and of these folders: a compiler's disk cache must not serve what an older one
    emitted."""
    digest = sha256()
    for folder in (Path(__file__).parent, *own):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def log2_records(records: int) -> int:
    """The exponent of the smallest slab that holds that many records."""
    return max(MIN_LOG2_RECORDS, (records - 1).bit_length())
