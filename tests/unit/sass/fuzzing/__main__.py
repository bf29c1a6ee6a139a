"""Random kernels, recorded in machine code and judged: python -m unit.sass.fuzzing --cases N --seed S, in tests/

Prints each failure with its seed and PTX; at the end, or at Ctrl+C, how many kernels were recorded, refused and wrong,
and why. --shrink: a smaller kernel of each failure. Needs ptxas and nvdisasm.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from . import batches, texts
from .cases import Drawn, drawn
from .judging import Verdict, verdict, watched
from .shrinking import shrunk

_AT_ONCE = 50
"""Cases of one batch."""


def judged(seeds: Sequence[int], arch: int = 90) -> Iterator[tuple[Drawn, Verdict]]:
    """The cases of some seeds, and what became of them."""
    with watched():
        for first in range(0, len(seeds), _AT_ONCE):
            some = [drawn(seed, arch) for seed in seeds[first : first + _AT_ONCE]]
            yield from zip(some, batches.mapped(verdict, some), strict=True)


def summary(found: Sequence[Verdict]) -> str:
    """How many cases became what."""
    reasons = Counter(one.reason for one in found if one.refused)
    recorded = [one for one in found if not one.refused and not one.wrong]
    lines = [
        f"{len(found)} cases: {len(recorded)} recorded, {sum(bool(one.refused) for one in found)} refused (of these"
        f" {sum(one.rejected for one in found)} rejected by a checker), {sum(bool(one.wrong) for one in found)} wrong;"
        f" {sum(one.renamed for one in recorded)} recorded with other registers;"
        f" {sum(one.records for one in recorded)} records"
    ]
    return "\n".join((*lines, *(f"{many:6} {reason}" for reason, many in reasons.most_common())))


def main() -> int:
    """The exit code: 1 if a case is wrong."""
    parser = argparse.ArgumentParser(prog="python -m unit.sass.fuzzing", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="how many kernels")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; the others follow")
    parser.add_argument("--arch", type=int, default=90, help="compute capability, such as 80 and 90")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller kernel that fails as well")
    options = parser.parse_args()
    found = list[Verdict]()
    with suppress(KeyboardInterrupt):
        for case, what in judged(range(options.seed, options.seed + options.cases), options.arch):
            found.append(what)
            if what.wrong or what.rejected:
                print(f"seed {case.seed}: {what.wrong or what.refused}", flush=True)
            if what.wrong:
                small, same = shrunk(case) if options.shrink else (case, what)
                print(f"{same.wrong}\n{small}\n{texts.text(small.outline)}", flush=True)
    print(summary(found))
    return any(one.wrong for one in found)


if __name__ == "__main__":
    sys.exit(main())
