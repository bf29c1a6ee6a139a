"""Where a kernel may store an anchor among its records (ptx/anchor.py): once per iteration of each loop with marks."""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..ptx import cfg


def sites(function: cfg.Function, graph: Sequence[cfg.Block], stores: Set[int]) -> frozenset[int]:
    """For each loop, the statement at the end of its last block with records.

    A loop whose records are all in inner loops has none. An anchor takes fifteen instructions of machine code, so each
    unrolled copy of a region cannot have one.

    Args:
        function, graph: the kernel and its blocks.
        stores: statement indices of marks that end records.
    """
    blocks = {n for n, block in enumerate(graph) if not stores.isdisjoint(range(block.first, block.last))}
    return frozenset(_end(function, graph[n]) for n in _last_ones(graph, blocks, frozenset(range(len(graph)))))


def _last_ones(graph: Sequence[cfg.Block], blocks: Set[int], within: Set[int]) -> set[int]:
    found: set[int] = set()
    for loop in cfg.cycles(graph, within):
        inner = frozenset(loop) - {min(loop)}
        found |= _last_ones(graph, blocks, inner) if inner else set()
        own = {*loop}.intersection(blocks).difference(*cfg.cycles(graph, inner))
        found |= {max(own)} if own else set()
    return found


def _end(function: cfg.Function, block: cfg.Block) -> int:
    return block.last - (function.statements[block.last - 1].sort in ("jump", "leave"))
