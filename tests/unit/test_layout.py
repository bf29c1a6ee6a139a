"""The layout: bit pictures, offsets that the emitted text relies on, hashes, and the page that documents them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscope.capture import layout, wire
from kscope.capture.layout import HEADER, RECORD, Kind
from kscope.capture.wire import GATE, HEAD, LAUNCH, STRIPE
from kscope.util.struct_layout import Fields

SOURCE = "".join(Path(module.__file__ or "").read_text() for module in (layout, wire))
PROTOCOL = Path(__file__).parents[2] / "docs" / "design" / "protocol.md"


@pytest.mark.parametrize(
    ("fields", "size"),
    [(RECORD, 16), (HEADER, 128), (HEAD, 32), (LAUNCH, 64), (GATE, 128), (STRIPE, 128)],
    ids=["record", "header", "head", "launch", "gate", "stripe"],
)
def test_sizes_are_those_of_the_picture(fields: Fields, size: int) -> None:
    assert fields.itemsize == fields.dtype.itemsize == size


@pytest.mark.parametrize(
    ("name", "fields", "unit"),
    [
        ("HEADER", HEADER, 4),
        ("HEAD", HEAD, 4),
        ("LAUNCH", LAUNCH, 4),
        ("GATE", GATE, 1),
        ("STRIPE", STRIPE, 1),
    ],
)
def test_offsets_in_comments_match_the_fields(name: str, fields: Fields, unit: int) -> None:
    body = SOURCE[SOURCE.index(f"{name} = Fields(") :]
    reported = re.findall(r'\("(\w+)", [^#\n]*\),  # (\d+)\b', body[: body.index("\n)\n")])
    assert reported
    assert {field: int(offset) for field, offset in reported} == {
        field: fields.offset(field) // unit for field, _ in reported
    }


def test_nothing_is_larger_than_its_alignment() -> None:
    for fields in (RECORD, HEADER, HEAD, LAUNCH, GATE, STRIPE):
        for name, (kind, offset, *_) in (fields.dtype.fields or {}).items():
            assert offset == fields.offset(name)
            assert offset % kind.base.itemsize == 0, name


def test_the_header_begins_with_its_version() -> None:
    assert layout.HEADER_WORD.to_bytes(4, "big") == b"KS" + bytes([layout.MAJOR, layout.MINOR])


@given(
    lane=st.integers(0, 31),
    warp=st.integers(0, 31),
    log2=st.integers(2, 20),
    flags=st.integers(0, 7),
    sm=st.integers(0, 511),
)
def test_place_has_room_for_every_field(lane: int, warp: int, log2: int, flags: int, sm: int) -> None:
    word = (
        lane
        | warp << layout.WARP_SHIFT
        | log2 << layout.LOG2_SHIFT
        | flags << layout.FLAG_SHIFT
        | sm << layout.SMID_SHIFT
    )
    assert word < 1 << 32
    assert (word & 31, word >> 5 & 31, word >> 10 & 31, word >> 15 & 31, word >> 20) == (lane, warp, log2, flags, sm)


@pytest.mark.parametrize(("log2", "units"), [(2, 3), (3, 4), (8, 66), (20, 262146)])
def test_a_slab_is_a_header_and_its_records(log2: int, units: int) -> None:
    assert layout.slab_lines(log2) == units


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_record_ids_separate_name_and_kind_and_are_never_zero(name: str) -> None:
    for kind in Kind:
        word = layout.record_id(name, kind)
        assert word & 15 == kind
        assert word >> 4 == layout.name_hash(name)
        assert 0 < word < 1 << 32


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)], ids=["empty", "a", "foobar"]
)
def test_names_are_hashed_with_fnv_1a(text: str, expected: int) -> None:
    # test vectors of http://www.isthe.com/chongo/src/fnv/test_fnv.c
    assert layout.name_hash(text) == (expected >> 28) ^ (expected & 0x0FFFFFFF)


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)]
)
def test_kernels_are_hashed_with_fnv_1a_of_64_bits(data: bytes, expected: int) -> None:
    assert layout.kernel_hash(data) == expected


@given(st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32), st.integers(0, 31), st.integers(0, 31))
def test_the_check_word_detects_one_flipped_header_bit(words: list[int], word: int, bit: int) -> None:
    lines = np.array([words], np.uint32)
    before = layout.header_check(lines)
    lines[0, word] ^= np.uint32(1 << bit)
    assert (layout.header_check(lines) != before).all() == (word not in (15, *range(21, 32)))


def test_the_control_block_has_one_line_per_stripe_and_one_for_the_reserve() -> None:
    assert wire.control_bytes(132) == 128 * (1 + 132 + 1) + 4 * wire.SIZES + 64 * wire.SLOTS


@pytest.mark.skipif(not PROTOCOL.exists(), reason="docs/design/protocol.md is not part of this tree")
def test_the_page_about_the_protocol_names_every_field() -> None:
    page = PROTOCOL.read_text()
    fields = {
        name for one in (RECORD, HEADER, HEAD, LAUNCH, GATE, STRIPE) for name in one.names if "reserved" not in name
    }
    missing = {field for field in fields if not re.search(rf"\b{field}\b", page)}
    assert missing == set()
