"""placement="schedule": the cubin in CuTe's binary is the plain kernel's, and records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.sass.kernels import needs_tools
from unit.sass.loaded import meta, stores

from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope_cute import assembler, fatbin

from .conftest import Made

pytestmark = needs_tools
SCHEDULE = Recording(placement="schedule")
BODY = "with region('load'):\n    y = x[thread]\nwith region('store', value=n):\n    x[thread] = y * 2"


@pytest.fixture
def binaries(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The binaries that replace those of CuTe's modules."""
    found: list[bytes] = []
    original = assembler.replace_binary

    def replace_binary(module: Any, name: str, binary: bytes) -> None:
        found.append(binary)
        original(module, name, binary)

    monkeypatch.setattr(assembler, "replace_binary", replace_binary)
    return found


@pytest.mark.parametrize("options", ["", "--generate-line-info", "--ptxas-options '-maxrregcount=32'"])
def test_the_cubin_records_in_its_machine_code(make: Callable[..., Made], binaries: list[bytes], options: str) -> None:
    made = make(BODY, recording=SCHEDULE, options=options)
    assert stores(made.cubin) == 2
    about = meta(made.cubin)
    assert (about.placement, about.problems, [one.name for one in about.kernels]) == ("schedule", (), ["kernel"])
    assert [(one.name, one.type) for one in about.regions] == [("load", None), ("store", "i32")]
    assert "//kscope enter load" in made.ptx  # the text with marks is what was assembled
    assert (b".debug_line" in made.cubin) == ("line-info" in options)
    (binary,) = binaries
    assert binary.endswith(made.cubin)
    assert struct.unpack_from("<Q", binary, 8)[0] == len(binary) - 16
    assert struct.unpack_from("<Q", binary, 24)[0] == len(made.cubin)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fill": "stop"}, "fill='stop' is not supported"),
    ],
)
def test_what_cannot_be_recorded_there_is_recorded_in_its_text_and_reported(
    make: Callable[..., Made], options: dict[str, Any], why: str
) -> None:
    said = f"kernel kernel is recorded with placement='fence', because with placement='schedule' {why}"
    with pytest.warns(UserWarning, match="placement='fence'") as found:
        made = make(BODY, recording=replace(SCHEDULE, **options))
    assert any(said in str(one.message) for one in found)
    assert meta(made.cubin).placement == "fence"


def test_a_binary_of_another_layout_is_not_changed(make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch) -> None:
    original = assembler.assemble

    def assemble(*given: Any) -> assembler.Assembled:
        made = original(*given)
        return replace(made, binary=made.binary + bytes(8))

    monkeypatch.setattr(assembler, "assemble", assemble)
    with pytest.warns(UserWarning, match="the CuTe DSL's binary is not a fatbin with this cubin alone"):
        made = make(BODY, recording=SCHEDULE)
    assert meta(made.cubin).placement == "fence"


def fat(cubin: bytes, more: bytes = b"\7\0\1\0rest", name: bytes = b"kernels\0") -> bytes:
    """A binary as CuTe makes it."""
    inner = 16 + len(more) + len(name)
    entry = struct.pack("<HHIQ", 2, 0x101, inner, len(cubin)) + more + name + cubin
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def test_a_cubin_is_replaced_and_nothing_else() -> None:
    assert fatbin.with_cubin(fat(b"before.."), b"before..", b"after" * 8) == fat(b"after" * 8)


@pytest.mark.parametrize(
    "binary",
    [
        b"before..",
        fat(b"before..") + bytes(8),
        fat(b"before..") + fat(b"before.."),
        fat(b"other..."),
        fat(b"before..").replace(b"\x10\0", b"\x18\0", 1),
        b"\0" + fat(b"before..")[1:],
    ],
    ids=["no fatbin", "more behind it", "two", "another cubin", "another header", "another kind of file"],
)
def test_another_layout_is_refused(binary: bytes) -> None:
    with pytest.raises(UnsupportedError, match="not a fatbin with this cubin alone"):
        fatbin.with_cubin(binary, b"before..", b"after...")


def test_a_dry_run_compares_the_cubin_that_records(make: Callable[..., Made], tmp_path: Path) -> None:
    with catalog.listing() as found:
        made = make(BODY, recording=SCHEDULE)
    (kernel,) = found
    assert kernel.build is not None
    plain, marked = (path.read_bytes() for path in kernel.build(tmp_path) or ())
    assert (stores(plain), marked) == (0, made.cubin)
