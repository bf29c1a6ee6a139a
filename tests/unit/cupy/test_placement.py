"""placement="schedule": the cubin that CuPy and other programs with NVRTC load is the plain kernel's, and records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synth
from control_addresses import addresses
from unit.sass.kernels import functions, needs_tools
from unit.sass.loaded import meta, stored, stores

from kscope.capture.layout import Kind, record_id
from kscope.instrument import loaded_code
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.lowering.plan import without_marks
from kscope.machine_code import control_words
from kscope_cuda import assembler, nvrtc

pytestmark = needs_tools
SCHEDULE = Recording(placement="schedule")
ADDRESS = 0x7F34_1234_5678
Source = Callable[..., str]


def built(gpu: Any, frontend: Any, text: str, recording: Recording = SCHEDULE) -> tuple[bytes, list[str]]:
    """The code that CuPy loads, and the reported problems of placement."""
    frontend.enable(recording)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        code = gpu.compile(text)
    problems = [str(one.message) for one in found]
    return code, [one for one in problems if "is recorded with placement='fence'" in one]


def test_the_cubin_records_in_its_machine_code(frontend: Any, gpu: Any, source: Source) -> None:
    code, problems = built(gpu, frontend, source())
    assert (stores(code), problems) == (1, [])
    assert meta(code).placement == "schedule"
    assert [(one.name, one.where) for one in meta(code).regions] == [("work", "kern.cu:3")]


def test_the_device_loads_a_copy_with_the_address_of_its_control_block(
    frontend: Any, gpu: Any, source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cache on disk has none, and neither has the code that is kept for samples."""
    monkeypatch.setattr(gpu.backend, "patched", lambda cubin, ordinal: control_words.patched(cubin, ADDRESS))
    monkeypatch.setattr(loaded_code, "_images", {})
    gpu.backend.metas = (synth.module(),)
    for _ in range(2):  # compiled, and found on disk
        code, problems = built(gpu, frontend, source())
        assert problems == [] and addresses(code) == [ADDRESS]
        assert [addresses(one) for one in loaded_code.kept_cubins()] == [[0]]
    assert len(gpu.compiled) == 1
    words = (ADDRESS & 0xFFFFFFFF).to_bytes(4, "little")
    on_disk = [one.read_bytes() for one in (tmp_path / "disk").iterdir()]
    assert on_disk and words in code and not any(words in one for one in on_disk)


def test_code_that_the_program_loads_itself_reads_the_address_from_the_modules_constant(
    source: Source, ptx: Any
) -> None:
    for frontend in ("cuda", "cuda.core"):
        code = nvrtc.lower(ptx(source()), SCHEDULE, frontend=frontend, arch="sm_90")
        assert meta(code).placement == "schedule" and control_words.moves(code) == ()


def test_regions_that_follow_each_other_are_one_store_whose_layout_the_module_has(
    frontend: Any, gpu: Any, source: Source
) -> None:
    body = '{ KSCOPE_REGION("first"); out[0] = n; } { KSCOPE_REGION("second"); out[1] = n; }'
    code, problems = built(gpu, frontend, source(body))
    ids = [record_id(name, Kind.SPAN) for name in ("first", "second", "work")]
    [about] = meta(code).layouts
    assert problems == [] and sorted(number for number, _, _ in about.records) == sorted(ids)
    assert {(start, end) for _, start, end in about.records} == {(0, 1), (1, 2), (0, 2)}
    assert stores(code) == 1


@pytest.mark.parametrize("flags", [(), ("-lineinfo",), ("-maxrregcount=32",)])
def test_the_line_table_is_the_users(frontend: Any, flags: tuple[str, ...], source: Source, ptx: Any) -> None:
    """Labels need a line table; the cubin has one only where the user wants one."""
    code = nvrtc.lower(ptx(source()), SCHEDULE, frontend="cupy", arch="sm_90", flags=flags)
    assert stores(code) == 1
    assert (b".debug_line" in code) == ("-lineinfo" in flags)


def test_a_template_has_the_users_name(source: Source, ptx: Any) -> None:
    text = 'template <class T> __global__ void kernel(T* out) { KSCOPE_REGION("work"); out[0] = 1; }'
    text += "\ntemplate __global__ void kernel<int>(int*);"
    mangled = "_Z6kernelIiEvPT_"
    code = nvrtc.lower(ptx(text), SCHEDULE, frontend="cupy", arch="sm_90", names={mangled: "kernel<int>"})
    assert [one.name for one in meta(code).kernels] == ["kernel<int>"]
    assert functions(code)[0].name == mangled
    assert meta(code).placement == "schedule"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fill": "stop"}, "fill='stop' is not supported"),
    ],
)
def test_what_cannot_be_recorded_there_is_recorded_in_its_text_and_reported(
    frontend: Any, gpu: Any, source: Source, options: dict[str, Any], why: str
) -> None:
    code, (problem,) = built(gpu, frontend, source(), Recording(placement="schedule", **options))
    assert f"kernel kernel is recorded with placement='fence', because with placement='schedule' {why}" in problem
    assert meta(code).placement == "fence"
    assert "placement" in [one.kind for one in meta(code).problems]


def test_every_kernel_of_a_module_records_in_its_machine_code(frontend: Any, gpu: Any, source: Source) -> None:
    plain = 'extern "C" __global__ void plain(int* out) { out[0] = 1; }'
    code, problems = built(gpu, frontend, source() + source(name="other", include=False) + plain)
    assert problems == [] and meta(code).placement == "schedule"
    first, second = meta(code).kernels
    assert {first.name, second.name} == {"kernel", "other"} and first.id != second.id
    assert {one.name: stored(one) for one in functions(code)} == {"kernel": 1, "other": 1, "plain": 0}


def test_one_kernel_that_cannot_be_recorded_there_keeps_the_others_in_their_text(
    frontend: Any, gpu: Any, source: Source
) -> None:
    called = "__noinline__ __device__ int called(int n) { for (int k = 0; k < n; ++k) n ^= clock(); return n; }\n"
    other = source("out[0] = called(n);", name="other", include=False)
    code, problems = built(gpu, frontend, source() + called + other)
    found = [(one.partition(" is ")[0], "other cannot be moved: CALL" in one) for one in problems]
    assert found == [("kscope: kernel kernel", True), ("kscope: kernel other", True)]
    assert meta(code).placement == "fence"


@pytest.mark.parametrize("arch", [None, "sm_90"])
def test_only_ptxas_can_assemble_it(
    source: Source, ptx: Any, arch: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's and nvJitLink's code are not kscope's to change."""
    if arch:
        monkeypatch.setattr(assembler, "ptxas", lambda most=None: None)
        assembler.assemble.cache_clear()
    with pytest.warns(UserWarning, match="placement='fence'") as found:
        code = nvrtc.lower(ptx(source()), SCHEDULE, frontend="cupy", arch=arch)
    assembler.assemble.cache_clear()
    (problems,) = [str(one.message) for one in found if "placement" in str(one.message)]
    why = "install nvidia-cuda-nvcc" if arch else "kscope does not run the assembler for this kernel"
    assert why in problems
    assert meta(code).placement == "fence"


def test_a_dry_run_compares_the_cubin_that_records(frontend: Any, gpu: Any, source: Source, tmp_path: Path) -> None:
    with catalog.listing() as found:
        code, _ = built(gpu, frontend, source())
    (kernel,) = found
    assert kernel.build is not None
    plain, marked = (path.read_bytes() for path in kernel.build(tmp_path) or ())
    assert (stores(plain), marked) == (0, code)


@pytest.fixture
def ptx(gpu: Any) -> Callable[[str], str]:
    """The PTX of a source with marks, with line information."""

    def compile_it(text: str) -> str:
        from cupy.cuda import compiler

        options = ("-arch=compute_90", "-std=c++17", *nvrtc.options(SCHEDULE), nvrtc.LINE_INFO)
        made, _ = compiler._NVRTCProgram(nvrtc.with_header(text, name=nvrtc.FILE), "k.cu", method="ptx").compile(
            options
        )
        assert "//kscope" in made.decode() and "//kscope" not in without_marks(made.decode())
        return str(made.decode())

    return compile_it
