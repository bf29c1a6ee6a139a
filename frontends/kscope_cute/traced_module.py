"""A traced module before CuTe compiles it: its marks, and modules without some of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutlass._mlir import ir

from kscope.capture.model import Problem
from kscope.marks.grammar import Mark, parse
from kscope.marks.names import format_name
from kscope.marks.operations import PIPELINE

from .emit import TAG, assembly
from .source_comments import place_of

_PIPELINED = "cutlass.pipelining"
"""The attribute of a loop with prefetch_stages."""
_FILE = re.compile(r'"([^"]*)":\d+:\d+')
"""The file in a location."""
_LAUNCH, _STREAM, _CAST, _FUNCTION = "cuda.launch_cfg.create", "!cuda.stream", "cuda.cast", "func.func"
"""A launch's configuration in host code, the type of its stream, how a number becomes one, and a host function."""
_DEFAULT = -1
"""The default stream, among numbers of arguments."""
_RECORDS = ("enter", "instant", "counter")
_STAGES = (
    "in a loop with prefetch_stages a region cannot contain both loads and code that uses them: end it after the last "
    "load, and use a second region for the rest"
)


@dataclass(frozen=True)
class PlacedMark:
    """A mark in the IR. where: file:line."""

    operation: Any
    mark: Mark
    where: str


@dataclass(frozen=True)
class TracedModule:
    """A module's marks.

    Attributes:
        name: the gpu.module's name.
        marks: in order of the code.
        pipelined: the compiler may pipeline one of its loops.
    """

    name: str
    marks: tuple[PlacedMark, ...]
    pipelined: bool

    @staticmethod
    def of(module: Any) -> TracedModule | None:
        """The first gpu.module with marks; None if there is none."""
        found = next((one for one in _gpu_modules(module) if TAG in one.attributes), None)
        marks = () if found is None else tuple(marks_in(found))
        if found is None or not marks:
            return None
        name = ir.StringAttr(found.attributes["sym_name"]).value
        return TracedModule(name, marks, any(map(is_pipelined, walk(found))))

    @property
    def selected(self) -> dict[str, str]:
        """Regions that a selection marked -> file:line."""
        return {one.mark.name: one.where for one in self.marks if one.mark.origin != "source"}

    @property
    def taken_apart(self) -> str:
        """Advice for a region that pipelining splits; empty if no loop is pipelined."""
        return _STAGES if self.pipelined else ""

    def removed(self, text: str) -> tuple[Problem, ...]:
        """A problem for names without a mark left in the PTX: their code is unreachable."""
        left = {mark.name for mark in map(parse, text.splitlines()) if mark is not None}
        names = sorted({one.mark.name for one in self.marks if one.mark.act in _RECORDS} - left)
        if not names:
            return ()
        listed = ", ".join(map(format_name, names))
        problem = f"the CuTe DSL compiler removed every mark of {listed}: unreachable code is the usual cause"
        return (Problem("removed", problem, len(names)),)


def walk(operation: Any) -> Iterator[Any]:
    """The operations inside an operation, in order."""
    for one in children(operation):
        yield one
        yield from walk(one)


def children(operation: Any) -> list[Any]:
    """The operations directly inside an operation, in order."""
    return [one.operation for region in operation.regions for block in region.blocks for one in block.operations]


def placed_mark(operation: Any) -> PlacedMark | None:
    """The mark of an operation; None for other operations."""
    if operation.name != "llvm.inline_asm":
        return None
    lines = ir.StringAttr(operation.attributes["asm_string"]).value.splitlines()
    mark = parse(lines[-1]) if lines else None
    return None if mark is None else PlacedMark(operation, mark, place_of(lines[0]))


def is_pipelined(operation: Any) -> bool:
    """True if an operation is a loop with prefetch_stages."""
    return operation.name == "scf.for" and _PIPELINED in operation.attributes


def skipped(region: str, where: str, reason: str) -> Problem:
    """The problem that a selected region is not recorded."""
    return Problem("skipped", f"region {format_name(region)} ({where}) is not recorded: {reason}", region=region)


def marks_in(operation: Any) -> Iterator[PlacedMark]:
    """The marks inside an operation, in order."""
    return (found for one in walk(operation) if (found := placed_mark(one)) is not None)


def adopt(module: Any, tag: str) -> None:
    """Let kernels without marks be lowered, too: what is recorded is found in their PTX. Idempotent.

    Args:
        module: before it is compiled, and before CuTe computes its key.
        tag: Recording.tag() of the options.
    """
    for found in _gpu_modules(module):
        if TAG in found.attributes and next(marks_in(found), None) is not None:
            continue
        for kernel in children(found):
            if "sym_name" in kernel.attributes and kernel.regions and len(kernel.regions[0].blocks):
                with ir.InsertionPoint.at_block_begin(kernel.regions[0].blocks[0]), kernel.location:
                    assembly(f"//\n\t{Mark('kernel', PIPELINE).comment()}", "~{memory}")
        found.attributes[TAG] = ir.StringAttr.get(tag, context=found.context)


def erase_selected(module: Any) -> None:
    """Remove the marks of a selection."""
    for one in list(marks_in(module.operation)):
        if one.mark.origin != "source":
            one.operation.erase()


def erase_marks(module: Any) -> None:
    """Remove all marks, and the attribute that announces them."""
    for found in _gpu_modules(module):
        for one in list(marks_in(found)):
            one.operation.erase()
        if TAG in found.attributes:
            del found.attributes[TAG]


def launch_streams(module: Any) -> tuple[int, ...] | None:
    """The streams that a module launches kernels into, by the number of the host function's argument.

    Returns:
        An empty tuple if all are the default stream; None if one is unknown.
    """
    host = [one.operation for one in module.body.operations if one.operation.name != "gpu.module"]
    launches = [one for function in host for one in walk(function) if one.name == _LAUNCH]
    streams = [[value for value in one.operands if str(value.type) == _STREAM] for one in launches]
    if not streams or any(len(one) != 1 for one in streams):
        return None
    numbers = {_argument(one[0]) for one in streams}
    known = {number for number in numbers if number is not None}
    return tuple(sorted(known - {_DEFAULT})) if known == numbers else None


def _argument(stream: Any) -> int | None:
    """The index of the host function's argument that is a stream; None if it is another value."""
    place = stream.owner
    if isinstance(place, ir.Block):
        function = getattr(place.owner, "operation", place.owner)
        return int(ir.BlockArgument(stream).arg_number) if function.name == _FUNCTION else None
    cast = getattr(place, "operation", place)
    if cast.name != _CAST or not hasattr(number := cast.operands[0].owner, "attributes"):
        return None
    return _DEFAULT if str(number.attributes["value"]).startswith("0 ") else None


def kernels(module: Any) -> list[tuple[str, str]]:
    """Symbol and file of each kernel of a module; the file is empty if it is unknown."""
    return [one for found in _gpu_modules(module) for one in _kernels(found)]


def kernels_without_marks(module: Any) -> list[tuple[str, str]]:
    """The same, of gpu.modules without marks."""
    bare = (one for one in _gpu_modules(module) if TAG not in one.attributes or next(marks_in(one), None) is None)
    return [kernel for found in bare for kernel in _kernels(found)]


def _kernels(module: Any) -> list[tuple[str, str]]:
    found = []
    for one in children(module):
        if "sym_name" in one.attributes:
            file = _FILE.search(str(one.location))
            found.append((ir.StringAttr(one.attributes["sym_name"]).value, file[1] if file else ""))
    return found


def restore(module: Any, copy: Any) -> None:
    """Replace the module's contents by those of a copy of its operation."""
    for one in list(module.body.operations):
        one.operation.erase()
    for one in list(copy.operation.regions[0].blocks[0].operations):
        module.body.append(one.operation.detach_from_parent())
    before = {_attribute(one) for one in copy.operation.attributes}
    for name in [_attribute(one) for one in module.operation.attributes]:
        if name not in before:
            del module.operation.attributes[name]


def _attribute(found: Any) -> str:
    """An attribute's name; before 4.8 iteration yields named attributes."""
    return str(getattr(found, "name", found))


def _gpu_modules(module: Any) -> Iterator[Any]:
    for operation in module.body.operations:
        if operation.operation.name == "gpu.module":
            yield operation.operation
