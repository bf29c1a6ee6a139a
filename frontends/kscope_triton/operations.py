"""Triton's operations: the kind of each, and those that only compute addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import triton

from kscope.marks.grammar import PREFIX, Mark, parse

from .irtext import Operation, Place, Places

_TMA_READ, _TMA_WRITE = ("tma", "load"), ("tma", "store")
_WAIT, _BARRIER, _MMA, _LOAD, _STORE = ("wait",), ("barrier",), ("mma", "dot"), ("load",), ("store",)
BARRIERS = ("gpu.barrier", "ttg.barrier", "ttg.local_barrier")
KINDS: dict[str, tuple[str, ...]] = {
    "ttg.async_wait": ("async_wait", "wait"),
    **dict.fromkeys(("ttng.wait_barrier", "ttng.warp_group_dot_wait", "ttng.async_tma_store_wait"), _WAIT),
    **dict.fromkeys(("ttng.tmem_wait", "tt.grid_dependency_wait", "ttng.clc_load_result"), _WAIT),
    **dict.fromkeys(("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather"), _TMA_READ),
    **dict.fromkeys(("tt.descriptor_load", "tt.descriptor_gather"), _TMA_READ),
    **dict.fromkeys(("ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter"), _TMA_WRITE),
    **dict.fromkeys(("ttng.async_tma_reduce", "tt.descriptor_store", "tt.descriptor_scatter"), _TMA_WRITE),
    "tt.descriptor_reduce": _TMA_WRITE,
    "ttng.warp_group_dot": ("wgmma", "dot"),
    **dict.fromkeys(("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled", "tt.dot", "tt.dot_scaled"), _MMA),
    **dict.fromkeys(("tt.load", "ttg.async_copy_global_to_local", "tt.atomic_load", "tt.atomic_poll"), _LOAD),
    **dict.fromkeys(("tt.store", "tt.atomic_store", "tt.atomic_rmw", "tt.atomic_cas"), _STORE),
    **dict.fromkeys(BARRIERS, _BARRIER),
    **dict.fromkeys(
        ("ttng.arrive_barrier", "ttng.barrier_expect", "ttng.async_copy_mbarrier_arrive", "ttng.tc_gen5_commit"),
        _BARRIER,
    ),
    **dict.fromkeys(("ttng.cluster_arrive", "ttng.cluster_wait", "ttng.cluster_barrier"), _BARRIER),
    "scf.for": ("loop",),
    "scf.while": ("loop",),
}
"""Operation -> its kinds, the narrowest first."""
LOOPS = ("scf.for", "scf.while")
SPECIALIZE = "ttg.warp_specialize"

_QUIET = re.compile(
    r"arith\.|ub\.|ttg\.memdesc_|ttg\.async_commit_group|ttg\.global_scratch_alloc|ttg\.local_dealloc"
    r"|ttng\.reinterpret_tensor_descriptor|ttng\.tmem_subslice|ttng\.in(?:it|val)_barrier"
    r"|tt\.(?:splat|unsplat|broadcast|expand_dims|make_range|addptr|get_program_id|get_num_programs|reshape|bitcast"
    r"|ptr_to_int|int_to_ptr|trans|join|split)$"
)
"""Indices, addresses, views, and one-time setup."""
_OPERANDS = ("ttg.local_load", "ttg.convert_layout", "tt.fp_to_fp")
"""Operations that bring operands of matrix products into registers, or into another layout there."""
_FLOATS = re.compile(r"arith\.(?:\w+f|select|[su]itofp|fpto[su]i)$")
_TRITON = str(Path(triton.__file__).parent)


def kinds(operation: Operation) -> tuple[str, ...]:
    """An operation's kinds, the narrowest first; () for others."""
    return KINDS.get(operation.name, ())


def waits(operation: Operation) -> bool:
    """True if an operation waits for something asynchronous."""
    return "wait" in kinds(operation)


def is_bookkeeping(operation: Operation) -> bool:
    """True if an operation only computes addresses, indices or constants, which no range of lines selects."""
    if operation.name.startswith("arith.") and _FLOATS.match(operation.name) and "tensor<" in operation.heading:
        return False
    if operation.name in ("ttg.local_alloc", "ttng.tmem_alloc"):  # with an operand they store
        return f"{operation.name} %" not in operation.heading
    return _QUIET.match(operation.name) is not None


def is_operand(operation: Operation) -> bool:
    """True if an operation only brings a value into registers, or into another layout there."""
    return operation.name in _OPERANDS


def marks_of(operation: Operation) -> list[Mark]:
    """The marks in an operation: one, or those of an `if` that contains nothing else (emit.py)."""
    if operation.name == "scf.if":
        inner = [one for block in operation.blocks for one in block.operations if one.name != "scf.yield"]
        return [mark for one in inner for mark in marks_of(one)] if inner and all(map(marks_of, inner)) else []
    mark = mark_in(operation.heading)
    return [] if mark is None else [mark]


def mark_in(line: str) -> Mark | None:
    """The mark in a line of the IR, None without one."""
    return parse(line.partition('"')[2].partition('"')[0]) if PREFIX in line else None


def users_place(places: Places) -> Place | None:
    """The innermost place outside Triton's library."""
    return next((place for place in places if not place.file.startswith(_TRITON)), places[0] if places else None)


def unplaced(places: Places, around: Iterable[Places]) -> bool:
    """True if an operation has no line of its users_place: none at all, or that of a loop or function around it."""
    mine = users_place(places)
    return mine is None or any(mine == users_place(outer) for outer in around)
