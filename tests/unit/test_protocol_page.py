"""docs/design/protocol.md is sufficient: a reader written from it agrees with kscope's."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from contract import frontend_sim
from contract.programs import BY_NAME
from contract.reader import read

from kscope.capture import layout, wire
from kscope.capture.capture import Capture
from kscope.util.struct_layout import Fields as Structure

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "design" / "protocol.md").read_text()
WORD = 20
"""Characters that the pictures give 32 bits."""
Fields = dict[str, tuple[int, int]]


def picture(name: str) -> list[str]:
    found = re.search(rf"<!-- picture: {name} -->\n```text\n(.*?)\n```", PAGE, re.S)
    assert found is not None, f"the page has no picture {name!r}"
    return found[1].splitlines()


@cache
def structure(name: str) -> Fields:
    """Field -> (offset, bytes in its first row), without reserved words."""
    fields: Fields = {}
    for line in picture(name):
        row = re.fullmatch(r"\|(.*)\|  (\d+)(?:\.\.\d+)?", line)
        at = int(row[2]) if row else 0
        for cell in row[1].split("|") if row else ():
            size = (len(cell) + 1) // WORD * 4
            if cell.strip() != "reserved":
                fields.setdefault(cell.strip(), (at, size))
            at += size
    return fields


@cache
def bits(name: str) -> Fields:
    """Field -> (lowest bit, number of bits)."""
    numbers, _, names, _ = picture(name)
    ranges = [tuple(map(int, part.split(".."))) for part in numbers.split()]
    return {
        field.strip(): (ends[-1], ends[0] - ends[-1] + 1)
        for field, ends in zip(names.strip("|").split("|"), ranges, strict=True)
    }


@cache
def number(name: str) -> int:
    found = re.search(rf"^{name} {{2,}}(\S+)", "\n".join(picture("constants")), re.M)
    assert found is not None
    return int(found[1], 0)


def field(data: bytes, at: int, where: tuple[int, int]) -> int:
    offset, size = where
    return int(struct.unpack_from({4: "<I", 8: "<Q"}[size], data, at + offset)[0])


def part(word: int, where: tuple[int, int]) -> int:
    low, size = where
    return word >> low & (1 << size) - 1


def hashed(name: str) -> int:
    found = 0x811C9DC5
    for byte in name.encode():
        found = (found ^ byte) * 0x01000193 % 2**32
    return found >> 28 ^ found & 0x0FFFFFFF


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("record", layout.RECORD),
        ("head", wire.HEAD),
        ("launch", wire.LAUNCH),
        ("header", layout.HEADER),
        ("gate", wire.GATE),
        ("stripe", wire.STRIPE),
    ],
)
def test_every_field_is_at_its_layout_offset(name: str, fields: Structure) -> None:
    expected_rows = {}
    for field_name in fields.names:
        kind, offset = fields.dtype.fields[field_name][:2]  # type: ignore[index]  # a structured dtype has fields
        if not field_name.startswith("reserved"):
            expected_rows[field_name] = (offset, min(16, kind.itemsize))
    assert structure(name) == expected_rows


def test_the_control_block_is_a_gate_a_line_per_sm_and_one_more_and_the_launch_table() -> None:
    line, table = 128, number("slots") * 64 + number("sizes") * 4
    assert all(picture(name)[-2].endswith(f"..{line - 1}") for name in ("gate", "stripe"))
    assert [wire.control_bytes(sms) for sms in (1, 132)] == [line * 3 + table, line * 134 + table]


@pytest.mark.parametrize("program", ["values", "grid_3d", "divergent_lanes", "ring", "stop", "globaltimer"])
def test_a_reader_written_from_the_protocol_page_agrees_with_ours(program: str) -> None:
    capture = frontend_sim.run(BY_NAME[program])
    expected = [
        (one.block, one.warp, one.lane, one.smid, one.count, [(r.region, r.kind, r.start, r.end) for r in one.records])
        for one in read(capture)
    ]
    assert sorted(stranger(capture)) == sorted(expected)
    assert any(records for *_, records in expected)


def stranger(capture: Capture) -> Iterator[tuple[Any, ...]]:
    """(block, warp, lane, SM, count, records) of each slab."""
    data, header, place = capture.devices[0].lines.tobytes(), structure("header"), bits("place")
    names = {hashed(region.name): region.name for module in capture.modules for region in module.regions}
    for at in range(0, len(data) - number("header") + 1, number("line")):
        check = 0
        for n in (*range(15), *range(16, 21)):
            check ^= field(data, at, (4 * n, 4))
        if field(data, at, header["magic"]) != number("header word") or field(data, at, header["check"]) != check:
            continue
        where, count = field(data, at, header["place"]), field(data, at, header["count"])
        ended = field(data, at, header["end_clock"]) & 0xFFFFFFFF
        assert field(data, at, header["done"]) == number("done word") ^ count ^ ended
        stop, timer = (part(where, place["flags"]) & number(f"flag {flag}") for flag in ("stop", "globaltimer"))
        size, zero = (
            1 << part(where, place["log2(records)"]),
            field(data, at, header["start_time" if timer else "start_clock"]),
        )
        kept = range(min(count, size)) if stop or count <= size else range(count - size, count)
        places = [at + number("header") + n % size * number("record") for n in kept]
        anchors = {number("anchor"), number("last anchor")}
        places = [one for one in places if field(data, one, structure("record")["id"]) not in anchors]
        records = [record(data, one, zero, names) for one in places]
        count -= field(data, at, header["anchors"])
        yz = field(data, at, header["ctaid_yz"])
        block = field(data, at, header["ctaid_x"]), yz & 0xFFFF, yz >> 16
        yield (block, *(part(where, place[name]) for name in ("warp", "lane", "smid")), count, records)


def record(data: bytes, at: int, zero: int, names: dict[int, str]) -> tuple[Any, ...]:
    """(name, kind, start, end), in ticks since the lane's first."""
    fields, word = structure("record"), bits("id")
    kinds = {number(f"kind {kind.name}"): kind for kind in layout.Kind}
    ident, start, end = (field(data, at, fields[name]) for name in ("id", "start", "end"))
    name = names[part(ident, word["28-bit FNV-1a hash of the name"])]
    return name, kinds[part(ident, word["kind"])], (start - zero) % 2**32, (end - zero) % 2**32
