"""Inputs of a lowering besides the text, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .. import ptx
from ..capture.model import ModuleMeta, Problem, RoleMeta

AssembleCode = Callable[[str, bool], "bytes | None"]
"""Assembles a text to a cubin; returns None if it does not assemble. The second argument is True if it needs a line
table.
"""


@dataclass(frozen=True)
class Lowered:
    """A module's text with every mark lowered. Without marks: the same text object and empty metadata.

    Attributes:
        text: PTX.
        meta: its metadata.
        problems: problems for the readers of its captures.
        has_spare_registers: it has loops with memory accesses whose records could have separate registers, see
            lower(spare=).
        marked: the text with the marks that were lowered, and with the module's symbols.
        kernels: parameters of each kernel's text, by symbol, in the order of the metadata.
        cubin: machine code that records, to load instead of the assembled text; None if there is none.
    """

    text: str
    meta: ModuleMeta
    problems: tuple[Problem, ...] = ()
    has_spare_registers: bool = False
    marked: str = ""
    kernels: Mapping[str, ptx.Kernel] = field(default_factory=dict)
    cubin: bytes | None = None


@dataclass(frozen=True)
class SourceInfo:
    """A frontend's facts about a module that its text may not contain.

    Attributes:
        kernels: symbol in the text -> the kernel's name.
        places: region -> file:line, if the text has no line information, or wrong ones.
        taken_apart: why the compiler may take regions apart, and the remedy; empty if unknown.
        roles: the compiler's partitions of the kernels' warps.
    """

    kernels: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    taken_apart: str = ""
    roles: tuple[RoleMeta, ...] = ()

    def with_places(self, places: Mapping[str, str]) -> SourceInfo:
        """The same with places of more regions."""
        return replace(self, places={**self.places, **places}) if places else self
