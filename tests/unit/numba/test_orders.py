"""Sessions, pauses and launches in any order: each launch runs the kernel of its state."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from typing import Any

import pytest
from numba.cuda import dispatcher
from waiting import PATIENCE_S

from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope_numba import load

from .conftest import Backend
from .test_states import is_marked, launch

Written = Callable[..., dict[str, Any]]
KERNELS = """
    @cuda.jit
    def annotated(x, n):
        with kscope.region("inside"):
            for k in range(n):
                x[k] = k

    @cuda.jit
    def bare(x, n):
        for k in range(n):
            x[k] = k

    @cuda.jit("void(float32[::1], int64)")
    def fixed(x, n):
        for k in range(n):
            x[k] = k

    @cuda.jit
    def calls(x, n):
        later(x, n)

    STATE.append(1)

    @cuda.jit
    def later(x, n):
        with kscope.region("inside"):
            x[n] = n
"""
STATES = {
    "plain": None,
    "usual": Recording(),
    "short": Recording(records=8),
    "kinds": Recording(selection=Selection(("loop",))),
    "chosen": Recording(selection=Selection(("loop",), kernels=("bare",))),
}
LOOPS = {
    "plain": (),
    "usual": (),
    "short": (),
    "kinds": ("annotated", "bare", "fixed"),
    "chosen": ("bare",),
}
"""Kernels whose loop is marked, by state."""
ANNOTATED = ("annotated", "calls")


def enter(frontend: Any, state: str) -> None:
    """The process is in this state from now on."""
    expected = STATES[state]
    frontend.disable() if expected is None else frontend.enable(expected)


@pytest.mark.parametrize("seed", range(4))
def test_launches_run_the_kernels_of_their_state_in_any_order(
    frontend: Any, gpu: Backend, written: Written, seed: int
) -> None:
    random = Random(seed)
    taught, state = False, "plain"
    compiled = set[str]()

    def made() -> dict[str, Any]:
        return {name: made for name, made in written(KERNELS, STATE=[]).items() if hasattr(made, "py_func")}

    space = made()
    for _ in range(40):
        step = random.choice(("state", "state", "launch", "launch", "launch", "launch", "made", "taught"))
        if step == "state":
            state = random.choice(list(STATES))
            enter(frontend, state)
        elif step == "made" and random.random() < 0.3:
            space, compiled = made(), set()
        elif step == "taught" and random.random() < 0.3:
            taught = True
            frontend.teach()
        elif step == "launch":
            name = random.choice(["annotated", "bare", "fixed", "calls"])
            rests = state == "plain" and not taught and name in ANNOTATED
            if rests and name not in compiled:
                continue  # Numba does not compile `with`
            cubin = launch(space[name], gpu)
            compiled.add(name)
            where = f"{name} in {state}, taught: {taught}"
            if rests:
                assert is_marked(cubin), where
                continue
            assert (b'"inside"' in cubin) is (state != "plain" and name in ANNOTATED), where
            assert (b'"loop kernels' in cubin) is (name in LOOPS[state]), where
            assert is_marked(cubin) is (b'"inside"' in cubin or b'"loop kernels' in cubin), where


def test_kernels_compiled_between_sessions_record_in_the_second(frontend: Any, gpu: Backend, written: Written) -> None:
    enter(frontend, "kinds")
    frontend.disable()
    kernel = written(KERNELS, STATE=[])["bare"]
    plain = launch(kernel, gpu)
    assert not is_marked(plain)
    enter(frontend, "kinds")
    assert is_marked(launch(kernel, gpu))
    frontend.disable()
    assert launch(kernel, gpu) == plain


def test_kernels_are_compiled_in_one_state_when_a_helper_changes_it(
    taught: Any, gpu: Backend, written: Written
) -> None:
    class Enabling(list[int]):
        def append(self, one: int) -> None:
            enter(taught, "usual")

    kernel = written(KERNELS, STATE=Enabling())["calls"]
    assert is_marked(launch(kernel, gpu))
    taught.disable()
    assert not is_marked(launch(kernel, gpu))


def test_an_unrecordable_kernel_with_a_fixed_signature_is_never_changed(
    taught: Any, gpu: Backend, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = written(KERNELS, STATE=[])["fixed"]
    for state in ("kinds", "chosen", "usual", "plain"):
        enter(taught, state)
    compile_again = load._recompile

    def failing(dispatcher: Any, kernels: list[Any], specialized: bool) -> None:
        if dispatcher is kernel and kernels:
            raise RuntimeError("no")
        compile_again(dispatcher, kernels, specialized)

    monkeypatch.setattr(load, "_recompile", failing)
    taught.enable(Recording(selection=Selection(("store",))))
    assert not is_marked(launch(kernel, gpu))


def test_gc_frozen_dispatchers_are_reported_unless_already_registered(
    taught: Any, gpu: Backend, written: Written
) -> None:
    known, unknown = (written(KERNELS, STATE=[])["bare"] for _ in range(2))
    enter(taught, "usual")
    enter(taught, "kinds")
    launch(known, gpu)
    enter(taught, "plain")
    plain = launch(unknown, gpu)
    assert not is_marked(launch(known, gpu))
    gc.freeze()
    try:
        enter(taught, "chosen")
        assert is_marked(launch(known, gpu))
        (problem,) = (one for one in taught.problems() if "gc.freeze() was called: kernels of Numba" in one.text)
        assert problem.kind == "plain"
        enter(taught, "plain")
    finally:
        gc.unfreeze()
    assert not is_marked(launch(known, gpu)) and launch(unknown, gpu) == plain
    enter(taught, "kinds")
    assert not any("gc.freeze()" in one.text for one in taught.problems()) and is_marked(launch(unknown, gpu))


def test_memory_does_not_grow_with_the_number_of_sessions(taught: Any, gpu: Backend, written: Written) -> None:
    kernel = written(KERNELS, STATE=[])["bare"]

    def sessions(count: int) -> int:
        for _ in range(count):
            enter(taught, "kinds")
            launch(kernel, gpu)
            enter(taught, "plain")
            launch(kernel, gpu)
        return len(taught._loads._alive)

    assert sessions(2) == sessions(20)


def test_a_kernel_compiled_during_a_state_change_has_the_state_at_its_start(
    taught: Any, gpu: Backend, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, begun, go = written(KERNELS, STATE=[])["bare"], threading.Event(), threading.Event()
    init = dispatcher._Kernel.__init__

    def slowly(made: Any, *args: Any, **options: Any) -> None:
        init(made, *args, **options)
        begun.set()
        assert go.wait(PATIENCE_S)

    monkeypatch.setattr(dispatcher._Kernel, "__init__", slowly)
    with ThreadPoolExecutor(2) as pool:
        launched = pool.submit(launch, kernel, gpu)
        assert begun.wait(PATIENCE_S)
        entered = pool.submit(enter, taught, "kinds")
        wait([entered], timeout=0.3)  # it waits for the compiler; if it did not, it would be done
        go.set()
        entered.result(PATIENCE_S)
        assert not is_marked(launched.result(PATIENCE_S))
    assert is_marked(launch(kernel, gpu))
