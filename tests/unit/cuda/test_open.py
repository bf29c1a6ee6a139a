"""KSCOPE_REGION_OPEN and -DKSCOPE_OPEN=1: what a warp stores when it enters a region, step by step."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from nvcc import IN_PLACE, MARKS, compiled, kernel, needs_nvcc, recorded
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch, steps

from kscope.capture import layout, wire
from kscope.capture.open_words import is_entered, open_words, torn
from kscope.errors import UsageError
from kscope.instrument.recording import Recording
from kscope.lowering.plan import lower
from kscope.marks.grammar import parse
from kscope_cuda import flags

BODY = r"""
  KSCOPE_REGION("all");
  for (int k = 0; k < 3; k++) {
    KSCOPE_REGION_OPEN_V("wait", 28 + k);
    out[k] = k;
  }
  { KSCOPE_REGION_OPEN("last" KSCOPE_TRACK("t")); out[3] = n; }
  { KSCOPE_REGION_V_IF("some", 5, n > 0); out[4] = n; }
  KSCOPE_ENTER_V("apart", 7);
  out[5] = n;
  KSCOPE_EXIT("apart");
"""
WAITS = [("wait", 28), ("wait", 29), ("wait", 30), ("last\x1ft", 0)]
OTHERS = [("some", 5), ("apart", 7)]

pytestmark = needs_nvcc


@cache
def text(*defines: str) -> bytes:
    return compiled(kernel(BODY), *defines)


def stored(ptx: bytes, n: int = 1) -> list[tuple[str, int]]:
    """The regions and values of the words of one warp, and that each is whole."""
    host = Host(Pool((Ring(12), Ring(4))), survive=True)
    out = host.memory.allocate("out", 256)
    launch = Launch(host.load(ptx.decode()), host.memory, "k", Grid((1, 1, 1), (32, 1, 1)), [out.base, n], threads=(0,))
    host.launched(Grid((1, 1, 1), (32, 1, 1)), ((0, 0, 0),))
    found = [np.zeros(8, np.uint32)]
    for _ in steps(launch.start(), "turns"):
        head = np.frombuffer(bytes(host.rings[0].data[: wire.HEAD_BYTES]), np.uint32)
        if (head[4:] != found[-1][4:]).any():
            found.append(head)
    words = open_words(np.array(found))
    words = words[is_entered(words)]
    assert not torn(words).any()
    assert (np.diff(words["sequence"] >> wire.SEQUENCE_SHIFT) > 0).all()
    names = {layout.name_hash(name): name for name in ("all", *(name for name, _ in (*WAITS, *OTHERS)))}
    return [(names[int(word["id"]) >> 4], int(word["value"])) for word in words]


def test_open_regions_are_stored_when_a_warp_enters_them() -> None:
    assert stored(text(IN_PLACE)) == WAITS


def test_the_define_stores_every_region_unless_its_predicate_is_false() -> None:
    every = text(IN_PLACE, "-DKSCOPE_OPEN=1")
    assert stored(every) == [("all", 0), *WAITS, *OTHERS]
    assert stored(every, n=0) == [("all", 0), *WAITS, ("apart", 7)]


def test_records_are_the_same() -> None:
    assert recorded(text(IN_PLACE), 1) == recorded(text(IN_PLACE, "-DKSCOPE_OPEN=1"), 1)
    names = [name for name, _, _ in recorded(text(IN_PLACE), 1)[0]]
    assert names == [*("wait",) * 3, "last\x1ft", "some", "apart", "all"]


@pytest.mark.parametrize(("defines", "expected"), [((), WAITS), (("-DKSCOPE_OPEN=1",), [("all", 0), *WAITS, *OTHERS])])
def test_marks_that_kscope_lowers_say_the_same(defines: tuple[str, ...], expected: list[tuple[str, int]]) -> None:
    marked = text(MARKS, *defines).decode()
    survived = lower(marked, Recording(survive="shm"), frontend="test")
    assert stored(survived.text.encode()) == expected
    assert "ks_seq" not in lower(marked, Recording(), frontend="test").text, "in other sessions nothing is stored"


def test_packed_marks_with_open_are_of_both_kinds() -> None:
    found = [parse(f"//kscope packed 0 0 {how} 0 97") for how in range(4)]
    assert [(mark.how, mark.open) for mark in found if mark is not None] == [
        ("with", False), ("call", False), ("with", True), ("call", True),
    ]  # fmt: skip
    with pytest.raises(UsageError):
        parse("//kscope packed 0 0 4 0 97")


def test_build_tools_get_the_flag() -> None:
    assert "-DKSCOPE_OPEN=1" in flags(open=True)
    assert not any("OPEN" in flag for flag in flags())
