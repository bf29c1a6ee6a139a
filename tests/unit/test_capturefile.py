"""The .kscope file: complete, atomic, and safe to open from a stranger."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import orjson
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

import kscope.capturefile as capturefile
from kscope.capture import Capture, Problem, load
from kscope.errors import FormatError, KscopeError, UsageError


def equal(one: Capture, other: Capture) -> bool:
    lines = [np.array_equal(a.lines, b.lines) for a, b in zip(one.devices, other.devices, strict=True)]
    heads = [
        (a.ordinal, a.name, a.sms, a.lost, a.tick_ns, a.syncs) == (b.ordinal, b.name, b.sms, b.lost, b.tick_ns, b.syncs)
        for a, b in zip(one.devices, other.devices, strict=True)
    ]
    rest = [getattr(one, name) == getattr(other, name) for name in ("epoch", "modules", "options", "problems", "host")]
    return all((*lines, *heads, *rest))


def small() -> Capture:
    two = (
        synth.device([synth.slab([synth.Rec("load", 2000, 2100)])]),
        synth.device(synth.bulk(40, 30), ordinal=1, lost=3),
    )
    return Capture(
        7, two, (synth.module(),), {"strategy": "warp"}, (Problem("odd", "a sentence", 2),), {"cuda": "13.0"}
    )


def written(tmp_path: Path, capture: Capture | None = None) -> Path:
    path = tmp_path / "run.kscope"
    (capture or small()).save(path)
    return path


def head_of(data: bytes) -> tuple[dict, bytes]:  # type: ignore[type-arg]  # whatever JSON holds
    start = len(capturefile.FIRST_LINE)
    length = int.from_bytes(data[start : start + 8], "little")
    return orjson.loads(data[start + 12 : start + 12 + length]), data[start + 12 + length :]


def with_head(head: object, payload: bytes) -> bytes:
    raw = orjson.dumps(head)
    return (
        capturefile.FIRST_LINE + len(raw).to_bytes(8, "little") + zlib.crc32(raw).to_bytes(4, "little") + raw + payload
    )


def test_a_capture_survives_its_file(tmp_path: Path) -> None:
    assert equal(load(written(tmp_path)), small())


def test_a_capture_of_several_chunks_survives(tmp_path: Path) -> None:
    lines = np.random.default_rng(1).integers(0, 1 << 32, (2 * capturefile.CHUNK + 5, 16), dtype=np.uint32)
    capture = Capture(1, (synth.device(lines),), ())
    assert equal(load(written(tmp_path, capture)), capture)


def test_an_empty_capture_survives(tmp_path: Path) -> None:
    capture = Capture(0, (), ())
    assert equal(load(written(tmp_path, capture)), capture)


def test_a_failed_save_keeps_the_last_good_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Capture(9, (), ()).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_and_a_folder_for_a_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; create it"):
        small().save(tmp_path / "nowhere" / "run.kscope")
    with pytest.raises(UsageError, match="is a folder"):
        small().save(tmp_path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "cut short or empty"),
        (b"kscope cap", "cut short or empty"),
        (b"\x7fELF and so on and so forth", "not a kscope capture"),
        (b"kscope capture 1\xa0" + bytes(40), "not a kscope capture"),
        (b"kscope capture 2\n" + bytes(40), "version 2; this kscope reads version 1: update kscope"),
        (capturefile.FIRST_LINE + b"\xff" * 12, "cut short within its head"),
        (capturefile.FIRST_LINE + bytes(12) + b"{}", "no JSON"),
        (with_head([], b""), "expected an object"),
        (with_head({"devices": 3}, b""), "devices is 3, expected a list"),
    ],
)
def test_what_is_no_capture_says_why_and_what_to_do(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "x.kscope"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=says):
        load(path)


def test_a_device_file_or_pipe_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a regular file"):
        load("/dev/null")


def test_something_after_the_end_is_a_format_error(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FormatError, match="longer than its head says"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda device: device | {"lines": 1 << 40},
        lambda device: device | {"lines": device["lines"] + 1},
        lambda device: device | {"lines": -1},
        lambda device: device | {"chunks": device["chunks"] * 2},
        lambda device: device | {"chunks": [[1 << 60, 0, 1]]},
        lambda device: device | {"chunks": [[True, 0, 1]]},
        lambda device: device | {"chunks": [["1", 0, 1]]},
        lambda device: device | {"name": None},
        lambda device: device | {"lost": 1.5},
        lambda device: device | {"syncs": [[1, 2]]},
    ],
)
def test_a_head_whose_numbers_do_not_fit_the_file_is_refused(tmp_path: Path, change: object) -> None:
    path = written(tmp_path)
    head, payload = head_of(path.read_bytes())
    head["devices"][0] = change(head["devices"][0])  # type: ignore[operator]  # a lambda
    path.write_bytes(with_head(head, payload))
    with pytest.raises(FormatError):
        load(path)


def bomb(chunks: int) -> bytes:
    """Zeros that pack a thousand to one, with a head that tells the truth about them."""
    packed = zlib.compress(bytes(capturefile.CHUNK * 64), 9)
    head, _ = head_of_empty()
    head["devices"] = [
        {
            "ordinal": 0, "name": "x", "sms": 1, "lost": 0, "tick_ns": 0, "syncs": [],
            "lines": chunks * capturefile.CHUNK, "chunks": [[len(packed), zlib.crc32(packed), 1]] * chunks,
        }
    ]  # fmt: skip
    return with_head(head, packed * chunks)


def head_of_empty() -> tuple[dict, bytes]:  # type: ignore[type-arg]  # whatever JSON holds
    return {"epoch": 0, "options": {}, "host": {}, "problems": [], "modules": [], "devices": []}, b""


def test_a_file_that_unpacks_to_too_much_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bomb.kscope"
    path.write_bytes(bomb(300))
    with pytest.raises(FormatError, match=r"max_bytes=314572800"):
        load(path)
    assert len(load(path, max_bytes=300 << 20).devices[0].lines) == 300 * capturefile.CHUNK


def test_a_chunk_that_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(64 << 20), 9)
    head, _ = head_of_empty()
    head["devices"] = [
        {
            "ordinal": 0, "name": "x", "sms": 1, "lost": 0, "tick_ns": 0, "syncs": [],
            "lines": capturefile.CHUNK, "chunks": [[len(packed), zlib.crc32(packed), 1]],
        }
    ]  # fmt: skip
    path = tmp_path / "liar.kscope"
    path.write_bytes(with_head(head, packed))
    with pytest.raises(FormatError, match="another size"):
        load(path)


@given(
    st.sampled_from(["epoch", "options", "host", "problems", "modules", "devices"]),
    st.recursive(st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(), st.lists),
)
def test_any_value_in_any_field_of_the_head_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("head") / "x.kscope"
    path.write_bytes(with_head(head_of_empty()[0] | {field: value}, b""))
    try:
        load(path)
    except KscopeError:
        return
