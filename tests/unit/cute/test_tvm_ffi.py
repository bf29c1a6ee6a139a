"""Functions called through TVM-FFI, which load their own library."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kscope.instrument.recording import Recording
from kscope_cuda import exported_libraries
from kscope_cute import tvm_ffi as ffi

from .conftest import VERSION, Gpu, arguments, compile, source

BODY = 'with region("one"):\n    x[thread] = 1.0'
FFI = "--enable-tvm-ffi"


@pytest.fixture
def tvm_ffi() -> Any:
    if VERSION < (4, 8):
        pytest.skip("TVM-FFI is armed from nvidia-cutlass-dsl 4.8 on")
    return pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")


def test_a_tvm_ffi_function_exports_its_library(gpu: Gpu, prepared: Any, tvm_ffi: Any) -> None:
    module = source(BODY)
    compiled = compile(module.host, *arguments(), options=FFI).compiled
    assert compiled.engine.lookup(ffi.LIBRARY)
    prepared.disable()
    plain = compile(module.host, *arguments(), options=FFI).compiled
    with pytest.raises(RuntimeError):
        plain.engine.lookup(ffi.LIBRARY)


def test_calls_through_tvm_ffi_are_armed(
    gpu: Gpu, prepared: Any, tvm_ffi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = source(BODY)
    compiled = compile(module.host, *arguments(), options=FFI).compiled
    expected_text = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 7)
    monkeypatch.setattr(compiled, "engine", _Engine({ffi.LIBRARY: ctypes.cast(expected_text, ctypes.c_void_p).value}))
    for _ in range(2):
        with pytest.raises(Exception, match=r"(?i)device"):  # memory of the host is refused, after our hook
            compiled(np.zeros(1024, np.float32), 4)
    assert (gpu.loaded, gpu.paces) == ([71], 2)


def test_a_plain_function_of_tvm_ffi_is_named(gpu: Gpu, frontend: Any, tvm_ffi: Any) -> None:
    module = source(BODY)
    compiled = compile(module.host, *arguments(), options=FFI).compiled
    frontend.enable(Recording())
    with pytest.raises(Exception, match=r"(?i)device"):
        compiled(np.zeros(1024, np.float32), 4)
    assert [problem.kind for problem in frontend.problems()] == ["plain"]


def test_exported_objects_contain_the_bind_function(
    gpu: Gpu, prepared: Any, tvm_ffi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cutlass.cute.runtime import load_module

    module = source(BODY)
    compiled = compile(module.host, *arguments(), options=FFI).compiled
    compiled.export_to_c(str(tmp_path / "made.o"), function_name="made")
    requested: list[str] = []
    library = ffi._library

    def holding(engine: Any, symbol: str, **unmarked: Any) -> Any:
        requested.append(symbol)
        assert engine.lookup(symbol)
        return SimpleNamespace(cuda_library=[9], kernels=[])

    monkeypatch.setattr(ffi, "_library", holding)
    assert library is not holding
    load_module(str(tmp_path / "made.o"), enable_tvm_ffi=True).made  # noqa: B018  # looking it up loads it
    assert (requested, gpu.loaded) == (["__cute_internal_made_kscope_library"], [91])


def test_a_plain_function_from_an_object_file_is_named_with_its_file(
    gpu: Gpu, frontend: Any, tvm_ffi: Any, tmp_path: Path
) -> None:
    """Like caches on disk: an earlier process compiled it without recording."""
    from cutlass.cute.runtime import load_module

    module = source(BODY)
    compile(module.host, *arguments(), options=FFI).compiled.export_to_c(str(tmp_path / "a.o"), function_name="made")
    frontend.enable(Recording())
    load_module(str(tmp_path / "a.o"), enable_tvm_ffi=True).made  # noqa: B018  # looking it up loads it
    (problem,) = frontend.problems()
    assert problem.kind == "plain"
    assert f"function made of {tmp_path / 'a.o'} was compiled without recording" in problem.text


def exported(tmp_path: Path, name: str) -> str:
    """An object file with a function of this name, compiled in the state in effect."""
    path = str(tmp_path / f"{name}.o")
    compile(source(BODY).host, *arguments(), options=FFI).compiled.export_to_c(path, function_name=name)
    return path


def test_functions_looked_up_before_recording_are_counted(
    gpu: Gpu, frontend: Any, tvm_ffi: Any, tmp_path: Path
) -> None:
    """Their calls cannot be seen; those of compiled functions can, and callbacks in Python launch nothing."""
    from cutlass.cute.runtime import load_module

    made = load_module(exported(tmp_path, "made"), enable_tvm_ffi=True).made
    others = tvm_ffi.convert(lambda x: x), compile(source(BODY).host, *arguments(), options=FFI).compiled
    frontend.enable(Recording())
    seen = load_module(exported(tmp_path, "later"), enable_tvm_ffi=True).later
    frontend.begin()
    (problem,) = (one for one in frontend.problems() if "function later" not in one.text)
    assert (problem.kind, problem.count) == ("plain", 1)
    assert problem.text.startswith("1 function from object files or of --enable-tvm-ffi, looked up before recording")
    assert others and seen is not None
    del made
    assert not [one for one in frontend.problems() if "looked up before" in one.text]


def test_functions_in_the_caches_of_libraries_are_not_counted(
    gpu: Gpu, frontend: Any, tvm_ffi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session uses other entries of these caches."""
    from cutlass.cute.runtime import load_module

    class JITCache:
        def __init__(self) -> None:
            self.cache = {1: load_module(exported(tmp_path, "made"), enable_tvm_ffi=True).made}

        def __contains__(self, key: Any) -> bool:
            return key in self.cache

        __getitem__ = __setitem__ = __contains__

    monkeypatch.setitem(sys.modules, "flash_attn.cute.cache_utils", SimpleNamespace(JITCache=JITCache))
    cache = JITCache()
    frontend.enable(Recording())
    assert frontend.problems() == ()
    cache.cache, kept = {}, cache.cache
    assert kept and [problem.kind for problem in frontend.problems()] == ["plain"]


def test_functions_from_object_files_are_named_in_every_session(
    gpu: Gpu, prepared: Any, tvm_ffi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cutlass.cute.runtime import load_module

    monkeypatch.setattr(ffi, "_library", lambda *_, **__: SimpleNamespace(cuda_library=[9], kernels=[]))
    made = load_module(exported(tmp_path, "made"), enable_tvm_ffi=True).made
    gpu.others = True
    for recording, kinds in ((Recording(), []), (Recording(clock="globaltimer"), ["options"])):
        prepared.enable(recording)
        prepared.begin()
        assert [problem.kind for problem in prepared.problems()] == kinds
    assert made is not None and gpu.loaded == [91]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_shared_library_of_an_exported_object_has_the_function_for_kscope_bind(
    gpu: Gpu, prepared: Any, tvm_ffi: Any, tmp_path: Path
) -> None:
    """The example of docs/cute.md."""
    from cutlass.cute.runtime import find_runtime_libraries

    module = source(BODY)
    compiled = compile(module.host, *arguments(), options=FFI).compiled
    compiled.export_to_c(str(tmp_path / "made.o"), function_name="made")
    libraries = find_runtime_libraries(enable_tvm_ffi=True)
    found = [f"-Wl,-rpath,{Path(library).parent}" for library in libraries]
    subprocess.run(["cc", "-shared", tmp_path / "made.o", *libraries, *found, "-o", tmp_path / "made.so"], check=True)
    assert tvm_ffi.load_module(str(tmp_path / "made.so")).made is not None
    assert gpu.loaded == [], "no hook of CuTe's Python sees it"
    path = str(tmp_path / "made.so")
    names = exported_libraries._exported_names(Path(path).read_bytes())
    assert [name for name in names if name.endswith(exported_libraries.SUFFIX)] == [
        "__cute_internal_made_kscope_library"
    ]
    assert ctypes.CDLL(path)["__cute_internal_made_kscope_library"]
    assert ffi.LIBRARY.endswith(exported_libraries.SUFFIX)


class _Engine:
    def __init__(self, symbols: dict[str, int | None]) -> None:
        self._symbols = symbols

    def lookup(self, name: str) -> int | None:
        return self._symbols[name]
