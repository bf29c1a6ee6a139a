"""Pairing is checked, not assumed: which regions are open where, over every path of a kernel.

Records exist only at an exit, so a mark that a compiler deleted, a region left open, or a name entered
again while it is open would give silence or a stale start. A forward pass finds each before any
instruction is emitted. What lives here: that pass, and the depth that it gives each mark. What does
not: reading PTX (cfg.py), and what is done about a fault (plan.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cfg import Block, Statement

Open = tuple[tuple[str, int], ...]
"""Names that are open, sorted, each with how many times."""


@dataclass(frozen=True)
class Fault:
    """One way in which a region does not pair; `source` = (file number, line), (0, 0) = not known."""

    name: str
    text: str
    source: tuple[int, int]


@dataclass(frozen=True)
class Pairing:
    """depths: for each enter and exit, by statement index, how many of its name were open outside it."""

    depths: dict[int, int]
    faults: tuple[Fault, ...]


def check(statements: Sequence[Statement], graph: Sequence[Block]) -> Pairing:
    """Follows every path. Faults: open on one path only, open at the kernel's end, exit without enter."""
    depths: dict[int, int] = {}
    faults: dict[tuple[str, str], Fault] = {}
    at_entry: dict[int, Open] = {0: ()}
    work = [0] if graph else []
    while work:
        number = work.pop()
        block, state = graph[number], dict(at_entry[number])
        for i in range(block.first, block.last):
            statement = statements[i]
            if statement.mark is not None:
                _step(i, statement, state, depths, faults)
            elif statement.sort == "leave":
                for name, count in state.items():
                    if count:
                        _fault(faults, name, "is still open where the kernel returns", statement.source)
        after = _freeze(state)
        for successor in block.successors:
            if successor not in at_entry:
                at_entry[successor] = after
                work.append(successor)
            elif at_entry[successor] != after:
                source = statements[graph[successor].first].source
                for name in _differing(at_entry[successor], after):
                    _fault(faults, name, "is open on one path and closed on another where they meet", source)
    return Pairing(depths, tuple(faults.values()))


def _step(
    i: int, statement: Statement, state: dict[str, int], depths: dict[int, int], faults: dict[tuple[str, str], Fault]
) -> None:
    mark = statement.mark
    assert mark is not None
    if mark.act == "enter":
        depths[i] = state.get(mark.name, 0)
        state[mark.name] = depths[i] + 1
    elif mark.act == "exit":
        depths[i] = state.get(mark.name, 0) - 1
        if depths[i] < 0:
            depths[i] = 0
            _fault(faults, mark.name, "is left without having been entered", statement.source)
        state[mark.name] = depths[i]


def _fault(faults: dict[tuple[str, str], Fault], name: str, text: str, source: tuple[int, int]) -> None:
    faults.setdefault((name, text), Fault(name, text, source))


def _freeze(state: dict[str, int]) -> Open:
    return tuple(sorted((name, count) for name, count in state.items() if count))


def _differing(one: Open, other: Open) -> Iterable[str]:
    return sorted({name for name, _ in set(one) ^ set(other)})
