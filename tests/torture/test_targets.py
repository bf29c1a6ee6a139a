"""Every fuzz target with mutated valid input (cut, doubled, flipped, spliced, extreme words), and with noise."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torture.targets import TARGETS, corpus

SEEDS = {name: [path.read_bytes() for path in corpus() if path.parent.name == name] for name in TARGETS}
TOO_MUCH = [
    b"0", b"-1", b"9" * 400, b"9" * 5000, b"4294967296", b"18446744073709551616", b"1e400", b"nan", b"-inf",
    b"0-9" + b"9" * 17, b"\0", b"\n", b"\xff", b"\xed\xa0\x80", b"\x1b[2J", "\u202e".encode(), "\u0663\u00b2".encode(),
    b"{}", b"[" * 2000, b'"' * 3, b"null", b"true", b"(" * 300, b"not " * 300, b"\0" * 64, b"\xff" * 64,
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """One of the seeds after a few mutations."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "end", "double", "insert", "replace", "splice"])):
            case "flip" if data:
                data[at % len(data)] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "end":
                del data[at:]
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 80))]
            case "insert":
                data[at:at] = draw(st.sampled_from(TOO_MUCH) | st.binary(max_size=8))
            case "replace":
                word = draw(st.sampled_from(TOO_MUCH))
                data[at : at + draw(st.integers(1, 12))] = word
            case _:
                data[at:] = draw(st.sampled_from(seeds))[at:]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_mutated_files_are_read_or_refused_by_name(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"target-{name}"
    folder.mkdir(exist_ok=True)
    TARGETS[name](data.draw(mutated(SEEDS[name])), folder)


@pytest.mark.parametrize("name", TARGETS)
@given(noise=st.binary(max_size=400))
def test_noise_is_read_or_refused_by_name(name: str, noise: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / f"noise-{name}"
    folder.mkdir(exist_ok=True)
    TARGETS[name](noise, folder)
