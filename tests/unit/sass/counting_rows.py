"""How many instructions record in the main loops of kernels of the benchmarks, with rows of three clocks and without:
python -m unit.sass.counting_rows, in tests/
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from gpu.sass_kernels import made

from kscope.sass.checks import kernel_check
from kscope.sass.cubin import insert, reading
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import Function
from kscope.sass.recording import rows

KERNELS = {"matmul": "dot", "attention": "pv", "persistent": "dot", "splitk": "dot"}
"""The last region of a turn of each kernel's main loop."""


def counted(name: str, alone: bool) -> tuple[Counter[str], int]:
    """The instructions that record in the main loop, by opcode, and registers a thread."""
    kept: list[tuple[bytes, Function, Insertion]] = []

    def check(data: bytes, before: Function, insertion: Insertion, holding: object) -> None:
        kept.append((data, before, insertion))

    def single(*given: object) -> rows.Plan:
        text, _, found, spots, pairs, _ = given
        return rows.alone(text, found, spots, pairs)  # type: ignore[arg-type]  # as planned() gets them

    with patch.object(kernel_check, "check", check), patch.object(rows, "planned", single if alone else rows.planned):
        registers = made.__wrapped__(name).recorded.registers[1]
    ((data, before, insertion),) = kept
    (function,) = [one for one in reading.functions(data) if one.name == before.name]
    added = insert.inserted_addresses(before, insertion)
    (last, *_) = [
        at
        for at, new in added.items()
        if new.word_of is not None
        and new.word_of.kind != "always"  # those are of the claim
        and KERNELS[name] in new.word_of.record[0].split(", ")
    ]
    loops = [
        range(one.target, one.at)
        for one in function.instructions
        if one.name == "BRA" and one.target is not None and one.target <= last < one.at and one.at not in added
    ]
    loop = min(loops, key=len)
    names = {one.at: one.name for one in function.instructions}
    return Counter(names[at] for at, new in added.items() if at in loop and new.word_of is not None), registers


def main() -> None:
    for name in KERNELS:
        for alone in (True, False):
            found, registers = counted(name, alone)
            shown = ", ".join(f"{code} {many}" for code, many in sorted(found.items()))
            print(f"{name:12}{'records' if alone else 'rows':9}{found.total():4}  registers {registers}  {shown}")


if __name__ == "__main__":
    main()
