"""Which clock reads stand behind a barrier: those wait for it in so many words.

From sm_90 on the assembler lets a clock be read in the shadow of a barrier: BAR.SYNC takes six cycles to hold the warp,
and a read, which depends on nothing, is issued in the next one. It then says when the warp came, not when it
went on: of a region around a barrier nothing is left, and what follows begins too early (on an H200 warps seemed
2,066 cycles apart behind a barrier where one had worked for 2,000). What lives here: where that can be. What does
not: what helps (ptx.settle()), and finding statements (cfg.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from . import cfg

_BARRIER = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?(?:bar(?:\.cta)?|barrier(?:\.cta)?)\.(?:sync|red)\b")
_LOAD = re.compile(r"\s*(?:@!?\s*[%\w$]+\s+)?(?:ldu?|tex|tld4|prefetch)\b")


def behind_barriers(
    function: cfg.Function, graph: Sequence[cfg.Block], without: Collection[str] = ()
) -> frozenset[int]:
    """Indices of marks and of exits that a barrier may stand right before, on some path: with nothing in between
    that the assembler keeps behind barriers and before clock reads. Loads are not, as it may move them. without: names
    that are not recorded, whose marks read no clock."""

    def walk(block: cfg.Block, behind: bool) -> bool:
        for i in range(block.first, block.last):
            statement = function.statements[i]
            clock = statement.sort == "leave" or (
                statement.mark is not None
                and statement.mark.act not in ("pin", "kernel")
                and statement.mark.name not in without
            )
            if clock and behind:
                found.add(i)
            if _BARRIER.match(function.text, statement.start, statement.end):
                behind = True
            elif clock or statement.sort in ("wait", "call") or _holds(statement, function.text):
                behind = False
        return behind

    found: set[int] = set()
    entered = [False] * len(graph)
    work = list(range(len(graph)))
    while work:
        n = work.pop()
        if walk(graph[n], entered[n]):
            for successor in graph[n].successors:
                if not entered[successor]:
                    entered[successor] = True
                    work.append(successor)
    return frozenset(found)


def _holds(statement: cfg.Statement, text: str) -> bool:
    """Whether the assembler keeps it where it is among barriers and clock reads: an access that is not a load."""
    return statement.sort == "access" and not _LOAD.match(text, statement.start, statement.end)
