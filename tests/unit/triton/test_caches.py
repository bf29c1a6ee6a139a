"""Prepared and plain kernels stay apart in every cache, in every order."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import warnings
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource, compiler
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime._async_compile import AsyncCompileMode

import kscope
import kscope_triton
from kscope.capture import metadata
from kscope.instrument import compile_warnings, registry
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection

sys.path.append(str(Path(__file__).parent))

from fake_gpu import Pointer, active, record  # it is in this folder


@triton.jit
def kernel(out, n):
    with kscope.region("work"):
        tl.store(out, n)


@gluon.jit
def in_gluon(out, n):
    with kscope.region("work"):
        gl.store(out, n)


STATES = {
    "plain": None,
    "prepared": Recording(),
    "of 16 records": Recording(records=16),
    "by block": Recording(strategy=kscope.Lane0Warp0()),
}
CHANGES = [*itertools.permutations(["plain", "prepared", "by block"], 2)]
ORDERS = [*itertools.permutations(STATES), ("plain", "prepared", "plain", "prepared", "by block", "prepared")]


class Backend:
    """A stand-in for the CUDA runtime that logs module loads."""

    def __init__(self):
        self.loaded = []

    def relaxed(self):
        return nullcontext()

    def patched(self, cubin, ordinal):
        return cubin

    def module_loaded(self, module):
        self.loaded.append(module)

    def is_open(self):
        return False

    def pace(self, kernel=None):
        """Nothing fills up here."""


@pytest.fixture
def backend(monkeypatch):
    made = Backend()
    monkeypatch.setitem(registry._backends, "cuda", made)
    return made


@pytest.fixture
def gpu(monkeypatch, backend):
    yield from active(monkeypatch, kernel, unmarked, impossible)


def switch(frontend, state):
    if STATES[state] is None:
        frontend.disable()
    else:
        record(frontend, STATES[state])


def described(compiled):
    """The compiled kernel's metadata; None if plain."""
    return getattr(compiled.metadata, "kscope", None)


def compile_kernel(kernel=kernel):
    made = ASTSource if kernel is not in_gluon else GluonASTSource
    source = made(kernel, {"out": "*i32", "n": "i32"}, {})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_the_disk_cache_returns_the_current_states_kernel(frontend, order):
    texts: dict[str, set[str]] = {}
    for state in [*order, *reversed(order)]:
        switch(frontend, state)
        compiled = compile_kernel()
        assert (described(compiled) is None) == (state == "plain")
        assert ("kscope_ctl" in compiled.asm["ptx"]) == (state != "plain")
        texts.setdefault(state, set()).add(compiled.asm["ptx"])
    assert all(len(found) == 1 for found in texts.values())
    assert len({text for found in texts.values() for text in found}) == len(texts)


@pytest.mark.parametrize("kernel", [kernel, in_gluon], ids=["triton", "gluon"])
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_compilation_is_unaffected_by_a_concurrent_state_change(frontend, monkeypatch, kernel, before, after):
    """As another thread's enable() or disable() would: after the key on disk, before the stages."""
    texts = {}
    for state in (before, after):
        monkeypatch.setenv("TRITON_CACHE_DIR", f"{os.environ['TRITON_CACHE_DIR']}.")
        switch(frontend, state)
        texts[state] = compile_kernel(kernel).asm["ptx"]
    monkeypatch.setenv("TRITON_CACHE_DIR", f"{os.environ['TRITON_CACHE_DIR']}.")
    switch(frontend, before)
    with monkeypatch.context() as patch:
        manager = compiler.get_cache_manager

        def changed(key):
            switch(frontend, after)
            return manager(key)

        patch.setattr(compiler, "get_cache_manager", changed)
        assert compile_kernel(kernel).asm["ptx"] == texts[before]
    for state in (after, before):
        switch(frontend, state)
        assert compile_kernel(kernel).asm["ptx"] == texts[state]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_launch_compiles_for_its_cache_key_despite_a_state_change(frontend, gpu, monkeypatch, before, after):
    """Behind the key in memory, before the one on disk."""

    def launched(state):
        compiled = kernel[(1,)](Pointer("i32"), 5)
        return (described(compiled) is not None) == (state != "plain"), compiled.asm["ptx"]

    switch(frontend, before)
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", lambda **_: switch(frontend, after))
    (right, first) = launched(before)
    assert right
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", None)
    right, second = launched(after)
    assert right and second != first
    switch(frontend, before)
    assert launched(before) == (True, first)


class Later(Executor):
    """An executor that runs nothing before run(), and then in other threads."""

    def __init__(self):
        self.waiting = []

    def submit(self, work, /, *arguments, **named):
        future = Future()
        self.waiting.append(lambda: future.set_result(work(*arguments, **named)))
        return future

    def run(self):
        for work in self.waiting:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.waiting = []


@pytest.mark.parametrize(("before", "after"), [*CHANGES, ("plain", "plain"), ("prepared", "prepared")])
def test_asynchronous_compilations_keep_the_state_at_submission(frontend, gpu, before, after):
    def compiled():
        return kernel.warmup(Pointer("i32"), 5, grid=(1,))

    later = Later()
    switch(frontend, before)
    with AsyncCompileMode(later):
        future = compiled()
        switch(frontend, after)
        later.run()
    submitted = future.result()
    assert (described(submitted) is None) == (before == "plain")
    for state in (after, before):
        switch(frontend, state)
        assert (compiled() is submitted) == (state == before)
    kernel.device_caches.clear()
    for state in (after, before):
        switch(frontend, state)
        assert (compiled().asm["ptx"] == submitted.asm["ptx"]) == (state == before)


def test_a_submitted_compilation_that_never_runs_leaves_no_hooks(frontend, gpu):
    hooks = knobs.runtime.add_stages_inspection_hook, CUDABackend.hash
    switch(frontend, "prepared")
    mode = AsyncCompileMode(Later())
    mode.__enter__()
    kernel.warmup(Pointer("i32"), 5, grid=(1,))
    mode.raw_futures.clear()
    mode.__exit__(None, None, None)
    mode.executor.waiting.clear()
    kernel.device_caches.clear()
    gc.collect()
    frontend.disable()
    assert (knobs.runtime.add_stages_inspection_hook, CUDABackend.hash) == hooks


@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_launches_run_the_kernel_of_the_current_state(frontend, gpu, order):
    for state in [*order, *reversed(order)]:
        switch(frontend, state)
        compiled = kernel[(1,)](Pointer("i32"), 5)
        assert (described(compiled) is None) == (state == "plain")
    assert len(gpu.loaded) == len(set(order))
    assert len(gpu.launched) == 2 * len(order)


def test_switching_back_compiles_nothing(frontend, gpu, monkeypatch):
    compiled = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **what: compiled.append(what["cache_hit"]))
    for state in ("plain", "prepared", "plain", "prepared"):
        switch(frontend, state)
        kernel[(1,)](Pointer("i32"), 5)
    assert compiled == [False, False]


def test_another_process_finds_the_kernel_on_disk(frontend, gpu, monkeypatch):
    hits = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **what: hits.append(what["cache_hit"]))
    for state in ("plain", "prepared") * 2:
        kernel.device_caches.clear()
        switch(frontend, state)
        found = kernel[(1,)](Pointer("i32"), 5)
        assert (described(found) is None) == (state == "plain")
    assert hits == [False, False, True, True]


def test_only_modules_loaded_while_enabled_are_armed(frontend, gpu, backend):
    kernel[(1,)](Pointer("i32"), 5)
    assert backend.loaded == []
    record(frontend, Recording())
    kernel[(1,)](Pointer("i32"), 5)
    kernel[(1,)](Pointer("i32"), 5)
    assert backend.loaded == [gpu.loaded[-1][0]]


@pytest.mark.skipif(not hasattr(knobs.runtime, "kernel_unload_hook"), reason="this Triton unloads no modules")
def test_unloaded_kernels_are_forgotten_because_handles_are_reused(frontend, gpu, backend):
    frontend._loading._seen.clear()
    record(frontend, Recording())
    kernel[(1,)](Pointer("i32"), 5)
    assert len(frontend._loading._seen) == 1
    kernel.device_caches.clear()
    assert gpu.unloaded == backend.loaded
    assert not frontend._loading._seen


def test_a_kernel_that_was_compiled_plain_is_named_when_it_is_launched(frontend, gpu):
    plain = kernel[(1,)](Pointer("i32"), 5)
    record(frontend, Recording())
    assert frontend.problems() == ()
    plain[(1, 1, 1)](Pointer("i32"), 5)
    (problem,) = frontend.problems()
    assert problem.kind == "plain"
    assert "kernel kernel was compiled plain and launched as a compiled object" in problem.text
    for launches in (0, 1, 0):
        frontend.begin()
        for _ in range(launches):
            plain[(1, 1, 1)](Pointer("i32"), 5)
        assert frontend.problems() == (problem,) * launches


@triton.jit
def unmarked(out, n):
    tl.store(out, n)


def test_plain_kernels_without_regions_have_no_problem(frontend, gpu):
    plain = unmarked[(1,)](Pointer("i32"), 5)
    record(frontend, Recording())
    plain[(1, 1, 1)](Pointer("i32"), 5)
    assert frontend.problems() == ()


STORES = Recording(selection=Selection(("store",)))
OTHERS = Recording(selection=Selection(("store",), kernels=("attn_*",)))


def test_changing_the_selection_marks_and_unmarks_launches(frontend, gpu):
    for recording in (None, STORES, OTHERS, None, STORES, Recording()):
        frontend.disable() if recording is None else record(frontend, recording)
        compiled = unmarked[(1,)](Pointer("i32"), 5)
        assert (described(compiled) is not None) == (recording is STORES)
    assert len(gpu.loaded) == 4


def test_kernels_that_match_the_selection_are_reported_when_launched_plain(frontend, gpu):
    plain = unmarked[(1,)](Pointer("i32"), 5)
    for recording, named in ((STORES, 1), (OTHERS, 0)):
        frontend.disable()
        record(frontend, recording)
        plain[(1, 1, 1)](Pointer("i32"), 5)
        assert [problem.kind for problem in frontend.problems()] == ["plain"] * named


@triton.jit
def impossible(out, n):
    if n < n:
        with kscope.region("never"):
            tl.store(out, n)


def test_a_kernel_whose_marks_were_all_removed_is_named_whenever_it_is_launched(frontend, gpu):
    record(frontend, Recording())
    with pytest.warns(UserWarning, match="removed every mark of 'never'"):
        impossible[(1,)](Pointer("i32"), 5)
    for change in (lambda: None, impossible.device_caches.clear):
        frontend.disable()
        change()
        record(frontend, Recording())
        assert frontend.problems() == ()
        impossible[(1,)](Pointer("i32"), 5)
        (problem,) = frontend.problems()
        assert "removed every mark of 'never'" in problem.text
        frontend.begin()
        assert frontend.problems() == ()
        impossible[(1,)](Pointer("i32"), 5)
        assert frontend.problems() == (problem,)


def test_disk_cached_kernels_repeat_their_warning_once_per_process(frontend, gpu, monkeypatch):
    record(frontend, Recording())
    with pytest.warns(UserWarning, match="removed every mark of 'never'"):
        impossible[(1,)](Pointer("i32"), 5)
    impossible.device_caches.clear()
    monkeypatch.setattr(compile_warnings, "_warned", set())  # as in another process
    with pytest.warns(UserWarning, match="removed every mark of 'never'"):
        impossible[(1,)](Pointer("i32"), 5)
    impossible.device_caches.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        impossible[(1,)](Pointer("i32"), 5)


def test_every_hook_is_gone_after_disable(frontend):
    def hooks():
        chains = (knobs.runtime.kernel_load_end_hook, knobs.runtime.launch_enter_hook)
        return (
            knobs.runtime.add_stages_inspection_hook, CUDABackend.hash, knobs.compilation.instrumentation_mode,
            *(list(chain.calls) for chain in chains), {name for name in sys.modules if name.startswith("triton")},
        )  # fmt: skip

    before = hooks()
    record(frontend, Recording())
    record(frontend, Recording(records=64))
    assert hooks() != before
    frontend.disable()
    frontend.disable()
    assert hooks() == before


def test_the_hook_of_another_tool_keeps_running(frontend, plain_compiler):
    compiler = plain_compiler
    for state in ("plain", "prepared", "plain"):
        switch(frontend, state)
        compiler(kernel, out="*i32", n="i32")
    assert len(compiler.texts) == 2  # compiled plain and prepared; the third came from the cache
    assert knobs.runtime.add_stages_inspection_hook == compiler.spy


def test_a_hook_wrapping_kscopes_survives_disable(frontend, monkeypatch):
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    record(frontend, Recording())
    ours = knobs.runtime.add_stages_inspection_hook

    def over(*arguments):
        return ours(*arguments)

    knobs.runtime.add_stages_inspection_hook = over
    frontend.disable()
    assert knobs.runtime.add_stages_inspection_hook is over
    assert described(compile_kernel()) is None


def test_a_backend_hash_replaced_by_another_tool_stays(frontend, monkeypatch):
    monkeypatch.setattr(CUDABackend, "hash", CUDABackend.hash)  # put back at the end
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    plain = backend.hash()
    for recording in (Recording(), Recording(records=64)):
        record(frontend, recording)
    ours = CUDABackend.hash
    CUDABackend.hash = theirs = lambda backend: f"theirs {ours(backend)}"
    tag = recording.tag(Path(kscope_triton.__file__).parent)
    assert backend.hash() == f"theirs {plain}{tag}"
    frontend.disable()
    assert CUDABackend.hash is theirs
    assert backend.hash() == f"theirs {plain}"
    record(frontend, recording)
    assert backend.hash() == f"theirs {plain}{tag}"


@pytest.mark.parametrize("between", ["disabled in between", "other options"])
def test_a_wrapped_hook_runs_once_per_compilation_after_enabling_again(frontend, monkeypatch, between):
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    record(frontend, Recording())
    ours, requested = knobs.runtime.add_stages_inspection_hook, []

    def over(backend=None, stages=None, *more):
        requested.append("compile" if stages else "key")
        return ours(backend, stages, *more)

    knobs.runtime.add_stages_inspection_hook = over
    if between == "disabled in between":
        frontend.disable()
    record(frontend, Recording(records=64))
    _, key = knobs.runtime.add_stages_inspection_hook()
    assert key.count("kscope-") == 1
    requested.clear()
    (lowered,) = metadata.from_json(described(compile_kernel()).encode()).kernels
    assert lowered.log2_records == 6 and requested.count("compile") == 1
    frontend.disable()
    assert knobs.runtime.add_stages_inspection_hook is over
    assert described(compile_kernel()) is None


DECLARED = """
LOAD = kscope.scope({name!r})

@triton.jit
def kernel(out, n):
    with LOAD():
        tl.store(out, n)
"""


def test_a_renamed_scope_has_another_cache_key(frontend, module, plain_compiler):
    record(frontend, Recording())
    for name in ("load", "store"):
        kernels = module(DECLARED.format(name=name))
        compiled = plain_compiler(kernels.kernel, out="*i32", n="i32")
        assert f'"{name}"' in described(compiled)
