"""Operations on pipelines that auto="pipeline" records: the names and values of their records.

name    pipeline expect bytes=32768 gemm.py:46
                 kind   fixed fields  place, or #number where it is unknown
value   the barrier, in 32 bits:

          31..24        23..19          18        17..0
        +-------+------------------+--------+----------------+
        | block | active lanes - 1 | parity | shared address |
        +-------+------------------+--------+----------------+
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

PIPELINE = "pipeline"
"""The kind of auto= and the how of its marks, the first word of names, and the kind of problems."""
Operation = Literal["init", "wait", "arrive", "expect", "expect_tx", "copy", "follow", "bytes", "commit", "drain"]
"""init: mbarrier.init. wait: a wait that ended. arrive: arrivals. expect: an arrival that also expects bytes.
expect_tx: expects bytes without arriving. copy: a bulk copy that completes at the barrier. follow: an arrival that the
hardware makes when earlier work of the thread completes. bytes: the value is a number of bytes, of the record of the
same lane directly before, whose code does not fix it.

commit, drain: of groups, without a barrier; the value has the recording lane instead of the block, because groups
belong to a lane, or to lane 0 where a warp executes them as one (wgmma). A commit has the active lanes, and in its name
the bytes that each of them copies, if its code shows them; a drain has the number of groups that may stay in flight
instead of an address.
"""

ADDRESS_BITS, PARITY_SHIFT, LANES_SHIFT, BLOCK_SHIFT = 18, 18, 19, 24
ADDRESS_MASK, BLOCK_MASK = (1 << ADDRESS_BITS) - 1, 0xFF << BLOCK_SHIFT

_NUMBERS = ("count", "bytes", "copies", "copied", "commits")
OF_WARP = "wgmma"
"""Instructions that a warp executes as one: its lane 0 records their groups."""

_NAME = rf"{PIPELINE} ({'|'.join(get_args(Operation))})((?: [a-z]+=[\w.]+)*)(?: (?:(\S.*:\d+)|#\d+))?"


@dataclass(frozen=True)
class Named:
    """The operation that a name describes.

    Attributes:
        operation: the kind.
        count: arrivals of a phase, for an init; arrivals of each lane, for arrivals.
        bytes: bytes that it expects or copies; None if its code does not fix them.
        copies: copies of the same lane that follow directly and are part of the record; a copy counts itself, too.
        copied: their bytes; None if their code does not fix them.
        multicast: the copy goes to several blocks of the cluster.
        of: the instruction of a group, such as "wgmma".
        commits: groups that were committed directly before a drain, and are part of its record.
        where: file:line without folders; empty if it is unknown.
    """

    operation: Operation
    count: int = 1
    bytes: int | None = None
    copies: int = 0
    copied: int | None = None
    multicast: bool = False
    of: str = ""
    commits: int = 0
    where: str = ""


def operation_name(operation: Operation, place: str, **fixed: int | str) -> str:
    """The name of an operation's records. place: file:line or #number."""
    return " ".join([PIPELINE, operation, *(f"{key}={value}" for key, value in fixed.items()), place])


@lru_cache
def of_name(name: str) -> Named | None:
    """The operation that a region's name describes; None for other names."""
    found = re.fullmatch(_NAME, name) if name.startswith(PIPELINE) else None
    if found is None:
        return None
    fixed = dict(word.split("=") for word in found[2].split())
    numbers = {key: int(fixed[key]) for key in _NUMBERS if fixed.get(key, "").isdecimal()}
    return Named(
        found[1],  # type: ignore[arg-type]  # the pattern matches only these values
        **numbers,
        multicast="multicast" in fixed,
        of=fixed.get("of", ""),
        where=found[3] or "",
    )


@dataclass(frozen=True)
class Barrier:
    """The parts of a value: the barrier's shared address, the rank in its cluster of the block whose shared memory has
    it, as in the upper byte of every shared address, and the parity, for a wait the awaited one.
    """

    address: int
    parity: int
    block: int


def barrier(value: int) -> Barrier:
    """The barrier of a record's value."""
    return Barrier(value & ADDRESS_MASK, value >> PARITY_SHIFT & 1, value >> BLOCK_SHIFT & 0xFF)
