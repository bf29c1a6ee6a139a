"""Entry points of other projects without a GPU: what they would launch is compiled for sm_90, with both placements."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction
from triton.runtime.driver import driver

from kscope.capture.metadata import from_json
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope_triton.compile import META

from . import entries, running
from .on_triton import _as_with_a_gpu

PLACEMENTS = ("fence", "schedule")


def prepare() -> None:
    """Before the project is imported."""
    _as_with_a_gpu()
    driver._active.get_current_stream = lambda *_: 0  # type: ignore[union-attr]
    torch.cuda.device = torch.cuda.device_of = lambda *_: nullcontext()  # type: ignore[assignment,misc]
    entries.device = "cpu"


def check(project: str, name: str) -> dict[str, Any]:
    """A kernel's name, and the reason of its refusal, by placement."""
    begun, found = time.monotonic(), dict[str, Any]()
    work = importlib.import_module(f"corpus.entries.{project}").ENTRIES[name]()
    with _compiled() as seen:
        for placement in ("plain", *PLACEMENTS):
            seen.clear()
            since = time.monotonic()
            running.forget()
            if placement != "plain":
                selection = Selection.of(True)
                registry.frontend("triton").enable(Recording(selection=selection, placement=placement))
            try:
                work()
                problem = ""
            except Exception as error:  # what follows the launches is not computed
                problem = f"{type(error).__name__}: {error}"[:200]
            finally:
                registry.frontend("triton").disable()
            took = round(time.monotonic() - since, 1)
            found[placement] = {"kernels": dict(seen), "error": problem, "seconds": took}
    return {**found, "seconds": round(time.monotonic() - begun, 1)}


@contextmanager
def _compiled() -> Generator[dict[str, list[str]], None, None]:
    """Within it launches compile, and no more; yields why each kernel has problems."""
    seen, inside = dict[str, list[str]](), list[int]()
    original = JITFunction.run

    def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        if inside:
            return original(kernel, *given, grid=grid, warmup=True, **named)
        inside.append(1)
        try:
            made = kernel.warmup(*given, grid=grid, **named)
        finally:
            inside.clear()
        meta = getattr(made.metadata, META, "") if made is not None else ""
        found = from_json(meta.encode()).problems if meta else ()
        seen[kernel.__name__] = [f"{one.kind}: {one.text}" for one in found] if meta else ["plain"]
        return made

    def launched(*_: Any) -> Any:
        return lambda *_, **__: None

    with patch.object(JITFunction, "run", run), patch.object(CompiledKernel, "__getitem__", launched):
        yield seen
