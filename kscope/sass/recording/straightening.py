"""Makes the part of the claim that usually runs contiguous, because instruction caches prefetch along it.

ptxas leaves code that rarely runs (sampling, retries, the launch's entry) in between, and branches over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..cubin.control import Control, control
from ..cubin.insertion import New
from ..encoding import writing

_LONG = 12
"""A conditional branch over more instructions than this skips code that rarely runs."""


def straight(code: Sequence[New], arch: int) -> tuple[list[New], list[New]]:
    """Code without the parts that it usually branches over, and these parts.

    A branch over a part becomes a branch to it, under the opposite predicate; a branch back follows the part.
    """
    places = {one.label: number for number, one in enumerate(code) if one.label}
    row, aside, number = list[New](), list[New](), 0
    while number < len(code):
        one = code[number]
        target = places.get(one.to, 0) if isinstance(one.to, str) else 0
        if one.seen is None or one.seen.name != "BRA" or not one.seen.conditional or target - number <= _LONG:
            row.append(one)
            number += 1
            continue
        first = code[number + 1]
        label = first.label or f"aside {one.to}"
        guard = one.seen.guard
        contrary = f"@{guard[2:]}" if guard[1] == "!" else f"@!{guard[1:]}"
        row.append(_branch(contrary, label, one, arch))
        inner, deeper = straight([replace(first, label=label), *code[number + 2 : target]], arch)
        back = writing.new("BRA `()", Control(stall=5), to=one.to, arch=arch)
        aside += [*inner, back, *deeper]
        number = target
    return row, aside


def _branch(guard: str, to: str, like: New, arch: int) -> New:
    """A branch with the control code, and the label, of another one."""
    return replace(writing.new(f"{guard} BRA `()", control(like.word), to=to, arch=arch), label=like.label)
