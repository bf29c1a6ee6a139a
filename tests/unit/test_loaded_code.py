"""The machine code that is kept for samples: cubins from files and memory, the newest first, in bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from kscope.instrument import loaded_code

HEAD = b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_code, "_images", {})


def cubin(seed: int, size: int = 100) -> bytes:
    """A cubin's head, and bytes that do not compress."""
    return HEAD + Random(seed).randbytes(size)


def fatbin(*cubins: bytes) -> bytes:
    entries = [struct.pack("<HHIQ48x", 2, 257, 64, len(one)) + one for one in cubins]
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def test_cubins_come_from_files_and_from_memory_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"\x7fELF of a host" + fatbin(cubin(1), cubin(2)))
    monkeypatch.chdir(tmp_path)
    loaded_code.keep(Path("library.so"))
    monkeypatch.chdir("/")
    loaded_code.keep(tmp_path / "deleted.cubin")
    loaded_code.keep(b"b" + fatbin(cubin(3)))
    loaded_code.keep(cubin(4), shared=True)
    loaded_code.keep(cubin(5))
    assert list(loaded_code.kept_cubins()) == [cubin(5), cubin(4), cubin(3), cubin(1), cubin(2)]
    loaded_code.keep(cubin(4))
    assert next(loaded_code.kept_cubins()) == cubin(4)
    assert len(loaded_code._images) == 5


def test_what_has_no_machine_code_is_not_kept() -> None:
    loaded_code.keep(b".version 8.0\n.target sm_90\n")
    assert not loaded_code._images


def test_memory_is_bounded_and_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_code, "MOST_BYTES", 1 << 20)
    tracemalloc.start()
    for seed in range(100):
        loaded_code.keep(cubin(seed, 50_000), shared=seed % 2 == 0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 1.1 * loaded_code.MOST_BYTES
    assert list(loaded_code.kept_cubins()) == [cubin(seed, 50_000) for seed in reversed(range(80, 100))]
    loaded_code.keep(cubin(0, 2 << 20), shared=True)  # no room for it
    assert len(loaded_code._images) == 20


def test_bytes_are_compressed_unless_the_caller_has_them() -> None:
    loaded_code.keep(HEAD + bytes(100_000))
    assert sum(one.size for one in loaded_code._images.values()) < 1_000
    tracemalloc.start()
    loaded_code.keep(code := HEAD + bytes(200_000), shared=True)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(code) < used < len(code) + 10_000


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loaded_code, "MOST", 3)
    for seed in range(5):
        (tmp_path / str(seed)).write_bytes(cubin(seed))
        loaded_code.keep(tmp_path / str(seed))
    assert list(loaded_code.kept_cubins()) == [cubin(4), cubin(3), cubin(2)]
