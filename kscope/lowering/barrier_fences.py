"""Finds clock reads that follow a barrier, which get a fence before them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from operator import or_

from ..ptx import cfg
from ..util.graph_walks import settled

_BARRIER = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?(?:bar(?:\.cta)?|barrier(?:\.cta)?)\.(?:sync|red)\b")
_LOAD = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?(?:ldu?|tex|tld4|prefetch)\b")


def after_barriers(function: cfg.Function, graph: Sequence[cfg.Block], without: Collection[str] = ()) -> frozenset[int]:
    """Statement indices of marks and returns that may directly follow a barrier on some path.

    docs/design/performance.md has the effect of a read without a fence.

    Directly means with nothing between them that the assembler keeps after barriers and before clock reads; it may move
    loads.

    Args:
        function: the function.
        graph: its basic blocks.
        without: names that are not recorded, whose marks read no clock.
    """

    found: set[int] = set()

    def onward(number: int, after: bool) -> Iterator[tuple[int, bool]]:
        block = graph[number]
        for i in range(block.first, block.last):
            statement = function.statements[i]
            clock = statement.sort == "leave" or (
                statement.mark is not None
                and statement.mark.act not in ("pin", "kernel")
                and statement.mark.name not in without
            )
            if clock and after:
                found.add(i)
            if _BARRIER.match(function.text, statement.start, statement.end):
                after = True
            elif clock or statement.sort in ("wait", "call") or _holds(statement, function.text):
                after = False
        yield from ((other, after) for other in block.successors)

    settled(dict.fromkeys(range(len(graph)), False), onward, or_)
    return frozenset(found)


def _holds(statement: cfg.Statement, text: str) -> bool:
    """True if the assembler keeps a statement in place among barriers and clock reads: an access that is not a load."""
    return statement.sort == "access" and not _LOAD.match(text, statement.start, statement.end)
