"""Kernels, a frontend and a backend for tests of sessions; both log their calls."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, ClassVar

import kscope
import kscope_sim
from kscope.capture.capture_data import DeviceCapture
from kscope.capture.model import ModuleMeta, Problem
from kscope.instrument.backend import Backend
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope_sim import Warp


def work(warp: Warp) -> None:
    with kscope.region("work"):
        warp.work(100)


def attention(warp: Warp) -> None:
    with kscope.region("attend"):
        warp.work(50)


def launch(kernel: Any = work) -> None:
    """Two blocks of one warp: two records."""
    kscope_sim.launch(kernel, grid=2, block=32)


class Noted(Frontend):
    """A frontend that logs its calls."""

    name: ClassVar[str] = "noted"
    backend: ClassVar[str] = "noted"
    log: ClassVar[list[str]] = []
    fails: ClassVar[Exception | None] = None

    def enable(self, recording: Recording) -> None:
        if self.fails is not None:
            raise self.fails
        self.log.append(f"enable {recording.records}")

    def disable(self) -> None:
        self.log.append("disable")

    def problems(self) -> tuple[Problem, ...]:
        return (Problem("plain", "kernel `old` was compiled before the session and launched in it"),)


class NotedBackend(Backend):
    """A backend that logs its calls."""

    fails: ClassVar[Exception | None] = None
    impatient: ClassVar[bool] = False
    broken: ClassVar[tuple[Problem, ...]] = ()

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        return ()

    def arm(self, epoch: int, subset: Subset, pool_bytes: int | None, folder: Path | None = None) -> None:
        if self.fails is not None:
            raise self.fails
        Noted.log.append(f"arm pool={pool_bytes}")

    def wait(self) -> None:
        Noted.log.append("wait")
        if self.impatient:
            signal.raise_signal(signal.SIGINT)

    def disarm(self) -> None:
        Noted.log.append("disarm")

    def resume(self) -> None:
        Noted.log.append("resume")

    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        Noted.log.append(f"collect {wait}")
        return []

    def modules(self) -> tuple[ModuleMeta, ...]:
        return ()

    def problems(self) -> tuple[Problem, ...]:
        return self.broken
