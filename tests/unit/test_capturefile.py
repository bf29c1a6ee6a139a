"""The .kscope file: complete, atomic, and safe to open from a stranger."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

import kscope.capture.file as capturefile
from kscope.capture.capture import Capture, load_capture
from kscope.capture.capture_data import BegunLaunch, LaunchCount
from kscope.capture.layout import LINE
from kscope.capture.model import KernelMeta, Problem, RegionMeta
from kscope.errors import FormatError, KscopeError, UsageError
from kscope.trace import decode
from kscope.util import bounded_reading


def equal(one: Capture, other: Capture) -> bool:
    lines = [np.array_equal(a.lines, b.lines) for a, b in zip(one.devices, other.devices, strict=True)]
    heads = [
        all(
            getattr(a, name) == getattr(b, name)
            for name in (
                "ordinal",
                "name",
                "sms",
                "lost",
                "tick_ns",
                "syncs",
                "max_clock_khz",
                "uuid",
                "read_ns",
                "begun",
            )
        )
        for a, b in zip(one.devices, other.devices, strict=True)
    ]
    names = ("epoch", "modules", "options", "problems", "host", "launches", "tuning_launches")
    rest = [getattr(one, name) == getattr(other, name) for name in names]
    return all((*lines, *heads, *rest))


def small() -> Capture:
    two = (
        synth.device([synth.slab([synth.Rec("load", 2000, 2100)])]),
        replace(
            synth.device(synth.bulk(40, 30), ordinal=1, lost=3),
            uuid="GPU-1",
            read_ns=5,
            begun=(BegunLaunch((1 << 64) - 1, 7, 9),),
        ),
    )
    return Capture(
        7,
        two,
        (synth.module(),),
        {"strategy": "elected"},
        (Problem("odd", "a sentence", 2),),
        {"cuda": "13.0"},
        {(1 << 64) - 1: LaunchCount(3, 5)},
        40,
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
    assert equal(load_capture(written(tmp_path)), small())


def test_a_capture_of_several_chunks_survives(tmp_path: Path) -> None:
    lines = np.random.default_rng(1).integers(0, 1 << 32, (2 * capturefile.CHUNK + 5, 16), dtype=np.uint32)
    capture = Capture(1, (synth.device(lines),), ())
    assert equal(load_capture(written(tmp_path, capture)), capture)


def test_an_empty_capture_survives(tmp_path: Path) -> None:
    capture = Capture(0, (), ())
    assert equal(load_capture(written(tmp_path, capture)), capture)


ODD = "caf\udce9"
"""A non-UTF-8 path as Python decodes it."""


def test_metadata_with_unencodable_text_and_huge_numbers_is_saved(tmp_path: Path) -> None:
    given = {"kernel": [ODD], "pool": 10**30, "least": -(10**30), ODD: (Path(ODD), {ODD}, None, True, float("nan"))}
    module = replace(synth.module(), kernels=(KernelMeta(ODD, 1, 3),), regions=(RegionMeta(ODD, None, f"{ODD}:3"),))
    device = replace(synth.device([synth.slab([])]), name=ODD)
    capture = Capture(7, (device,), (module,), given, (Problem("odd", ODD),), {"command": ["a.py", ODD]})
    found = load_capture(written(tmp_path, capture))
    seen = {"kernel": ["caf?"], "pool": (1 << 64) - 1, "least": -(1 << 63)}
    assert found.options == {**seen, "caf?": ["caf?", "{'caf\\udce9'}", None, True, None]}
    assert found.host == {"command": ["a.py", "caf?"]} and found.problems == (Problem("odd", "caf?"),)
    assert found.devices[0].name == "caf?" and found.modules[0].kernels == (KernelMeta("caf?", 1, 3),)
    assert found.modules[0].regions == (RegionMeta("caf?", None, "caf?:3"),)


def test_options_of_earlier_captures_have_their_present_names(tmp_path: Path) -> None:
    given = {"blocks": [0, 512, 128], "warps": [0], "sms": [1], "kernels": ["a*"], "regions": ["a=b.py:1"]}
    found = load_capture(written(tmp_path, Capture(7, (), (), given, (), {})))
    assert found.options == dict(zip(("block", "warp", "sm", "kernel", "mark"), given.values(), strict=True))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
        lambda one: st.lists(one) | st.dictionaries(st.text(st.characters()), one),
    )
)
def test_arbitrary_values_round_trip_through_the_file(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    load_capture(written(tmp_path_factory.mktemp("any"), Capture(7, (), (), {"it": value}, (), {"it": value})))


def test_non_utf8_names_resolve_before_and_after_saving(tmp_path: Path) -> None:
    capture = synth.capture(synth.slab([synth.Rec(ODD, 2000, 2100)]), names=(ODD,))
    for one, name in ((capture, ODD), (load_capture(written(tmp_path, capture)), "caf?")):
        trace = decode(one)
        assert [(region.name, region.known) for region in trace.regions[1:]] == [(name, True)]


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


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "x.kscope").symlink_to("target.kscope")
    small().save(tmp_path / "x.kscope")
    assert (tmp_path / "x.kscope").is_symlink()
    assert equal(load_capture(tmp_path / "target.kscope"), small())


def test_a_pipe_is_refused_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.kscope")
    with pytest.raises(UsageError, match="not a regular file"):
        small().save(tmp_path / "x.kscope")


def test_a_missing_folder_and_a_folder_for_a_file_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; create it"):
        small().save(tmp_path / "nowhere" / "run.kscope")
    with pytest.raises(UsageError, match="is a folder"):
        small().save(tmp_path)


@pytest.mark.parametrize(
    ("data", "expected_text"),
    [
        (b"", "truncated or empty"),
        (b"kscope cap", "truncated or empty"),
        (b"\x7fELF and so on and so forth", "not a kscope capture"),
        (b"kscope capture 1\xa0" + bytes(40), "not a kscope capture"),
        (b"kscope capture 2\n" + bytes(40), "version 2; this kscope reads version 1: update kscope"),
        (capturefile.FIRST_LINE + b"\xff" * 12, "truncated within its head"),
        (capturefile.FIRST_LINE + bytes(12) + b"{}", "not JSON"),
        (with_head([], b""), "expected an object"),
        (with_head({"devices": 3}, b""), "devices is 3, expected a list"),
    ],
)
def test_invalid_captures_are_refused_with_reason_and_remedy(tmp_path: Path, data: bytes, expected_text: str) -> None:
    path = tmp_path / "x.kscope"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=expected_text):
        load_capture(path)


def test_a_device_file_or_pipe_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a regular file"):
        load_capture("/dev/null")


@pytest.fixture
def impatient() -> Iterator[None]:
    """What waits for long is interrupted."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
def test_a_pipe_without_a_writer_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.kscope")
    with pytest.raises(FormatError, match="not a regular file"):
        load_capture(tmp_path / "x.kscope")


def test_trailing_bytes_are_a_format_error(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FormatError, match="longer than its header declares"):
        load_capture(path)


@pytest.mark.parametrize("row", [[1], [1, 2], [1, 2, 3, 4], [-1, 2, 3], [1, -2, 3], [1, 2, True], [1, 2, "3"], 5])
def test_invalid_counts_of_launches_are_refused(tmp_path: Path, row: object) -> None:
    path = written(tmp_path)
    head, payload = head_of(path.read_bytes())
    head["launches"] = [row]
    path.write_bytes(with_head(head, payload))
    with pytest.raises(FormatError, match="invalid head"):
        load_capture(path)


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
def test_metadata_that_contradict_the_file_size_are_refused(tmp_path: Path, change: object) -> None:
    path = written(tmp_path)
    head, payload = head_of(path.read_bytes())
    head["devices"][0] = change(head["devices"][0])  # type: ignore[operator]  # a lambda
    path.write_bytes(with_head(head, payload))
    with pytest.raises(FormatError):
        load_capture(path)


def bomb(chunks: int) -> bytes:
    """Zeros that pack a thousand to one, with a correct head."""
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


def test_oversized_packed_files_are_refused_without_max_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.kscope"
    path.write_bytes(bomb(300))
    with pytest.raises(FormatError, match=r"max_bytes=314572800"):
        load_capture(path)
    monkeypatch.setattr(capturefile, "FREE_BYTES", 4 << 20)
    path.write_bytes(bomb(5))
    with pytest.raises(FormatError, match=r"max_bytes=5242880"):
        load_capture(path)
    assert len(load_capture(path, max_bytes=5 << 20).devices[0].lines) == 5 * capturefile.CHUNK


@pytest.mark.parametrize(
    "lines",
    [
        synth.bulk(400, 1, log2=8), synth.bulk(100, 5, log2=10), synth.bulk(10, 20, log2=14), synth.bulk(2, 1, log2=18),
        np.zeros((4 * capturefile.CHUNK + 1, 16), np.uint32),
    ],
    ids=["1 of 256", "5 of 1,024", "20 of 16,384", "1 of 262,144", "nothing"],
)  # fmt: skip
def test_captures_with_a_nearly_empty_pool_are_read_at_any_compression_ratio(
    lines: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Capture(synth.EPOCH, (synth.device(lines.reshape(-1, 16)),), (synth.module(),))
    small = written(tmp_path, capture).stat().st_size
    needed = len(capture.devices[0].lines) * LINE
    assert needed > capturefile.MAX_RATIO * small  # or this test shows nothing
    monkeypatch.setattr(capturefile, "FREE_BYTES", needed - 1)
    path = written(tmp_path, capture)
    assert equal(load_capture(path), capture)
    assert small < path.stat().st_size <= small + needed // capturefile.MAX_RATIO + 2 * capturefile.CHUNK


def test_a_capture_larger_than_memory_opens_only_with_max_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    needed = sum(len(device.lines) for device in small().devices) * LINE
    monkeypatch.setattr(capturefile, "FREE_BYTES", needed - 1)
    monkeypatch.setattr(bounded_reading, "memory_budget", lambda: needed - 1)
    with pytest.raises(FormatError, match=rf"pass --max-bytes {needed}, or load it with max_bytes={needed}"):
        load_capture(path)
    assert equal(load_capture(path, max_bytes=needed), small())


def test_chunks_larger_than_declared_are_not_unpacked(tmp_path: Path) -> None:
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
    with pytest.raises(FormatError, match="wrong size"):
        load_capture(path)


@given(
    st.sampled_from(["epoch", "options", "host", "problems", "modules", "devices"]),
    st.recursive(st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(), st.lists),
)
def test_arbitrary_metadata_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("head") / "x.kscope"
    path.write_bytes(with_head(head_of_empty()[0] | {field: value}, b""))
    try:
        load_capture(path)
    except KscopeError:
        return


def test_a_capture_larger_than_the_memory_for_its_chunks_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = synth.capture(synth.bulk(2000, 40))
    whole.save(tmp_path / "a.kscope")
    monkeypatch.setattr(capturefile, "_SPOOLED", 1000)
    whole.save(tmp_path / "b.kscope")
    assert (tmp_path / "a.kscope").read_bytes() == (tmp_path / "b.kscope").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.kscope", "b.kscope"}
