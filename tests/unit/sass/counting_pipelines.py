"""Counts the instructions that recording adds between the operations of a loop's pipeline: python -m
unit.sass.counting_pipelines, in tests/

For each loop of the kernels of bench/on_pipeline.py that waits for a barrier: inserted instructions, their cycles by
static stall counts, and how many of them wait for a store that was issued less than 40 cycles before. These are counted
by what the warp does next. Where that is the first product, or the arrival and the copies behind a wait for products,
the tensor cores or the next copies wait, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unittest.mock import patch

from kscope.errors import UnsupportedError
from kscope.sass.checks import kernel_check
from kscope.sass.cubin import insert, reading
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import Function, Instruction

from .test_pipeline import gluon, made, persistent

EVENTS = {
    "SYNCS.PHASECHK": "wait for a barrier",
    "HGMMA": "product",
    "WARPGROUP.DEPBAR": "wait for products",
    "SYNCS.ARRIVE": "arrival",
    "UTMALDG": "copy",
    "BAR": "barrier of the block",
    "BRA": "next iteration",
}
STORE, SOON = "STG", 40


@dataclass
class Added:
    """The instructions added before an operation."""

    instructions: int = 0
    cycles: int = 0
    waits: int = 0


def loops(text: str, tool: str) -> Iterator[list[tuple[str, Added]]]:
    """The instructions added in the loops that wait for a barrier: before each operation, in order."""
    kept: list[tuple[bytes, Function, Insertion]] = []
    check = kernel_check.check

    def checked(data: bytes, before: Function, insertion: Insertion, holding: object) -> None:
        check(data, before, insertion, holding)  # type: ignore[arg-type]  # as recorded() gives them
        kept.append((data, before, insertion))

    with patch.object(kernel_check, "check", checked):
        made.__wrapped__(text, tool, 1)
    data, before, insertion = kept[-1]
    (function,) = [one for one in reading.functions(data) if one.name == before.name]
    added = insert.inserted_addresses(before, insertion)
    own = (one.at for one in function.instructions if one.at not in added)
    was = dict(zip(own, before.instructions, strict=False))  # behind them is what fills the section
    ends = [one for one in function.instructions if one.at in was and one.name == "BRA" and one.target is not None]
    inside = {range(one.target or 0, one.at + 1) for one in ends if (one.target or 0) < one.at}
    for loop in sorted(inside, key=lambda one: one.start):
        code = [one for one in function.instructions if one.at in loop]
        if any(loop.start <= other.start and other.stop <= loop.stop and other != loop for other in inside):
            continue
        if sum(one.name == "SYNCS" for one in code) and len(code) > len(EVENTS):
            yield list(_parts(code, was))


def _parts(code: list[Instruction], was: dict[int, Instruction]) -> Iterator[tuple[str, Added]]:
    found, since = Added(), dict[int, int]()
    for one in code:
        stall, own = max(1, one.control.stall), was.get(one.at)
        found.waits += sum(since.pop(board, SOON) < SOON for board in one.control.waits)
        since = {board: cycles + stall for board, cycles in since.items()}
        if own is not None:
            found.cycles += stall - max(1, own.control.stall)
            event = next((name for code, name in EVENTS.items() if one.code.startswith(code)), None)
            if event is not None and (event != "next iteration" or one is code[-1]):
                yield event, found
                found = Added()
            continue
        found.instructions += 1
        found.cycles += stall
        if one.name == STORE and one.control.reads is not None:
            since[one.control.reads] = 0


def main() -> None:
    from triton.backends.nvidia.compiler import get_ptxas

    kernels = {"Gluon": gluon(), "persistent": persistent(False), "warp-specialized": persistent(True)}
    for name, text in kernels.items():
        try:
            found = list(loops(text, get_ptxas(90).path))
        except UnsupportedError as error:
            print(f"{name}: {error}")
            continue
        for number, parts in enumerate(found):
            total = Added(*(sum(getattr(one, key) for _, one in parts) for key in vars(Added())))
            print(f"{name}, loop {number}: {total}")
            for event, added in parts:
                if added.instructions or added.cycles:
                    print(f"    {event:24}{added.instructions:4}{added.cycles:5} cycles{added.waits:4} waits")


if __name__ == "__main__":
    main()
