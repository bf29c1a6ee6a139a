"""The roles that Triton gives a kernel's warps: the partitions of ttg.warp_specialize."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from triton._C.libtriton import ir, passes

from kscope.capture.model import RoleMeta
from kscope.errors import UnsupportedError
from kscope.util.grouping import grouped

from . import inserting, irtext
from .irtext import Block, Operation
from .operations import SPECIALIZE, kinds

Partitions = tuple[str, ...]
"""The names of one operation's partitions, the default one first; empty where unknown."""
_CALL = re.compile(r'\btt\.call @"?([^"(]+)')
_STARTS = re.compile(r"\bwarpGroupStartIds = array<i32: ([\d, ]+)>")
_WARPS = re.compile(r"\bnum_warps\((\d+)\)")
_MODULE_WARPS = "ttg.num-warps"


def function_names(text: str) -> list[Partitions]:
    """The names of the functions that partitions call, before the compiler inlines them; of each ttg.warp_specialize
    in a printed module."""
    if SPECIALIZE not in text:
        return []
    return [tuple(_called(blocks) for blocks in _regions(one)) for one in _specialized(text)]


def roles(module: Any, named: Sequence[Partitions]) -> tuple[RoleMeta, ...]:
    """The partitions of a module's warps.

    Gluon's partitions are functions, and have their names. Those of automatic warp specialization are named after their
    work: load, mma, store; one that does several of these, or none, is ``default`` or ``partition 0``. A pass of the
    stage that makes LLVM IR assigns warps to partitions; here it runs on a copy.

    Args:
        module: Triton's, before the stage that makes LLVM IR.
        named: function_names() of its source.

    Returns:
        Roles in order of their first warp, without warps that have two; () for a kernel without partitions, or if this
        Triton does not show them.
    """
    text = module.str()
    if SPECIALIZE not in text:
        return ()
    try:
        plain, placed = _specialized(text), _specialized(_allocated(text, module.context).str())
    except (UnsupportedError, AttributeError, RuntimeError, TypeError):
        return ()
    of_warp: dict[int, set[str]] = {}
    known = named if len(named) == len(plain) else [()] * len(plain)
    for operation, where, names in zip(plain, placed, known, strict=True):
        for name, warps in _partitions(operation, where, names, module.get_int_attr(_MODULE_WARPS) or 0):
            for warp in warps:
                of_warp.setdefault(warp, set()).add(name)
    by_name = grouped((next(iter(names)), warp) for warp, names in sorted(of_warp.items()) if len(names) == 1)
    return tuple(RoleMeta(name, tuple(warps)) for name, warps in by_name.items())


def _allocated(text: str, context: Any) -> Any:
    """A copy of the module in which every partition has its warps."""
    copy = inserting.parsed(text, context)
    manager = ir.pass_manager(context)
    try:
        passes.ttgpuir.add_allocate_warp_groups(manager, False)
    except TypeError:  # earlier Triton has no option for its sanitizer
        passes.ttgpuir.add_allocate_warp_groups(manager)
    manager.run(copy, "kscope_allocate_warp_groups")
    return copy


def _specialized(text: str) -> list[Operation]:
    """The ttg.warp_specialize of a printed module."""
    every = (one for function in irtext.functions(text) for one in irtext.walk(Block("", [function.operation])))
    return [one for one in every if one.name == SPECIALIZE]


def _partitions(
    operation: Operation, placed: Operation, names: Partitions, default: int
) -> Iterator[tuple[str, range]]:
    """(name, warps) of each partition. The pass adds partitions of idle warps after them.

    Args:
        operation: a ttg.warp_specialize.
        placed: the same after the pass.
        names: of its partitions; empty ones are named after their work.
        default: warps of the default partition.
    """
    regions, starts = _regions(operation), _STARTS.search(placed.heading)
    if starts is None:
        return
    names = names if len(names) == len(regions) else ()
    for number, (blocks, start) in enumerate(zip(regions, (0, *map(int, starts[1].split(","))), strict=False)):
        size = _WARPS.search(blocks[0].opened)
        name = (names[number] if names else "") or _work(blocks, number)
        yield name, range(start, start + (int(size[1]) if size else default))


def _regions(operation: Operation) -> list[list[Block]]:
    """The blocks of an operation by region."""
    return list(grouped((block.opened, block) for block in operation.blocks).values())


def _called(blocks: Sequence[Block]) -> str:
    """The name of the function that a region calls first; empty if it calls none.

    Triton's names are module.function__types__constants, without dots in types and constants.
    """
    for operation in blocks[0].operations:
        if found := _CALL.search(operation.heading):
            name = found[1].rpartition(".")[2]
            leading = len(name) - len(name.lstrip("_"))
            return name[:leading] + name[leading:].partition("__")[0]
    return ""


def _work(blocks: Sequence[Block], number: int) -> str:
    """The work of a partition: load, mma or store; its number if it does several of these, or none."""
    done = {kind for block in blocks for one in irtext.walk(block) for kind in kinds(one)}
    loads, multiplies, stores = "load" in done, bool(done & {"mma", "dot"}), "store" in done
    if multiplies and not loads:
        return "mma"
    if loads != stores and not multiplies:
        return "load" if loads else "store"
    return f"partition {number - 1}" if number else "default"
