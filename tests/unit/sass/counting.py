"""How many instructions a warp executes to record: python -m unit.sass.counting, in tests/

Counted by running the machine code of test_runs.py's kernel in the interpreter: a warp that claims at once, and one at
rest. A warp's begin, claim and end are the same in every kernel but for what registers it has; a region depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from sassvm.launching import Case, launched
from sassvm.machine import Warp

from kscope.sass.checks import kernel_check
from kscope.sass.cubin import insert
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import BYTES, Function

from .kernels import ASSEMBLERS
from .test_recording import made
from .test_runs import KERNEL, SIZED, case

PIPES = {
    "memory": ("LDG", "STG", "ATOMG", "REDG"),
    "special": ("S2R", "S2UR", "CS2R", "LDC", "VOTE", "SHFL", "POPC"),
    "control": ("BRA", "EXIT", "BSSY", "BSYNC"),
}


def parts(of: Case) -> dict[int, str]:
    """The part of each inserted instruction, by its address."""
    kept: list[tuple[Function, Insertion]] = []

    def check(data: bytes, before: Function, insertion: Insertion, holding: object) -> None:
        kept.append((before, insertion))

    with patch.object(kernel_check, "check", check):
        made.__wrapped__(ASSEMBLERS[0], of.text, of.kernel, bool(of.cubin))
    ((before, insertion),) = kept
    leaves = [
        id(new)
        for at, some in insertion.before.items()
        if before.instructions[at // BYTES].name == "EXIT"
        for new in some
    ]
    added = insert.inserted_addresses(before, insertion)
    tail = sorted(added)[-len(insertion.tail) :]
    (*_, end) = [number for number, new in enumerate(insertion.tail) if new.label == "end"]
    found = {}
    for at, new in added.items():
        if new.word_of is not None:
            found[at] = "records"
        elif at in tail:
            found[at] = "claim" if at < tail[end] else "end"
        else:
            found[at] = "exits" if id(new) in leaves else "begin and test"
    return found


def counts(warp: Warp, where: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Part and pipe of each instruction that a warp executed."""
    names = {one.at: one.name for one in warp.function.instructions}
    for at in warp.executed:
        pipe = next((pipe for pipe, some in PIPES.items() if names[at] in some), "")
        yield where.get(at, "own"), pipe or ("uniform" if names[at][0] == "U" else "computing")


def main() -> None:
    for title, of in (("a size for all", case("", KERNEL)), ("sizes by launch", case("", SIZED))):
        where = parts(of)
        for state, epoch in (("recording", 7), ("at rest", 0)):
            found = Counter(counts(launched(replace(of, epoch=epoch)).warps[4], where))
            print(f"{title}, {state}")
            for part in ("own", "begin and test", "claim", "records", "exits", "end"):
                row = {pipe: n for (name, pipe), n in sorted(found.items()) if name == part}
                print(f"  {part:16}{sum(row.values()):5}  " + ", ".join(f"{pipe} {n}" for pipe, n in row.items()))


if __name__ == "__main__":
    main()
