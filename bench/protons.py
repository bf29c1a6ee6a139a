"""Proton's instrumentation: its modes, and a context in which it records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import triton.profiler as proton
from triton.profiler.hooks.instrumentation import InstrumentationHook

MODES: dict[str, dict[str, Any]] = {
    "Proton default": {},
    "Proton shared clock32": {"optimizations": "clock32"},
    "Proton global clock32": {"buffer_type": "global", "optimizations": "clock32"},
    "Proton shared sched_stores": {"optimizations": "clock32,sched_stores"},
    "Proton global sched_stores": {"buffer_type": "global", "optimizations": "clock32,sched_stores"},
}


@contextmanager
def instrumented(host_work: bool = False, **options: Any) -> Iterator[None]:
    """Proton's instrumentation with the options of a mode. host_work: with what it does on the host for each launch,
    which takes longer than a short kernel."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        for hook in () if host_work else ("enter", "exit"):
            stack.enter_context(patch.object(InstrumentationHook, hook, lambda *_: None))
        mode = proton.mode.Default(**options)
        proton.start(f"{place}/proton", data="tree", backend="instrumentation", mode=mode)
        try:
            yield
        finally:
            proton.finalize()
