"""Claims of a kernel whose warps part at its entry."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest.mock import patch

from kscope.errors import UnsupportedError
from kscope.sass.checks import kernel_check
from kscope.sass.cubin.insertion import Insertion
from kscope.sass.cubin.instructions import BYTES, Function
from kscope.sass.recording import partitions

from .kernels import needs_tools
from .test_pipeline import gluon, made, persistent

pytestmark = needs_tools


@contextmanager
def kept() -> Generator[list[tuple[Function, Insertion]]]:
    """The insertions that are checked, without the check."""
    found = list[tuple[Function, Insertion]]()
    with patch.object(
        kernel_check, "check", lambda data, before, insertion, holding: found.append((before, insertion))
    ):
        yield found


def claims(insertion: Insertion) -> dict[int, int]:
    """Where the tests of claims stand, and how many of these instructions are in front of the first store."""
    found = dict[int, int]()
    for at, some in insertion.before.items():
        names = [one.seen.name if one.seen else "" for one in some]
        if any(str(one.to).startswith("claim") for one in some):
            found[at] = names.index("STG") if "STG" in names else len(names)
    return found


def tool() -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    return str(get_ptxas(90).path)


def test_warps_that_copy_claim_at_once_and_those_that_multiply_behind_the_barriers_that_they_initialize() -> None:
    with kept() as found:
        made.__wrapped__(gluon(), tool())
    function, insertion = found[-1]
    at = claims(insertion)
    stores = {
        place: sum(one.seen is not None and one.seen.name == "STG" for one in insertion.before[place]) for place in at
    }
    assert sorted(stores.values()) == [0, 8]
    (late,) = [place for place, many in stores.items() if many]
    (early,) = at.keys() - {late}
    entry = next(one for one in function.instructions if one.name == "BRA")
    assert early in (entry.at + BYTES, entry.target)
    assert function.instructions[late // BYTES].name == "BRA"
    assert any(one.name == "BAR" for one in function.instructions[late // BYTES - 20 : late // BYTES])


def test_each_way_writes_only_the_ids_that_it_needs() -> None:
    with kept() as found:
        made.__wrapped__(gluon(), tool())
    _, insertion = found[-1]
    ids = [one for one in insertion.tail if one.word_of is not None and one.word_of.kind == "always"]
    records = [one.word_of.record for one in ids if one.word_of]
    assert len(records) < 2 * 2 * len(set(records))


def test_other_kernels_claim_once() -> None:
    with kept() as found:
        made.__wrapped__(persistent(False), tool())
    assert len(claims(found[-1][1])) == 1


def test_a_kernel_is_claimed_once_where_a_way_leaves_too_few_registers() -> None:
    def refused(*arguments: object) -> object:
        raise UnsupportedError("no")

    with kept() as found, patch.object(partitions, "place_claims", refused):
        made.__wrapped__(gluon(), tool())
    assert len(claims(found[-1][1])) == 1
