"""What Triton's operations do: of which kind each is, and which are only arithmetic."""

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
"""Kinds of an operation, the narrowest first."""
LOOPS = ("scf.for", "scf.while")
SPECIALIZE = "ttg.warp_specialize"

_QUIET = re.compile(
    r"arith\.|ub\.|ttg\.memdesc_|ttg\.async_commit_group|ttg\.global_scratch_alloc|ttg\.local_dealloc"
    r"|ttng\.reinterpret_tensor_descriptor|ttng\.tmem_subslice|ttng\.in(?:it|val)_barrier"
    r"|tt\.(?:splat|unsplat|broadcast|expand_dims|make_range|addptr|get_program_id|get_num_programs|reshape|bitcast"
    r"|ptr_to_int|int_to_ptr|trans|join|split)$"
)
"""Indices, addresses, views, and what is set up once."""
_FLOATS = re.compile(r"arith\.(?:\w+f|select|[su]itofp|fpto[su]i)$")
_TRITON = str(Path(triton.__file__).parent)


def kinds(operation: Operation) -> tuple[str, ...]:
    """What an operation is, the narrowest word first; () where it has none."""
    return KINDS.get(operation.name, ())


def waits(operation: Operation) -> bool:
    """Whether the operation waits for something asynchronous."""
    return "wait" in kinds(operation)


def quiet(operation: Operation) -> bool:
    """Whether the operation is no work that a range of lines would be about: addresses, indices, constants."""
    if operation.name.startswith("arith.") and _FLOATS.match(operation.name) and "tensor<" in operation.heading:
        return False
    if operation.name in ("ttg.local_alloc", "ttng.tmem_alloc"):  # with an operand they write
        return f"{operation.name} %" not in operation.heading
    return _QUIET.match(operation.name) is not None


def marks_of(operation: Operation) -> list[Mark]:
    """The marks that an operation is: one, or those of an `if` that holds nothing else (placing.py)."""
    if operation.name == "scf.if":
        inner = [one for block in operation.blocks for one in block.operations if one.name != "scf.yield"]
        return [mark for one in inner for mark in marks_of(one)] if inner and all(map(marks_of, inner)) else []
    mark = mark_in(operation.heading)
    return [] if mark is None else [mark]


def mark_in(line: str) -> Mark | None:
    """The mark in a line of the IR."""
    return parse(line.partition('"')[2].partition('"')[0]) if PREFIX in line else None


def own(places: Places) -> Place | None:
    """The innermost place in code that is not Triton's own library."""
    return next((place for place in places if not place.file.startswith(_TRITON)), places[0] if places else None)


def unplaced(places: Places, around: Iterable[Places]) -> bool:
    """Whether the compiler made an operation that has no line of its own: none, or that of a loop or function
    around it."""
    mine = own(places)
    return mine is None or any(mine == own(outer) for outer in around)
