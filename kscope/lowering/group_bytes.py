"""How many bytes each thread copies by cp.async for a group: from one commit to the next, on every path."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..ptx import cfg

_COPY = re.compile(r"cp\.async\.c[ag]\.shared(?:::cta)?\.global\S*\s*\[[^\]]*\]\s*,\s*\[[^\]]*\]\s*,\s*(\w+)")
_ANY, _COMMIT = "cp.async.c", "cp.async.commit_group"
_UNKNOWN = -1


def group_bytes(function: cfg.Function, graph: Sequence[cfg.Block]) -> dict[int, int]:
    """Commits, by the index of their statement, whose groups copy the same number of bytes on every path, and that
    number. What is copied under a predicate is not known.
    """
    before: dict[int, int] = {0: 0}
    found: dict[int, int] = {}
    ahead = [0] if graph else []
    while ahead:
        number = ahead.pop()
        block, bytes = graph[number], before[number]
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
        for other in block.successors:
            known = before.get(other)
            after = bytes if known is None or known == bytes else _UNKNOWN
            if after != known:
                before[other] = after
                ahead.append(other)
    return {i: count for i, count in found.items() if count > 0}
