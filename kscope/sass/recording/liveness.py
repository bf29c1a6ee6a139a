"""Liveness: the registers with values that the code still reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..checks import hazards
from ..cubin.instructions import Instruction


def live(
    code: Sequence[Instruction],
    reads: Callable[[Instruction], frozenset[str]] = lambda one: one.reads,
    ways: Callable[[Instruction], Iterable[int]] = hazards.successors,
) -> dict[int, frozenset[str]]:
    """The registers that are live before each instruction, by its address.

    Args:
        code: the instructions.
        reads: the registers that an instruction reads, as far as they matter.
        ways: the addresses of the instructions that may run next.
    """
    found = {one.at: frozenset[str]() for one in code}
    changed = True
    while changed:
        changed = False
        for one in reversed(code):
            after = frozenset[str]().union(*(found.get(to, frozenset()) for to in ways(one)))
            here = reads(one) | (after if one.conditional else after - one.writes)
            if here != found[one.at]:
                found[one.at], changed = here, True
    return found
