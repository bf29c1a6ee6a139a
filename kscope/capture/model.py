"""Problems, and the metadata of modules: kernels, regions, roles, and layouts of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..util.json_values import clean
from . import layout, wire


@dataclass(frozen=True)
class Problem:
    """A fact about the data that affects how to read it.

    Attributes:
        kind: one word, such as "lost".
        text: a sentence.
        count: how often it happened (records, warps, launches).
        kernel: the kernel concerned; None if it is not about one kernel.
        region: the region concerned; None if it is not about one region.
        device: the device's ordinal, None if the session has one device or the problem is about all.
    """

    kind: str
    text: str
    count: int = 1
    kernel: str | None = None
    region: str | None = None
    device: int | None = None

    def as_dict(self) -> dict[str, str | int]:
        """kind, text and count as valid UTF-8, for JSON."""
        return {"kind": clean(self.kind), "text": clean(self.text), "count": self.count}

    def on_device(self, ordinal: int) -> Problem:
        """The same problem of one of several devices; its text begins with the device."""
        return replace(self, text=f"device {ordinal}: {self.text}", device=ordinal)


@dataclass(frozen=True)
class RegionMeta:
    """A name that a module's records may carry.

    Attributes:
        name: the region's name.
        type: the type of its values ("i32", "u32", "f32", "i64", "u64" or "f64"); None for regions without.
        where: "file:line" of its first mark; None if unknown.
        kernel: index of the module's kernel of this row, if kernels differ in the type; None for all.
        origin: "source" if the user's code marks it, "auto" or "lines" if auto= or mark= selected it.
        ends_at_issue_of: an asynchronous instruction, such as "cp.async.bulk.tensor", that it issues without any
            wait; None if it has none or waits, and if this is unknown.
    """

    name: str
    type: str | None = None
    where: str | None = None
    kernel: int | None = None
    origin: str = "source"
    ends_at_issue_of: str | None = None


@dataclass(frozen=True)
class RoleMeta:
    """A partition of a kernel's warps that the compiler made.

    Attributes:
        name: name of the partition: of its function, or of its work, such as "load".
        warps: its warps of every block.
    """

    name: str
    warps: tuple[int, ...]


@dataclass(frozen=True)
class KernelMeta:
    """A kernel of a module.

    Attributes:
        name: its name.
        id: its hash, which every slab's header carries.
        log2_records: log2 of the records that one of its slabs holds.
        roles: the compiler's partitions of its warps, if it made any; no warp is in two.
        symbol: its name in the code; empty if it is the same, or unknown.
    """

    name: str
    id: int
    log2_records: int
    roles: tuple[RoleMeta, ...] = ()
    symbol: str = ""


@dataclass(frozen=True)
class RowLayout:
    """The layout of a row with three clocks, or with short ones.

    Attributes:
        records: id, start and end of each of its records, in order of their ends, the clocks by their number.
        values: of a row with short clocks: the constant part of each record's value, and True if the row has the rest.
    """

    records: tuple[tuple[int, int, int], ...]
    values: tuple[tuple[int, bool], ...] = ()

    @property
    def row_id(self) -> int:
        """The id word of its rows."""
        text = " ".join(f"{number:08x}:{start}{end}" for number, start, end in self.records)
        text += "".join(f" {constant:x}{'+' * rest}" for constant, rest in self.values)
        return layout.name_hash(text) << 4 | wire.CLOCKS


@dataclass(frozen=True)
class ModuleMeta:
    """The metadata of a module compiled for recording, which names its kernels and regions after it is unloaded.

    Attributes:
        frontend: the frontend that compiled it.
        kernels: its kernels that may record.
        regions: the names that its records may carry.
        clock, fill, strategy: as in ``kscope.profile()``; the strategy as its spec.
        problems: problems found when it was compiled.
        variables: True if it uses variables in global or constant memory, which outlive a launch.
        placement: "fence" if marks were in the text that was assembled, "schedule" if its machine code was recorded.
        layouts: of the rows of several records that its kernels write.
    """

    frontend: str
    kernels: tuple[KernelMeta, ...]
    regions: tuple[RegionMeta, ...]
    clock: str = "cycles"
    fill: str = "ring"
    strategy: str = "elected"
    problems: tuple[Problem, ...] = ()
    variables: bool = False
    placement: str = "fence"
    layouts: tuple[RowLayout, ...] = ()
