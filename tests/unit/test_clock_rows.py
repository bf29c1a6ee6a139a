"""Rows with three clocks, and with short ones: the host makes the records of them, and knows how many were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wired import EPOCH, KERNEL, Entry, Head, Units, expand_all, slab, table

from kscope import native
from kscope.capture import layout, metadata, wire
from kscope.capture.capture_data import CaptureData, DeviceCapture
from kscope.capture.clock_rows import Layouts
from kscope.capture.layout import Kind, record_id
from kscope.capture.model import KernelMeta, ModuleMeta, RegionMeta, RowLayout
from kscope.decoding.assemble import assemble
from kscope.errors import FormatError
from kscope.tracedata.data import TraceData

NAMES = "load", "dot", "turn", "rest", "wait", "arrive"
LOAD, DOT, TURN, REST = (record_id(name, Kind.SPAN) for name in NAMES[:4])
WAIT, ARRIVE = record_id("wait", Kind.SPAN_VALUE), record_id("arrive", Kind.INSTANT_VALUE)
PAIR = RowLayout(((LOAD, 0, 1), (DOT, 1, 2)))
NESTED = RowLayout(((LOAD, 1, 2), (TURN, 0, 2)))
TRIPLE = RowLayout(((LOAD, 0, 1), (DOT, 1, 2), (TURN, 0, 2)))
SHORT = RowLayout(((WAIT, 0, 1), (DOT, 2, 3)), ((0, True), (1, False)))
SHORTER = RowLayout(((WAIT, 0, 1), (ARRIVE, 2, 2)), ((1 << 19, True), (31 << 19, True)))
MODULE = ModuleMeta(
    "triton",
    (KernelMeta("matmul", KERNEL, 4),),
    tuple(RegionMeta(name, "u32" if name in ("wait", "arrive") else None) for name in NAMES),
    placement="schedule",
    layouts=(PAIR, NESTED, TRIPLE, SHORT, SHORTER),
)
KNOWN = Layouts((MODULE,))
ROOM = 4
"""log2 of the rows of a slab."""


def row(about: RowLayout, clock: int) -> list[int]:
    if about.values:  # clocks 10, 40 and 90 later, or 10 and 40, and barriers
        return [clock, about.row_id, 30 << 16 | 10, 7 << 16 | (50 if about is SHORT else 0x8004)]
    return [clock, about.row_id, clock + 10, clock + 30]


def ring(rows: Sequence[Sequence[int]], head: Head | None = None) -> Units:
    """A slab into which a warp wrote these rows."""
    return slab(head or Head(clock=100, cycles=1 << 20), ROOM, rows)


def ended(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The same, and what the end of a ring that overflowed adds."""
    extra = sum(len(one.records) - 1 for _, number, *_ in rows for one in MODULE.layouts if one.row_id == number)
    return [*map(list, rows), [0, wire.EXTRA_ID, 0, extra]] if len(rows) > 1 << ROOM else [*map(list, rows)]


def trace(units: Units, known: Layouts = KNOWN) -> TraceData:
    """A reader's records of a slab."""
    lines, left_out = expand_all(units, table(Entry(log2=ROOM)), EPOCH, layouts=known)
    assert not left_out
    device = DeviceCapture(0, "gpu", np.ascontiguousarray(lines), lost=0, sms=1)
    return assemble(CaptureData(epoch=EPOCH, devices=(device,), modules=(MODULE,)))


def read(found: TraceData) -> list[tuple[str, int, int]]:
    """Name, start and end of each record."""
    names = [found.regions[region].name for region in found.region.tolist()]
    starts = (found.start_ticks & 0xFFFFFFFF).tolist()
    return [
        (name, start, start + took) for name, start, took in zip(names, starts, found.dur_cycles.tolist(), strict=True)
    ]


def meant(rows: Sequence[Sequence[int]]) -> list[tuple[str, int, int]]:
    """The records of rows, by the definition of their layouts."""
    found = list[tuple[str, int, int]]()
    for c0, number, c1, c2 in rows:
        clocks: tuple[int, ...] = c0, c1, c2
        if number in (SHORT.row_id, SHORTER.row_id):
            clocks = c0, c0 + 10, c0 + 40, c0 + 90
        about = next((one for one in MODULE.layouts if one.row_id == number), RowLayout(((number, 0, 1),)))
        for part, start, end in about.records:
            name = next((name for name in NAMES if record_id(name, Kind.SPAN) >> 4 == part >> 4), f"?{part >> 4:07x}")
            found.append((name, clocks[start], clocks[end]))
    return found


def later(words: list[int], cycles: int) -> list[int]:
    """A row so much later."""
    short = words[1] in (SHORT.row_id, SHORTER.row_id)
    return [word + cycles & 0xFFFFFFFF if not n or (n > 1 and not short) else word for n, word in enumerate(words)]


def counted(found: TraceData) -> dict[str, int]:
    return {
        one.kind: one.count for one in found.problems if one.kind not in ("partial", "nameless", "unfinished", "rate")
    }


def single(clock: int) -> list[int]:
    return [clock, REST, clock + 20, 0]


EVERY = (
    *(partial(row, about) for about in (PAIR, NESTED, TRIPLE, SHORT, SHORTER)),
    single,
)
kinds = st.sampled_from(EVERY)


@pytest.fixture(params=["compiled", "numpy"])
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations."""
    if request.param == "numpy":
        monkeypatch.setenv("KSCOPE_NATIVE", "0")
    elif not native.available():
        pytest.skip("no compiled loops")


both = pytest.mark.usefixtures("_loops")


@both
def test_each_row_becomes_the_records_of_its_layout() -> None:
    found = trace(ring([row(PAIR, 1000), single(2000), row(NESTED, 3000), row(TRIPLE, 4000)]))
    assert read(found) == [
        ("load", 1000, 1010), ("dot", 1010, 1030), ("rest", 2000, 2020), ("load", 3010, 3030), ("turn", 3000, 3030),
        ("load", 4000, 4010), ("dot", 4010, 4030), ("turn", 4000, 4030),
    ]  # fmt: skip
    assert counted(found) == {}


@both
@pytest.mark.parametrize("many", [1, 5, 16, 17, 18, 33, 100, 1001])
@pytest.mark.parametrize("kind", EVERY[:5], ids=["pair", "nested", "triple", "short", "shorter"])
def test_how_many_records_a_ring_lost_is_known_exactly(many: int, kind: Callable[[int], list[int]]) -> None:
    rows = [single(500), *(kind(1000 + 100 * number) for number in range(many))]
    found = trace(ring(ended(rows)))
    newest = rows if len(rows) <= 1 << ROOM else rows[-(1 << ROOM) + 1 :]
    assert read(found) == meant(newest)
    lost = len(meant(rows)) - len(meant(newest))
    assert counted(found) == ({"overwritten": lost} if lost else {})
    assert int(found.warps.written[0]) == len(meant(rows))


@both
def test_a_killed_warps_rows_become_records_as_far_as_they_arrived() -> None:
    rows = [row(TRIPLE, 1000 + 100 * number) for number in range(9)]
    assert read(trace(ring(rows, Head(clock=100, cycles=None)))) == meant(rows)


@both
@pytest.mark.parametrize("many", [16, 17, 24, 40])
def test_of_a_killed_warp_whose_ring_is_full_the_order_is_found(many: int) -> None:
    rows = [row(PAIR if number % 3 else TRIPLE, 1000 + 100 * number) for number in range(many)]
    found = trace(ring(rows, Head(clock=100, cycles=None)))
    assert read(found) == meant(rows[-16:])
    assert counted(found) == {"count": 1}


@both
def test_rows_of_an_unknown_layout_are_records_of_an_unknown_region() -> None:
    strange = RowLayout(((LOAD, 0, 2), (DOT, 1, 2)))
    found = trace(ring([row(PAIR, 1000), row(strange, 2000)]))
    assert read(found)[:2] == meant([row(PAIR, 1000)]) and read(found)[2][0] == f"?{strange.row_id >> 4:07x}"
    assert counted(found) == {"unknown": 1}


@both
def test_layouts_are_those_of_the_launchs_kernel() -> None:
    other = replace(MODULE, kernels=(KernelMeta("other", KERNEL + 1, 4),))
    assert counted(trace(ring([row(PAIR, 1000)]), Layouts((other,)))) == {"unknown": 1}
    later = Layouts((other,))
    later.add((MODULE,))
    assert counted(trace(ring([row(PAIR, 1000)]), later)) == {}


@both
def test_a_row_that_never_arrived_is_missing() -> None:
    assert counted(trace(ring([row(PAIR, 1000), [0, 0, 0, 0], row(PAIR, 2000)]))) == {"missing": 1}


@both
def test_a_ring_without_its_last_row_has_lost_at_least_its_rows() -> None:
    rows = [row(PAIR, 1000 + 100 * number) for number in range(20)]
    assert counted(trace(ring(rows)))["overwritten"] == 4


def test_a_message_names_no_more_records_than_there_were() -> None:
    found = trace(ring(ended([row(TRIPLE, 1000 + 100 * number) for number in range(100)])))
    (problem,) = [one for one in found.problems if one.kind == "overwritten"]
    assert problem.text.endswith("records=300")


@both
def test_a_row_with_short_clocks_becomes_two_records_with_their_values() -> None:
    found = trace(ring([row(SHORT, 0xFFFFFFF0), row(SHORTER, 2000)], Head(clock=0xFFFFFF00, cycles=1 << 20)))
    names = [found.regions[region].name for region in found.region.tolist()]
    assert names == ["wait", "dot", "wait", "arrive"]
    assert found.dur_cycles.tolist() == [10, 50, 10, 0]
    starts = found.start_ticks.tolist()
    assert starts[1] - starts[0] == 40
    values = found.value.tolist()
    assert values[0] == 7 << 3 and values[2:] == [(0x8004 << 3) + (1 << 19), (7 << 3) + (31 << 19)]


@both
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(kinds, max_size=70), st.booleans(), st.integers(0, (1 << 32) - 1))
def test_any_mix_of_rows(some: list[Callable[[int], list[int]]], done: bool, start: int) -> None:
    rows = [later(one(1000 + 100 * number), start) for number, one in enumerate(some)]
    head = Head(clock=start, cycles=1 << 20 if done else None)
    found = trace(ring(ended(rows) if done else rows, head))
    assert [name for name, _, _ in read(found)] == [name for name, _, _ in meant(rows)][-len(found) or len(rows) * 3 :]
    if done:
        assert len(found) + counted(found).get("overwritten", 0) == len(meant(rows))
    assert (found.dur_cycles >= 0).all()


words = st.sampled_from(
    [0, 1, wire.EXTRA_ID, layout.ANCHOR_ID, layout.LAST_ANCHOR_ID, REST, 0xFFFFFFFF]
) | st.sampled_from([one.row_id for one in MODULE.layouts] + [PAIR.row_id ^ 16, wire.CLOCKS])


@pytest.mark.skipif(not native.available(), reason="no compiled loops")
@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 1 << 12), words, st.integers(0, 1 << 12), words), max_size=40),
            st.none() | st.integers(0, 60) | st.sampled_from([(1 << 32) - 1, 1 << 31]),
            st.booleans(),
        ),
        max_size=5,
    ),
    st.integers(0, 31),
    st.booleans(),
)
def test_compiled_and_numpy_give_the_same_bytes_of_damaged_rows(
    drawn: list[tuple[list[tuple[int, ...]], int | None, bool]], flags: int, known: bool
) -> None:
    units = [
        slab(Head(block=number, count=count, cycles=500 if done else None), ROOM, rows)
        for number, (rows, count, done) in enumerate(drawn)
    ]
    memory = np.concatenate([*units, np.zeros((1, 8), np.uint32)])
    launches = table(Entry(log2=ROOM, flags=flags, kernel=KERNEL if known else 1))
    found = []
    for compiled in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KSCOPE_NATIVE", compiled)
            found.append(expand_all(memory, launches, EPOCH, layouts=KNOWN))
    assert found[0][1] == found[1][1]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    device = DeviceCapture(0, "gpu", np.ascontiguousarray(found[0][0]), lost=0, sms=1)
    assemble(CaptureData(epoch=EPOCH, devices=(device,), modules=(MODULE,)))


def test_metadata_keeps_layouts() -> None:
    assert metadata.from_json(metadata.to_json(MODULE)) == MODULE
    assert b"layouts" not in metadata.to_json(replace(MODULE, layouts=()))


@pytest.mark.parametrize(
    "layouts",
    [
        1,
        [1],
        [[[LOAD, 0, 1]]],
        [[[LOAD, 0, 1], [DOT, 1, 3]]],
        [[[0, 0, 1], [DOT, 1, 2]]],
        [[[LOAD, 0], [DOT, 1, 2]]],
        [[[LOAD, 0, 1, 0, 1], [DOT, 2, 3, 0, 1]]],
        [[[LOAD, 0, 1, 0, 1], [DOT, 2, 3]]],
        [[[LOAD, 0, 1, 0, 2], [DOT, 2, 3, 0, 0]]],
        [[[LOAD, 0, 1, -1, 0], [DOT, 2, 3, 0, 0]]],
        [[[LOAD, 0, 1, 0, 0], [DOT, 2, 4, 0, 0]]],
        [[[LOAD, 0, 1, 0, 0], [DOT, 1, 2, 0, 0], [TURN, 1, 2, 0, 0]]],
    ],
)
def test_damaged_layouts_are_refused(layouts: object) -> None:
    with pytest.raises(FormatError, match="layout"):
        metadata.from_dict(metadata.to_dict(MODULE) | {"layouts": layouts})


def test_no_two_layouts_have_one_id() -> None:
    ids = {one.row_id for one in (*MODULE.layouts, replace(SHORT, values=((1, True), (1, False))))}
    assert len(ids) == 6 and all(number & 15 == wire.CLOCKS for number in ids)
