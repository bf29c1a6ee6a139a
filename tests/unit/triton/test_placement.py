"""placement="schedule": the cubin that Triton loads is the plain kernel's, and records."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from control_addresses import addresses
from unit.sass.kernels import functions, needs_tools
from unit.sass.loaded import record_stores

import kscope
from kscope.capture import metadata
from kscope.capture.model import ModuleMeta
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.machine_code import control_words
from kscope.sass.checks import hazards

sys.path.append(str(Path(__file__).parent))

from fake_gpu import FakeGpu, Pointer, active, record  # it is in this folder

pytestmark = needs_tools
ADDRESSES = (0x7F34_1234_5678, 0x7FA0_8800_0200)
TYPES: dict[str, Any] = {"a": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": 1024}


@triton.jit
def copies(a, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with kscope.region("load"):
        x = tl.load(a + at)
    with kscope.region("store"):
        tl.store(out + at, x * 2, mask=at < n)


@pytest.fixture
def compiled(frontend: Any, compiler: Any) -> Iterator[Any]:
    """Compiles a kernel with the options of a recording; returns it, its metadata and warnings."""

    def compile_it(arch: int = 90, **options: Any) -> tuple[Any, ModuleMeta, list[str]]:
        frontend.enable(Recording(placement="schedule", **options))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            kernel = compiler(copies, arch, **TYPES)
        return kernel, metadata.from_json(kernel.metadata.kscope.encode()), [str(one.message) for one in found]

    return compile_it


def test_the_cubin_records_in_its_machine_code(compiled: Any) -> None:
    kernel, about, _ = compiled()
    (function,) = functions(kernel.asm["cubin"])
    assert hazards.check(function) == ()
    assert about.placement == "schedule"
    assert [region.name for region in about.regions] == ["load", "store"]
    stores = record_stores(function.instructions)
    (row,) = about.layouts  # both regions are stored at once
    assert len(row.records) == 2 and len(stores) == 1
    assert "//kscope enter load" in kernel.asm["ptx"]  # the text with marks is what was assembled


def test_its_metadata_is_in_the_cubin(compiled: Any) -> None:
    kernel, about, _ = compiled()
    assert kernel.asm["cubin"].count(metadata.to_json(about)) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fill": "stop"}, "fill='stop' is not supported"),
        ({"arch": 100}, "sm_100 is not supported"),
    ],
)
def test_what_cannot_be_recorded_there_is_recorded_in_its_text_and_reported(
    compiled: Any, options: dict[str, Any], why: str
) -> None:
    kernel, about, said = compiled(**options)
    assert about.placement == "fence"
    (problem,) = [one for one in about.problems if one.kind == "placement"]
    assert problem.text == (
        f"kernel copies is recorded with placement='fence', because with placement='schedule' {why}"
    )
    assert any(problem.text in one for one in said)
    assert "//kscope" not in kernel.asm["ptx"]


def test_both_placements_have_kernels_of_their_own(compiled: Any, frontend: Any, compiler: Any) -> None:
    _, schedule, _ = compiled()
    frontend.enable(Recording())
    fence = metadata.from_json(compiler(copies, **TYPES).metadata.kscope.encode())
    assert schedule.kernels[0].name == fence.kernels[0].name
    assert schedule.kernels[0].id != fence.kernels[0].id


class Backend:
    """A fake of the CUDA runtime with a control block on each device."""

    def patched(self, cubin: bytes, ordinal: int) -> bytes:
        return control_words.patched(cubin, ADDRESSES[ordinal])

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        return ()

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_open(self) -> bool:
        return True

    def capture(self, stream: int) -> int:
        return 0

    def pace(self, kernel: object = None) -> None:
        """Nothing fills up here."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    monkeypatch.setitem(registry._backends, "cuda", Backend())  # type: ignore[arg-type]  # as much as is used
    yield from active(monkeypatch, copies)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_device_loads_a_copy_with_the_address_of_its_control_block(
    frontend: Any, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """The cache on disk, which both share, has none."""
    record(frontend, Recording(placement="schedule"))
    for device in order:
        monkeypatch.setattr(gpu, "get_current_device", lambda device=device: device)
        made = copies[(4,)](Pointer(), Pointer(), 4096, 1024)
        assert addresses(made.asm["cubin"]) == [0]
        assert addresses(gpu.loaded[-1][1]) == [ADDRESSES[device]]
    assert len(gpu.loaded) == 2
    (kept,) = tmp_path.rglob("*.cubin")
    assert addresses(kept.read_bytes()) == [0]


def test_after_recording_is_disabled_triton_loads_what_it_has(frontend: Any, gpu: FakeGpu) -> None:
    load = gpu.utils.load_binary
    record(frontend, Recording(placement="schedule"))
    copies[(4,)](Pointer(), Pointer(), 4096, 1024)
    assert gpu.utils.load_binary is not load
    frontend.disable()
    assert gpu.utils.load_binary == load
