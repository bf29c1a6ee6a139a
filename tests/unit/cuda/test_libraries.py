"""Libraries built by nvcc: found through their exports, armed once, and described. The CUDA runtime is a stand-in
that gives every constant its own address in host memory."""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from nvcc import HEADER, IN_PLACE, PLAIN, compiled, needs_nvcc

import kscope
import kscope_cuda
from kscope.capture.model import KernelMeta, ModuleMeta
from kscope.errors import DriverError, UsageError
from kscope.instrument import registry
from kscope.instrument.backend import Backend
from kscope.instrument.registry import Entry
from kscope.session import states
from kscope_cuda.frontend import CudaFrontend
from kscope_cuda.load import Library

STANDIN = """
typedef int E;
static int answer;
__attribute__((visibility("default"))) void answer_with(int error) { answer = error; }
E cudaGetSymbolAddress(void** found, const void* symbol) { *found = (void*)symbol; return answer; }
void** __cudaRegisterFatBinary(void* binary) { static void* handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void** handle) {}
void __cudaUnregisterFatBinary(void** handle) {}
void __cudaRegisterVar() {}
void __cudaRegisterFunction() {}
char __cudaInitModule(void** handle) { return 0; }
E __cudaPushCallConfiguration() { return 0; }
E __cudaPopCallConfiguration() { return 0; }
E cudaLaunchKernel() { return 0; }
E cudaLaunchKernelExC() { return 0; }
E __cudaLaunchKernel() { return 0; }
E __cudaGetKernel() { return 0; }
"""
UNIT = (
    HEADER
    + """
__global__ void NAME(int* out) {
  KSCOPE_KERNEL();
  KSCOPE_REGION("of NAME");
  out[0] = 1;
}
void launch_NAME(int* out) { NAME<<<1, 32>>>(out); }
"""
)
Build = Callable[..., Path]


class FakeBackend(Backend):
    """Records which control blocks were armed, and which code was bound."""

    found: list[tuple[int, tuple[ModuleMeta, ...]]]

    def __init__(self) -> None:
        self.found, self.bound = [], list[object]()

    def arm_control_block(self, control: int, metas: Sequence[ModuleMeta]) -> None:
        self.found.append((control, tuple(metas)))

    def bind(self, code: object, metas: Sequence[ModuleMeta]) -> tuple[ModuleMeta, ...]:
        self.bound.append(code)
        return tuple(metas) or (ModuleMeta("cute", (KernelMeta("exported", 1, 2),), ()),)

    def module_loaded(self, module: int) -> None: ...
    def arm(self, epoch: int, subset: object, pool_bytes: int | None, folder: object = None) -> None: ...
    def disarm(self) -> None: ...
    def resume(self) -> None: ...
    def collect(self, *, wait: bool) -> list[object]:  # type: ignore[override]  # there are none
        return []

    def modules(self) -> tuple[ModuleMeta, ...]:
        return self.found[-1][1] if self.found else ()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The only backend, and libraries as the only frontend."""
    fake = FakeBackend()
    monkeypatch.setattr(registry, "_frontends", {})
    monkeypatch.setattr(registry, "_backends", {"cuda": fake})
    monkeypatch.setattr(registry, "TABLE", {"cuda": registry.TABLE["cuda"]})
    monkeypatch.setattr("kscope.instrument.registry._announced", lambda path: {})
    yield fake
    states.STATE.active = states.STATE.join = None
    kscope.disable()


NVCC = "nvcc", "-arch=sm_90", "-Xcompiler", "-fPIC", f"-I{kscope.cuda_include()}"


@cache
def _object(name: str, text: str, command: tuple[str, ...]) -> bytes:
    """The object file that the command makes of a source; most libraries here share their units."""
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        Path(folder, name).write_text(text)
        subprocess.run([*command, name, "-o", "unit.o"], cwd=folder, check=True)
        return Path(folder, "unit.o").read_bytes()


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build a library of units with these kernels, against the stand-in. more: code in each, after its region."""

    def build(name: str, *kernels: str, options: tuple[str, ...] = (IN_PLACE,), more: str = "") -> Path:
        folder = tmp_path / name
        folder.mkdir()

        def run(*command: str) -> None:
            subprocess.run(command, cwd=folder, check=True)

        standin = "gcc", "-w", "-c", "-fPIC", "-fvisibility=hidden"
        sources = {"standin.c": (standin, STANDIN)}
        for kernel in kernels:
            source = UNIT.replace("NAME", kernel).replace("  out[0]", f"  {more}\n  out[0]")
            sources[f"{kernel}.cu"] = ((*NVCC, "-c", *options), source)
        objects = [Path(source).stem + ".o" for source in sources]
        for made, (source, (command, text)) in zip(objects, sources.items(), strict=True):
            (folder / made).write_bytes(_object(source, text, command))
        if "-rdc=true" in options:
            run(*NVCC, "-dlink", *objects[1:], "-o", "linked.o")
            objects.append("linked.o")
        run("g++", "-shared", *objects, "-o", f"{name}.so")
        return folder / f"{name}.so"

    return build


@needs_nvcc
def test_every_unit_of_a_library_is_armed_separately(build: Build, backend: FakeBackend) -> None:
    kscope_cuda.arm(build("two", "left", "right"))
    assert len({control for control, _ in backend.found}) == 2
    (meta,) = backend.found[0][1]
    assert {kernel.name for kernel in meta.kernels} == {"left", "right"}
    assert [region.name for region in meta.regions] == ["of left", "of right"]


@needs_nvcc
def test_libraries_in_one_namespace_are_armed_separately(build: Build, backend: FakeBackend) -> None:
    one, other = build("one", "left"), build("other", "right", "third")
    for path in (one, other):  # as a program would: into one namespace
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    kscope_cuda.arm(one)
    assert len(backend.found) == 1
    kscope_cuda.arm(other)
    assert len({control for control, _ in backend.found}) == 3


@needs_nvcc
def test_a_library_is_armed_by_path_handle_or_module(build: Build, backend: FakeBackend) -> None:
    path = build("one", "left")
    handle = ctypes.CDLL(str(path))
    module = type(kscope)("extension")
    module.__file__ = str(path)
    for library in (path, str(path), handle, module):
        kscope_cuda.arm(library)
    assert len({control for control, _ in backend.found}) == 1


@needs_nvcc
def test_units_linked_with_relocatable_device_code_are_armed_one_by_one(build: Build, backend: FakeBackend) -> None:
    kscope_cuda.arm(build("linked", "left", "right", options=(IN_PLACE, "-rdc=true")))
    assert len({control for control, _ in backend.found}) == 2


@needs_nvcc
def test_a_session_arms_a_library_again(build: Build, backend: FakeBackend) -> None:
    """The current device may be another one than before."""
    kscope_cuda.arm(build("one", "left"))
    with kscope.profile() as prof:
        assert len(backend.found) == 2
    assert [region.name for meta in prof.capture.modules for region in meta.regions] == ["of left"]
    assert prof.capture.problems == ()


@needs_nvcc
def test_session_options_without_effect_on_a_library_are_reported(build: Build, backend: FakeBackend) -> None:
    kscope_cuda.arm(build("one", "left"))
    with kscope.profile(strategy=kscope.AllThreads(), fill="stop", clock="cycles", placement="schedule") as prof:
        pass
    texts = [problem.text for problem in prof.capture.problems if problem.kind == "options"]
    assert len(texts) == 3
    assert any(text.endswith("placement=schedule has no effect on code that nvcc compiled") for text in texts)
    assert any("was built with strategy=elected: the session's strategy=all has no effect" in text for text in texts)
    assert any("fill=ring" in text and "kscope_cuda.flags(fill=...)" in text for text in texts)


@needs_nvcc
def test_explicit_marks_of_a_library_that_do_not_pair_are_reported(build: Build, backend: FakeBackend) -> None:
    options = IN_PLACE, "-compress-mode=none"
    library = build("unpaired", "one", options=options, more='if (out[1]) KSCOPE_ENTER("r");')
    kscope_cuda.arm(library)
    kscope_cuda.arm(build("paired", "two", options=options, more='KSCOPE_ENTER("r"); out[2] = 1; KSCOPE_EXIT("r");'))
    frontend = registry.frontend("cuda")
    for _ in range(2):  # sessions
        (problem,) = frontend.problems()
        assert problem.kind == "pairing"
        assert problem.text.startswith(f"{library}: kernel ")
        assert "region 'r' (one.cu:6) is" in problem.text


@needs_nvcc
@pytest.mark.parametrize("options", [(PLAIN,), ()])
def test_plain_libraries_are_refused_with_the_remedy(
    build: Build, backend: FakeBackend, options: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match=r"plain\.so was not built with kscope.*nvcc -DKSCOPE=1"):
        kscope_cuda.arm(build("plain", "left", options=options))


@needs_nvcc
def test_bind_takes_libraries_as_arm_does(build: Build, backend: FakeBackend) -> None:
    path = build("two", "left", "right")
    assert sorted(kscope.bind(path)) == ["left", "right"]
    assert len(backend.found) == 2
    with pytest.raises(UsageError, match="a shared object contains its names, so omit the image"):
        kscope.bind(path, path)


EXPORTING = """
long long one_kscope_library() { return 0x70; }
long long two_kscope_library() { return 0x71; }
extern long long not_here_kscope_library();
long long kscope_library_of_another() { return not_here_kscope_library ? 0x72 : 0x73; }
static long long hidden_kscope_library() { return 0x74; }
long long (*used)() = hidden_kscope_library;
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_shared_object_that_exports_its_libraries_is_bound_by_them(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made.c").write_text(
        EXPORTING.replace("extern long long not", "extern __attribute__((weak)) long long not")
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "made.c", "-o", "made.so"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert kscope.bind("made.so") == ("exported",) * 2
    assert sorted(backend.bound) == [0x70, 0x71]


@needs_nvcc
def test_a_shared_object_may_export_libraries_and_contain_code_of_nvcc(
    build: Build, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = '__attribute__((visibility("default"))) long long made_kscope_library() { return 0x70; }'
    monkeypatch.setitem(globals(), "STANDIN", STANDIN + exported)
    path = build("both", "left")
    assert kscope.bind(path) == ("exported", "left")
    assert backend.bound == [0x70] and len(backend.found) == 1


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_a_library_that_does_not_load_is_reported_with_its_path(tmp_path: Path, backend: FakeBackend) -> None:
    (tmp_path / "made.c").write_text("long long one_kscope_library() { return 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "made.c", "-o", "made.so"], cwd=tmp_path, check=True)
    with pytest.raises(UsageError, match=r"made\.so: its code does not load on the current GPU"):
        kscope.bind(tmp_path / "made.so")
    assert backend.bound == []


@pytest.mark.parametrize("image", [5, object()], ids=["a number", "an object"])
def test_an_image_of_another_type_is_refused(backend: FakeBackend, image: object) -> None:
    with pytest.raises(UsageError, match=r"image=.*: expected the bytes of a cubin or fatbin, or its path"):
        kscope.bind(7, image)  # type: ignore[arg-type]  # the point of the test
    assert backend.bound == []


CODE = UNIT[: UNIT.index("void launch")].replace("NAME", "alone")


@needs_nvcc
@pytest.mark.parametrize("to", ["cubin", "fatbin"])
def test_bind_reads_the_names_of_code_in_place_from_its_file(tmp_path: Path, backend: FakeBackend, to: str) -> None:
    data = compiled(CODE, IN_PLACE, to=to)
    path = tmp_path / f"code.{to}"
    path.write_bytes(data)
    for image in (data, bytearray(data), memoryview(data), path, str(path)):
        assert kscope.bind(7, image) == ("alone",)
    assert backend.bound == [7] * 5


@needs_nvcc
def test_session_options_without_effect_on_bound_code_name_its_file(tmp_path: Path, backend: FakeBackend) -> None:
    path = tmp_path / "code.cubin"
    path.write_bytes(compiled(CODE, IN_PLACE, to="cubin"))
    kscope.bind(7, path)
    with kscope.profile(fill="stop") as prof:
        pass
    (problem,) = prof.capture.problems
    assert problem.text.startswith(f"{path} was built with fill=ring: ")
    assert backend.bound == [7]  # the code may be unloaded by now


@needs_nvcc
def test_two_images_without_a_path_are_both_reported(backend: FakeBackend) -> None:
    options = IN_PLACE, "-compress-mode=none"
    for name in ("one", "other"):
        code = CODE.replace("alone", name).replace("  out[0]", '  if (out[1]) KSCOPE_ENTER("r");\n  out[0]')
        kscope.bind(7, compiled(code, *options, to="fatbin"))
    one, other = registry.frontend("cuda").problems()
    assert one.text.startswith("the image: kernel _Z3onePi") and other.text.startswith("the image: kernel _Z5otherPi")


@needs_nvcc
def test_a_file_without_names_is_refused(backend: FakeBackend) -> None:
    with pytest.raises(UsageError, match=r"the image has no kscope names: .*omit it if kscope compiled the module"):
        kscope.bind(7, compiled(CODE, PLAIN, to="cubin"))
    assert backend.bound == []


def test_another_thread_may_bind_while_a_session_begins_and_ends(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend = registry.frontend("cuda")
    assert isinstance(frontend, CudaFrontend)
    met: list[Library] = []

    def meanwhile(library: Library) -> list[int]:
        met.append(library)
        frontend._libraries[len(met), "bound meanwhile"] = library
        return []

    frontend._libraries["first"] = Library("first", None, (), (), ())
    monkeypatch.setattr(Library, "controls", meanwhile)
    monkeypatch.setattr(frontend, "_differences", lambda library: meanwhile(library) or set())
    with kscope.profile():
        assert len(met) == 1
    assert len(met) == 3


def test_code_lowered_by_kscope_binds_without_a_file(backend: FakeBackend) -> None:
    assert kscope.bind(7) == ("exported",)
    with kscope.profile() as prof:
        pass
    assert prof.capture.problems == ()


@needs_nvcc
def test_an_error_of_the_cuda_runtime_is_reported_with_its_number(build: Build, backend: FakeBackend) -> None:
    library = ctypes.CDLL(str(build("one", "left")))
    library.answer_with(209)
    with pytest.raises(DriverError, match=r"cudaGetSymbolAddress.*cudaError 209.*no code for this GPU"):
        kscope_cuda.arm(library)


def test_arming_the_main_program_is_refused() -> None:
    with pytest.raises(UsageError, match="arm a shared object"):
        kscope_cuda.arm(ctypes.CDLL(None))
    with pytest.raises(UsageError, match="the module has no file"):
        kscope_cuda.arm(type(kscope)("builtin"))


def test_compile_flags_match_the_headers_macros() -> None:
    flags = kscope_cuda.flags(strategy=kscope.TargetWarp(1, 3), records=1000, fill="stop", clock="globaltimer")
    assert f"-I{kscope.cuda_include()}" in flags
    assert {"-DKSCOPE=1", "-DKSCOPE_RECORDS=1000", "-DKSCOPE_FILL=stop", "-DKSCOPE_CLOCK=globaltimer"} <= {*flags}
    assert "-DKSCOPE_WARPS=0xa" in flags
    assert "-DKSCOPE_STRATEGY=kscope::AllThreads" in kscope_cuda.flags(strategy=kscope.AllThreads())
    assert any(flag.startswith("-DKSCOPE_TAG=0x") for flag in flags)
    with pytest.raises(UsageError, match="fill='grow'"):
        kscope_cuda.flags(fill="grow")  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    "strategy", [kscope.TargetWarp(0), kscope.TargetWarp(0, 31), kscope.Lane0Warp0(), kscope.AllThreads()], ids=str
)
def test_flags_mean_the_same_in_a_shell(strategy: kscope.Strategy) -> None:
    """torch writes them to build.ninja unquoted."""
    where, *flags = kscope_cuda.flags(strategy=strategy, records=1000, fill="stop", clock="globaltimer")
    assert where.startswith("-I") and shlex.split(" ".join(flags)) == flags == [shlex.quote(flag) for flag in flags]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'amr'.*\barm\b"):
        _ = kscope_cuda.amr
    assert {*kscope_cuda.__all__} <= {*dir(kscope_cuda)}
    assert all(getattr(kscope_cuda, name) for name in kscope_cuda.__all__)


def test_importing_kscope_cuda_does_not_join_sessions() -> None:
    """arm() joins them: programs that only need the header may have no GPU."""
    assert registry.TABLE["cuda"] == Entry("kscope_cuda.frontend", "kscope_cuda:CudaFrontend", "cuda")
