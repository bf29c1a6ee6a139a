"""Loops that repeat a wait until it succeeds: each becomes one region, from its first try to its end.

{ .reg .pred done;                         { .reg .pred done;
AGAIN: mbarrier.try_wait... done, ...;     AGAIN: mbarrier.try_wait... done, ...;
@!done bra AGAIN; }                        @done bra DONE; bra AGAIN; DONE: }
"""

from __future__ import annotations

import re

from ..ptx import cfg

_WORD = re.compile(r"[%$A-Za-z_][\w$]*")
_INTO = re.compile(r"(?:@!?\s*[%\w$]+\s+)?[\w.:]+\s+(\{[^}]*\}|[^,\[;]+)")
_MOST = 16
"""Statements of such a loop."""


def around(function: cfg.Function, wait: int) -> tuple[int, int] | None:
    """The offsets of a loop around a wait; None if it does more, or may be entered elsewhere.

    Args:
        function: the kernel.
        wait: index of the instruction that waits.
    """
    statements, text = function.statements, function.text
    first = wait
    while statements[first].sort != "label":
        first -= 1
        if first < 0 or wait - first > _MOST or statements[first].sort not in ("other", "label"):
            return None
    label = statements[first]
    read = set(_WORD.findall(text[statements[wait].start : statements[wait].end].partition(",")[2]))
    written = (_INTO.match(text, one.start, one.end) for one in statements[first + 1 : wait])
    if any(found and read.intersection(_WORD.findall(found[1])) for found in written):
        return None
    last = wait + 1
    while last < len(statements) and statements[last].sort == "other" and last - wait < _MOST:
        last += 1
    if last >= len(statements) or statements[last].sort != "jump" or not statements[last].predicate:
        return None
    if statements[last].name == label.name:
        end = statements[last].end
    else:
        if last + 2 >= len(statements):
            return None
        back, done = statements[last + 1], statements[last + 2]
        if (back.sort, back.name, back.predicate) != ("jump", label.name, "") or done.sort != "label":
            return None
        if done.name != statements[last].name or _jumps_to(function, done) != 1:
            return None
        end = done.end
    return (label.start, end) if _jumps_to(function, label) == 1 else None


def _jumps_to(function: cfg.Function, label: cfg.Statement) -> int:
    """Number of visible jumps to a label; labels in braces of one text have one name each."""
    depth = label.scope[-1] if label.scope else function.open
    inside = [one for one in function.statements if not label.scope or depth in one.scope]
    return sum(
        len(re.findall(rf"(?<![\w$]){re.escape(label.name)}(?![\w$])", function.text[one.start : one.end]))
        for one in inside
        if one.sort in ("jump", "other", "call")
    )
