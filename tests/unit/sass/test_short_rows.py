"""Rows with short clocks: two records of a pipeline in one store, where their clocks are close."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ptxvm.machine import Clocks, Grid
from sassvm.launching import Case
from sassvm.pipelines import PARAMETER, ran

from kscope.capture.model import RowLayout
from kscope.sass.checks import short_rows as checker
from kscope.sass.cubin.insertion import Word
from kscope.sass.cubin.instructions import BYTES
from kscope.sass.placing.basic_blocks import Machine
from kscope.sass.placing.mark_order import Spot
from kscope.sass.placing.operands import Source
from kscope.sass.recording import deferred_records, short_rows
from kscope.sass.recording.deferred_records import Later
from kscope.sass.recording.kernel import Recorded, record_kernel
from kscope.sass.recording.lane_state import State
from kscope.sass.recording.short_rows import ShortRow
from kscope.sass.recording.sites import Needed, Site

from .kernels import assembled, needs_tools
from .listed import listed
from .test_deferring import site
from .test_pipeline import EMPTY, ID, lowered, persistent
from .test_recording import only

FAR = 70_000
"""Cycles for which a row has no room."""
CLOCKS = {
    "close": (3, 1, 70),
    "one far": (3, 1, 5, FAR, 2, 9, 30),
    "far": (FAR, 90_000),
    "at the limit": (0xFFFF, 0x10000, 1, 0),
}


@cache
def made(rows: bool, records: int = 256) -> Recorded:
    """The persistent matmul; an SM has room for one block of it, so it has registers for rows."""
    from triton.backends.nvidia.compiler import get_ptxas

    found, tool = lowered(persistent(False)), get_ptxas(90).path
    kernel = replace(next(iter(found.kernels.values())), id=ID, log2_records=records.bit_length() - 1)
    with pytest.MonkeyPatch.context() as patch:
        if not rows:
            patch.setattr(short_rows, "planned", lambda *_: {})
        return record_kernel(
            found.marked, kernel, lambda code, table: assembled(code, tool, ("-lineinfo",) if table else ()), blocks=1
        )


def records(found: Recorded, steps: tuple[int, ...], size: int) -> dict[tuple[int, ...], tuple[int, Any, int]]:
    """Of each warp: the number of records, those that are left, and the number of rows."""
    kernel = replace(next(iter(lowered(persistent(False)).kernels.values())), specs=("elected",), id=ID)
    kernel = replace(kernel, log2_records=size.bit_length() - 1)
    empty, shape = EMPTY.replace("128", "256"), Grid((1, 1, 1), (256, 1, 1))
    case = Case(empty, only(found.data), kernel, 0, shape=shape, clocks=Clocks(steps=steps))
    ended = ran(found, only(found.data), case, PARAMETER.to_bytes(4, "little") * 256)
    result = dict[tuple[int, ...], tuple[int, Any, int]]()
    for key, (_, slab, rows) in ended.items():
        assert slab is not None
        many = int(slab.head["count"])
        kept = slab.ring[:many] if many <= len(slab.ring) else np.roll(slab.ring, -(many % len(slab.ring)))
        result[key] = many, kept, rows
    return result


@needs_tools
@pytest.mark.parametrize("clocks", CLOCKS)
def test_the_records_are_those_without_rows(clocks: str) -> None:
    """Bit for bit: clocks, values, and order."""
    found, plain = (records(made(rows), CLOCKS[clocks], 256) for rows in (True, False))
    assert found.keys() == plain.keys() and len(found) == 8
    for key, (many, kept, rows) in plain.items():
        assert found[key][0] == many == rows
        np.testing.assert_array_equal(found[key][1], kept)
    less = [plain[key][2] - rows for key, (_, _, rows) in found.items()]
    steps = (PARAMETER // 128) ** 2 * (PARAMETER // 64)  # of all tiles
    assert clocks != "close" or less == [steps] * 8
    assert clocks != "far" or less == [0] * 8
    assert clocks in ("close", "far") or 0 < less[0] < steps


@needs_tools
@pytest.mark.parametrize("clocks", CLOCKS)
def test_records_that_a_ring_lost_are_counted(clocks: str) -> None:
    found, plain = (records(made(rows, 8), CLOCKS[clocks], 8) for rows in (True, False))
    for key, (many, kept, _) in plain.items():
        count, left, _ = found[key]
        assert count == many > 8
        same = min(len(left), len(kept)) - 1
        np.testing.assert_array_equal(left[-same:], kept[-same:])


@needs_tools
def test_a_row_has_the_wait_for_a_barrier_and_that_for_products() -> None:
    (about,) = made(True).layouts
    assert not made(False).layouts
    assert [(start, end) for _, start, end in about.records] == [(0, 1), (2, 3)]
    assert about.values == ((0, True), (1, False))


WAIT, DRAIN = site("exit", 1, 108, "wait"), site("exit", 2, 112, "drain")
ARRIVE = replace(site("point", 3, 116, "arrive"), spot=Spot(0, 48, 0, False, source=Source(48, uniform="UR11")))
ABOUT = RowLayout(((WAIT.record.id, 0, 1), (DRAIN.record.id, 2, 3)), ((0, True), (1, False)))
OTHER = RowLayout(((WAIT.record.id, 0, 1), (ARRIVE.record.id, 2, 2)), ((1 << 19, True), (0, True)))


def texts(state: State, about: RowLayout, second: Site) -> list[tuple[str, Word | None]]:
    """What is stored for a row, and what is known when it is."""
    row = ShortRow(("both", "row"), 120, about)
    some = Later((WAIT, second), rows={(WAIT.record.key, second.record.key): row})
    stored = [one for one in deferred_records.stores(some, state, "UR57", Needed(frozenset(), frozenset())) if one.seen]
    known = [
        (f"IMAD.MOV.U32 R{one.quad + word}, RZ, RZ, {value:#x}", Word(one.record.key, "always"))
        for one in (WAIT, second) for word, value in ((1, one.record.id), (3, 1 if one is DRAIN else 0))
        if word == 1 or one is DRAIN
    ]  # fmt: skip
    lines = [
        (f"{one.seen.guard} {one.seen.code} {', '.join(one.seen.operands)}", one.word_of) for one in stored if one.seen
    ]
    return [*known, ("IADD3 R0, R0, RZ, RZ", None), *lines, ("EXIT", None)]


def found(lines: list[tuple[str, Word | None]]) -> list[str]:
    """What the checker says of the instructions behind those that are known."""
    function = listed(*(text for text, _ in lines))
    words = {at * BYTES: word for at, (_, word) in enumerate(lines) if word is not None}
    first = next(at for at, (text, _) in enumerate(lines) if text.startswith("IADD3 R0"))
    new = range((first + 1) * BYTES, (len(lines) - 1) * BYTES, BYTES)
    return [one.what for one in checker.check(function, new, words)]


STATES = {
    "register": State("UR60", 100, 101, 60, "UR59", "UR57", None, 5, mine=102, extra=103, addresses=(104,)),
    "predicate": State("UR60", 100, 101, 60, "UR59", "UR57", 6, 5, extra=103, addresses=(104,)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("about", "second"), [(ABOUT, DRAIN), (OTHER, ARRIVE)], ids=["drain", "arrive"])
def test_what_is_stored_for_a_row_means_its_records(state: str, about: RowLayout, second: Site) -> None:
    assert not found(texts(STATES[state], about, second))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("R110, 0x1, -R108", "R110, 0x1, -R112", "does not mean its records"),
        ("0x5410, R120", "0x5410, R123", "does not mean its records"),
        ("0x5410, R120", "0x1054, R120", "does not mean its records"),
        ("SHF.R.W.U32 R121, R111, 0x3", "SHF.R.W.U32 R121, R111, 0x2", "does not mean its records"),
        ("SHF.R.W.U32 R121, R111, 0x3, R111", "SHF.R.U32.HI R121, RZ, 0x3, R111", "does not mean its records"),
        ("0xffff0000, R121", "0xffff0000, RZ", "does not mean its records"),
        ("0xffff0000", "0xfffe0000", "does not mean its records"),
        (f"{ABOUT.row_id:#x}", f"{ABOUT.row_id ^ 16:#x}", "does not mean its records"),
        ("ISETP.NE.U32.AND P0, PT, R104", "ISETP.EQ.U32.AND P0, PT, R104", "not stored in turn"),
        ("0xffff0000", "0xffff8000", ""),
        ("R104, R101, 0x10", "R104, R101, 0x0", "not stored in turn"),
        ("R120, R108, RZ, RZ", "R120, R110, RZ, RZ", "does not mean its records"),
        ("@P0 STG.E.128 [R104", "@!P0 STG.E.128 [R104", "not stored in turn"),
        ("@P0 STG.E.128 [R104", "@P0 STG.E.64 [R104", "not stored beside its records"),
        ("PRMT", "VOTE.ANY", "is not known"),
    ],
)
def test_a_row_that_does_not_mean_its_records_is_found(old: str, new: str, why: str) -> None:
    lines = texts(STATES["register"], ABOUT, DRAIN)
    assert any(old in text for text, _ in lines), [text for text, _ in lines]
    changed = found([(text.replace(old, new), word) for text, word in lines])
    assert any(why in one for one in changed) if why else not changed


def test_a_row_has_room_for_four_shorts() -> None:
    """Of two waits for barriers there are three distances and two barriers."""
    again = "@P1 BRA `(again)"
    code = Machine(listed("NOP", "NOP", "NOP", "NOP", again, "EXIT", again=0), {})
    begin = [
        replace(
            site("enter", one.spot.at // BYTES, one.quad, one.record.key[0]),
            spot=replace(one.spot, source=Source(0, uniform="UR4")),
        )
        for one in (WAIT, DRAIN)
    ]
    sites = [*begin, WAIT, DRAIN, ARRIVE]
    free = list(range(120, 140))
    assert not short_rows.planned(code, sites, [(WAIT, DRAIN)], free, 255)
    (row,) = short_rows.planned(code, sites, [(WAIT, ARRIVE)], free, 255).values()
    assert (row.quad, free[0]) == (120, 124) and row.about.values == ((0, True), (0, True))
    apart = replace(ARRIVE, flag=9)
    assert not short_rows.planned(code, sites, [(WAIT, apart)], free, 255)
    assert not short_rows.planned(code, sites, [(WAIT, ARRIVE)], free, 126)


@pytest.mark.parametrize("other", [1, 0])
def test_copies_in_two_loops_have_a_row_if_their_records_are_alike(other: int) -> None:
    again = ["NOP", "NOP", "NOP", "@P1 BRA `({})"]
    lines = [line.format(name) for name in ("first", "second") for line in again]
    code = Machine(listed(*lines, "EXIT", first=0, second=4), {})
    sites = list[Site]()
    for loop, left in ((0, 1), (4, other)):
        for name, quad, fixed in (("wait", 108, 0), ("drain", 112, left)):
            spot = Spot(0, (loop + (quad == 112)) * BYTES, 0, False, source=Source(0, fixed=fixed))
            begin, end = site("enter", loop, quad, name), site("exit", loop + 1 + (quad == 112), quad, name)
            sites += [replace(begin, spot=spot), end]
    groups = [(sites[1], sites[3]), (sites[5], sites[7])]
    assert len(short_rows.planned(code, sites, groups, list(range(120, 140)), 255)) == other
