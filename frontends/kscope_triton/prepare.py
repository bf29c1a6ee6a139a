"""Compiles the marked form of each kernel whose plain form is launched at rest, in the background, so that a session
begins with compiled kernels. The thread that begins it loads them: the driver may refuse to load a module while a graph
is captured.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kscope.instrument import registry
from kscope.instrument.hooks import Hook
from kscope.lowering.module_variables import uses_variables

from .launch_forms import REST, Forms


@dataclass(frozen=True)
class _Job:
    """A marked form to compile: a function that does, the kernels in memory by key, and the plain form."""

    compile: Callable[[], Any]
    key: str
    kernels: dict[str, Any]
    device: int
    plain: weakref.ref[Any]


class Preparation:
    """The hook on compilations for launches, and the thread that compiles.

    Args:
        forms: selects the form that launches run.
        tag: returns the tag of marked kernels; empty if none are to be compiled ahead.
    """

    def __init__(self, forms: Forms, tag: Callable[[], str]) -> None:
        self._forms, self._tag = forms, tag
        self._hook = Hook(JITFunction, "_do_compile", self._compiled)
        self._jobs: deque[_Job] = deque()
        self._made: list[tuple[int, weakref.ref[Any]]] = []  # device, kernel: not loaded
        self._forms_of = weakref.WeakKeyDictionary[Any, weakref.ref[Any]]()  # marked kernel -> plain one
        self._lock, self._compiling = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._registered = False

    def install(self) -> None:
        """Compile the marked forms from now on; idempotent."""
        self._hook.install()

    def remove(self) -> None:
        """Inverse of install(). Waits for the compilation in progress, and drops those that have not begun."""
        self._hook.remove()
        self._stop()
        self._made.clear()

    def finish(self) -> None:
        """Wait until everything is compiled."""
        while (thread := self._thread) is not None:
            thread.join()

    def load(self) -> None:
        """Load the compiled kernels of the current device. Errors recur at the launch."""
        if not self._made:
            return
        active: Any = driver.active  # the method is missing in Triton's base class
        device = active.get_current_device()
        made, self._made = self._made, [one for one in self._made if one[0] != device]
        for where, found in made:
            if where == device and (kernel := found()) is not None:
                with suppress(Exception), registry.backend("cuda").relaxed():  # a thread may be capturing a graph
                    kernel._init_handles()

    def same_attributes(self, function: Any) -> None:
        """Give a marked kernel the attributes that the program has set on the plain one.

        Args:
            function: the handle of the marked kernel, loaded on the current device.
        """
        with self._lock:  # the thread that compiles may add one
            forms = list(self._forms_of.items())
        for marked, found in forms:
            plain = found()
            if marked.function == function and plain is not None and plain.function is not None:
                registry.backend("cuda").copy_attributes(int(plain.function), int(function))

    def _compiled(
        self,
        original: Callable[..., Any],
        jit: Any,
        key: str,
        signature: Any,
        device: int,
        constexprs: Any,
        options: Any,
        attrs: Any,
        warmup: bool,
    ) -> Any:
        # A plain kernel has the same file as without kscope. But Triton 3.9 counts the hook's key as an argument
        # with an attribute, and 3.6 has the key in the options.
        attrs = {path: value for path, value in attrs.items() if path[0] < len(jit.params)}
        mode = options.instrumentation_mode
        plain = replace(options, instrumentation_mode="") if mode == REST else options
        kernel = original(jit, key, signature, device, constexprs, plain, attrs, warmup)
        if REST not in key:
            if self._forms.capturing and not warmup:  # compiled for another recording when it ran at rest
                _load_in_a_capture(kernel)
            return kernel
        if kernel is not None and (tag := self._tag()) and self._forms.resting:
            marked, of = key.replace(REST, tag), replace(options, instrumentation_mode=mode.replace(REST, tag))

            def compile_marked() -> Any:
                return original(jit, marked, signature, device, constexprs, of, attrs, True)

            kernels = jit.device_caches[device][0]
            if uses_variables(getattr(kernel, "asm", {}).get("ptx", "")):  # two modules would have two of each
                with suppress(Exception):  # raised again when the kernel is launched in a session
                    kernel = kernels[key] = compile_marked() or kernel
                return kernel
            self._submit(_Job(compile_marked, marked, kernels, device, weakref.ref(kernel)))
        return kernel

    def _submit(self, job: _Job) -> None:
        if not self._registered:
            self._registered = True
            atexit.register(self._stop)
            os.register_at_fork(before=self._fork, after_in_parent=self._forked, after_in_child=self._in_child)
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kscope-compile", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._compiling:
                with self._lock:
                    if not self._jobs:
                        self._thread = None
                        return
                    job = self._jobs.popleft()
                with suppress(Exception):  # raised again when the kernel is launched in a session
                    made = job.kernels.get(job.key)
                    if made is None:
                        made = job.compile()
                        self._made.append((job.device, weakref.ref(made)))
                    with self._lock:
                        self._forms_of[made] = job.plain

    def _stop(self) -> None:
        self._jobs.clear()
        self.finish()

    def _fork(self) -> None:
        """Prevent a fork in the middle of a compilation, which holds locks of the compiler."""
        self._compiling.acquire()

    def _forked(self) -> None:
        self._compiling.release()

    def _in_child(self) -> None:
        self._lock, self._compiling, self._thread = threading.Lock(), threading.Lock(), None
        self._jobs.clear()


def _load_in_a_capture(kernel: Any) -> None:
    """Load a kernel while a graph is captured, where the driver may refuse it to Triton."""
    if hasattr(kernel, "_init_handles"):  # what an AsyncCompileMode promises has none
        with registry.backend("cuda").relaxed():
            kernel._init_handles()
