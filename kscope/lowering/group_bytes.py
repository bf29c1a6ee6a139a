"""Bytes that each thread copies by cp.async for a group: from one commit to the next, on every path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..ptx import cfg
from ..util.graph_walks import settled

_COPY = re.compile(r"cp\.async\.c[ag]\.shared(?:::cta)?\.global\S*\s*\[[^\]]*\]\s*,\s*\[[^\]]*\]\s*,\s*(\w+)")
_ANY, _COMMIT = "cp.async.c", "cp.async.commit_group"
_UNKNOWN = -1


def group_bytes(function: cfg.Function, graph: Sequence[cfg.Block]) -> dict[int, int]:
    """Map the statement index of commits whose groups copy the same number of bytes on every path to that number.
    Predicated copies have an unknown size.
    """
    found: dict[int, int] = {}

    def onward(number: int, bytes: int) -> Iterator[tuple[int, int]]:
        block = graph[number]
        for i in range(block.first, block.last):
            statement = function.statements[i]
            code = function.text[statement.start : statement.end]
            if _ANY not in code:
                continue
            if _COMMIT in code:
                found[i], bytes = (bytes, 0) if not statement.predicate else (_UNKNOWN, _UNKNOWN)
            elif bytes != _UNKNOWN:
                copy = None if code.startswith("@") else _COPY.search(code)
                bytes = _UNKNOWN if copy is None else bytes + int(copy[1], 0)
        yield from ((other, bytes) for other in block.successors)

    settled({0: 0} if graph else {}, onward, lambda one, other: one if one == other else _UNKNOWN)
    return {i: count for i, count in found.items() if count > 0}
