"""CuTe's caches, in memory and on disk, are separate per state; hooks are installed and removed with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import cutlass
import numpy as np
import pytest
from cutlass.base_dsl import compiler, dsl, jit_executor
from cutlass.base_dsl.common import DSLCudaRuntimeError
from cutlass.base_dsl.export import external_binary_module
from cutlass.cute.runtime import from_dlpack

from kscope.errors import UnsupportedError
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope_cute import assembler, compilations
from kscope_cute.library_caches import LibraryCaches

from .conftest import VERSION, Made, arguments, compile, source

Make = Callable[..., Made]
BODY = 'with region("one"):\n    x[thread] = 1.0'


def test_plain_kernels_equal_kernels_without_kscope(make: Make) -> None:
    off = make(BODY, recording=None)
    bare = make("x[thread] = 1.0", recording=None)
    assert (off.ptx, off.cubin) == (bare.ptx, bare.cubin)


def test_a_kernel_without_marks_is_the_same_while_recording_is_enabled(make: Make) -> None:
    on, off = make("x[thread] = 1.0"), make("x[thread] = 1.0", recording=None)
    assert (on.ptx, on.cubin) == (off.ptx, off.cubin)


def test_one_kernel_compiles_in_every_state(frontend: Any) -> None:
    module, texts = source(BODY), []
    for recording in (None, Recording(), None, Recording(clock="globaltimer"), Recording()):
        enter(frontend, recording)
        texts.append(compile(module.host, *arguments()).ptx)
    assert texts[0] == texts[2]
    assert texts[1] == texts[4]
    assert len(set(texts)) == 3


def enter(frontend: Any, recording: Recording | None) -> None:
    """The state in which kernels are compiled for `recording`; None is plain."""
    if recording is None:
        frontend.disable()
    else:
        frontend.enable(recording)


@pytest.mark.parametrize("after", [None, Recording(clock="globaltimer")], ids=["plain", "other options"])
def test_a_state_that_another_thread_changes_waits_for_a_compilation(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, after: Recording | None
) -> None:
    module, read = source(BODY), assembler.read_ptx
    threads: list[threading.Thread] = []
    waited: list[bool] = []

    def changed(folder: str) -> tuple[str, str]:
        threads.append(threading.Thread(target=enter, args=(frontend, after)))
        threads[0].start()
        threads[0].join(0.1)
        waited.append(threads[0].is_alive())
        return read(folder)

    enter(frontend, Recording())
    expected = compile(module.host, *arguments()).ptx
    with monkeypatch.context() as patch:
        patch.setattr(assembler, "read_ptx", changed)
        assert compile(module.host, *arguments()).ptx == expected
    threads[0].join()
    assert waited == [True]
    second = compile(module.host, *arguments()).ptx
    assert second != expected and ("kscope_ctl" in second) == (after is not None)


HOOKED = "CHANGES = []\ndef change():\n    for one in CHANGES:\n        one()"


def test_a_compilation_that_began_plain_ends_plain(frontend: Any) -> None:
    module = source(BODY, HOOKED, "change()\n    if True:")
    plain = compile(module.host, *arguments()).ptx
    module.CHANGES.append(lambda: frontend.enable(Recording()))  # as if no change waited for it
    assert compile(module.host, *arguments()).ptx == plain
    assert "kscope_ctl" in compile(module.host, *arguments()).ptx


@pytest.mark.parametrize("after", [None, Recording(records=1024)], ids=["plain", "other options"])
def test_a_compilation_that_begins_during_a_change_waits_for_it(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, after: Recording | None
) -> None:
    module, made = source(BODY), list[str]()
    enter(frontend, after)
    expected = compile(module.host, *arguments()).ptx
    enter(frontend, Recording())
    thread = threading.Thread(target=lambda: made.append(compile(module.host, *arguments()).ptx))
    use, waited = LibraryCaches.use, list[bool]()

    def began(self: LibraryCaches, tag: str) -> None:
        thread.start()
        thread.join(0.5)
        waited.append(thread.is_alive())
        use(self, tag)

    with monkeypatch.context() as patch:
        patch.setattr(LibraryCaches, "use", began)
        enter(frontend, after)
    thread.join()
    assert (waited, made) == ([True], [expected])


def test_a_function_unmarked_after_cute_preprocessed_it_is_preprocessed_again(
    frontend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state changes before CuTe traces the function: its control flow must still be CuTe's."""
    module = source(BODY, around="for _ in range(n):")
    frontend.enable(Recording())
    expected = compile(module.host, *arguments()).ptx
    frontend.enable(Recording(selection=Selection(kinds=("load",))))
    wait = compilations.compile_unchanged

    def late(*args: Any, **kwargs: Any) -> Any:
        frontend.enable(Recording())
        return wait(*args, **kwargs)

    monkeypatch.setattr(compilations, "compile_unchanged", late)
    assert compile(module.host, *arguments()).ptx == expected


@pytest.mark.parametrize("after", [None, Recording()], ids=["disabled", "without the selection"])
def test_a_function_is_whole_while_the_selection_ends_between_preprocessing_and_tracing(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, after: Recording | None
) -> None:
    """A few bytecodes of CuTe's, in which no compilation is seen that a change of the state could wait for."""
    module = source(BODY, around="for _ in range(n):")
    enter(frontend, after)
    expected = compile(module.host, *arguments()).ptx
    frontend.enable(Recording(selection=Selection(kinds=("load",))))
    assert compile(module.host, *arguments()).ptx != expected
    call, entered = dsl.BaseDSL._func, list[CodeType]()

    def late(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is module.host.__wrapped__:
            enter(frontend, after)
            entered.append(function.__code__)
        return call(self, function, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(dsl.BaseDSL, "_func", late)
        assert compile(module.host, *arguments()).ptx == expected
    assert [code.co_name for code in entered] == ["host"]


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys under which CuTe keeps modules, in order of use."""
    found: list[str] = []
    original = dsl.BaseDSL.get_module_hash

    def get_module_hash(self: Any, module: Any, name: str) -> str:
        found.append(original(self, module, name))
        return found[-1]

    monkeypatch.setattr(dsl.BaseDSL, "get_module_hash", get_module_hash)
    return found


def test_the_key_of_a_module_differs_between_recordings(frontend: Any, hashes: list[str]) -> None:
    module = source(BODY)
    for recording in (None, Recording(), Recording(records=1024), None, Recording()):
        enter(frontend, recording)
        call(module)
    plain, prepared, larger = hashes[:3]
    assert len({plain, prepared, larger}) == 3
    assert hashes[3:] == [plain, prepared]


def call(module: Any) -> None:
    """A direct call up to its launch, for which there is no driver: trace, look in the caches, compile."""
    with pytest.raises(DSLCudaRuntimeError):
        module.host(from_dlpack(np.zeros(1024, np.float32)), cutlass.Int32(4))


def test_caches_keep_the_lowered_binary(frontend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if VERSION < (4, 8):
        pytest.skip("4.4 chooses the folder of its cache when it is imported")
    module = source(BODY)
    compiled: list[str] = []
    original = compiler.Compiler.compile

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append("once")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(compiler.Compiler, "compile", counting)
    frontend.enable(Recording())
    call(module)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"kscope_meta" in path.read_bytes()]
    assert len(kept) == 1
    call(module)  # from memory
    jit_cache().clear()
    call(module)  # from the disk
    assert compiled == ["once"]


def jit_cache() -> Any:
    """CuTe's caches in memory."""
    from cutlass.cutlass_dsl import CuTeDSL

    return CuTeDSL._get_dsl().jit_cache


POINTS = (
    (compiler.Compiler, "compile"),
    (dsl.BaseDSL, "compile_and_jit"),
    (jit_executor.JitExecutor, "run_compiled_program"),
    (external_binary_module.ExternalBinaryModule, "__getattr__"),
)


def test_hooks_are_gone_after_disable(frontend: Any) -> None:
    before = [getattr(owner, name) for owner, name in POINTS]
    frontend.enable(Recording())
    frontend.enable(Recording(records=64))
    assert all(getattr(owner, name) is not hook for (owner, name), hook in zip(POINTS, before, strict=True))
    frontend.disable()
    frontend.disable()
    assert [getattr(owner, name) for owner, name in POINTS] == before


@pytest.mark.parametrize(("owner", "name"), POINTS)
def test_hooks_installed_by_other_tools_stay(
    frontend: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, vars(owner)[name])  # put back at the end
    frontend.enable(Recording())

    def theirs(*args: Any, **options: Any) -> None:
        """Never called."""

    setattr(owner, name, theirs)
    frontend.disable()
    assert getattr(owner, name) is theirs


@pytest.mark.parametrize(("owner", "name"), POINTS[:3])
def test_a_missing_hook_point_is_named(frontend: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(UnsupportedError, match=rf"nvidia-cutlass-dsl .* has no .*{name}.*pip install"):
        frontend.enable(Recording())


def test_user_errors_stay_cute_errors(make: Make) -> None:
    with pytest.raises(Exception, match="undefined_name"):
        make('with region("one"):\n    x[thread] = undefined_name')


def test_hooks_wrapped_by_other_tools_stay_inactive(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.Compiler, "compile", compiler.Compiler.compile)  # put back at the end
    frontend.enable(Recording())
    ours = compiler.Compiler.compile

    def theirs(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    monkeypatch.setattr(compiler.Compiler, "compile", theirs)
    frontend.disable()
    module = source(BODY)
    assert "ks_" not in compile(module.host, *arguments()).ptx
    frontend.enable(Recording())
    assert "ks_" in compile(module.host, *arguments()).ptx
    frontend.disable()
    monkeypatch.setattr(compiler.Compiler, "compile", ours)
    frontend.disable()


def test_the_other_compiler_is_refused(frontend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTE_DSL_COMPILER_BACKEND", "cutlass")
    with pytest.raises(UnsupportedError, match="CUTE_DSL_COMPILER_BACKEND=cutlass"):
        frontend.enable(Recording())
