"""Samples of the simulator, which knows the place and the reason of every cycle of a warp. An instruction is a line of
the kernel with a reason; each warp is sampled whenever its clock has advanced by the period.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kscope.capture.samples import NO_PLACE, ROW, WINDOW, CodeRegion, Place, SampledFunction, Samples
from kscope.instrument.raw_samples import SampledCode
from kscope.machine_code.source_lines import body
from kscope.marks.names import split

from .module import Module, is_ours

STEP = 16
"""Bytes between two instructions."""
STEP_NS, MOST_STEPS = 100, 2000
"""Initial window length, and the maximum number of windows per kernel; beyond it windows are merged."""
WORK, BARRIER, EVENT, READ = "wait", "barrier", "long_scoreboard", "selected"
"""Stall reasons of a warp, in the vendor's names."""

_PARTS = 64
"""Most times of the samples of one wait."""
_Instruction = tuple[Place | None, str, str, tuple[str, ...]]
"""Place, text, reason, and the open regions."""


@dataclass
class _Code:
    """A sampled kernel: its instructions in order of first use, and their samples; and samples by time in `step` ns."""

    module: Module | None
    counts: dict[_Instruction, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)


class Sampler:
    """The samples of all launches.

    Attributes:
        period: cycles of a warp between two of its samples.
        paused: True while nothing is sampled.
        lock: held while samples are counted.
    """

    def __init__(self, period: int) -> None:
        self.period, self.paused = period, False
        self._code: dict[tuple[str, int], _Code] = {}
        self.lock = threading.Lock()
        self._step = STEP_NS

    def warp(self, kernel: str, module: Module | None) -> SampledWarp:
        """Begin a warp of a kernel, instrumented or not."""
        with self.lock:
            return SampledWarp(self, self._code.setdefault((kernel, module.id if module else 0), _Code(module)))

    def timed(self, code: _Code, time: int, taken: int) -> None:
        """Add samples of a kernel."""
        at = time // self._step
        code.times[at] = code.times.get(at, 0) + taken
        if len(code.times) > MOST_STEPS:
            self._step *= 2
            for one in self._code.values():
                before, one.times = one.times, {}
                for step, count in before.items():
                    one.times[step // 2] = one.times.get(step // 2, 0) + count

    def samples(self) -> SampledCode:
        """All samples so far."""
        reasons = tuple(dict.fromkeys([WORK, BARRIER, EVENT, READ, *self._reasons()]))
        functions, rows, windows = list[SampledFunction](), list[tuple[int, ...]](), list[tuple[int, ...]]()
        for (name, _), code in tuple(self._code.items()):
            counts = {one: count for one, count in tuple(code.counts.items()) if count}
            rows += [
                (len(functions), number * STEP, reasons.index(one[2]), count)
                for number, (one, count) in enumerate(counts.items())
            ]
            windows += [
                (at * self._step, (at + 1) * self._step, len(functions), count)
                for at, count in tuple(code.times.items())
                if count
            ]
            functions.append(_function(name, code.module, tuple(counts)))
        found = np.array(rows, ROW), np.array(sorted(windows), WINDOW)
        return SampledCode(Samples(self.period, reasons, tuple(functions), found[0], windows=found[1]))

    def _reasons(self) -> list[str]:
        return [one[2] for code in tuple(self._code.values()) for one in tuple(code.counts)]


class SampledWarp:
    """The samples of one warp. Only one warp of a block runs at a time."""

    def __init__(self, sampler: Sampler, code: _Code) -> None:
        self._sampler, self._code = sampler, code
        self._left = 0
        self._open: list[str] = []

    def marked(self, act: str, name: str, cycles: int, unix: Callable[[int], int]) -> None:
        """Note a clock read at a mark; the mark takes this many cycles after it."""
        if act == "enter":
            self._open.append(name)
        elif act == "exit" and name in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(name)]
        self.spent(cycles, READ, "clock", unix)

    def spent(self, cycles: int, reason: str, text: str, unix: Callable[[int], int]) -> None:
        """Account for cycles that the warp spent at the running line of the kernel. unix: returns the UNIX ns of a time
        this many cycles ago.
        """
        if self._sampler.paused:
            return
        taken, self._left = divmod(self._left + max(0, cycles), self._sampler.period)
        key = _place(), text, reason, tuple(self._open)
        with self._sampler.lock:
            self._code.counts[key] = self._code.counts.get(key, 0) + taken
            parts = min(taken, _PARTS)
            for part in range(parts):
                ago = self._left + part * max(0, cycles) // parts
                self._sampler.timed(self._code, unix(ago), taken * (part + 1) // parts - taken * part // parts)


def _function(name: str, module: Module | None, code: tuple[_Instruction, ...]) -> SampledFunction:
    meta = module.meta() if module else None
    where = {one.name: one.where for one in meta.regions} if meta else {}
    names = tuple(dict.fromkeys(name for one in code for name in one[3]))
    places = tuple(dict.fromkeys((one[0],) for one in code if one[0] is not None))
    stacks = tuple(dict.fromkeys([(), *(one[3] for one in code)]))
    blocks = {name: body(where.get(name)) for name in names}
    return SampledFunction(
        name=name,
        kernel=module.id if module else None,
        at=tuple(number * STEP for number in range(len(code))),
        text=tuple(one[1] for one in code),
        place=tuple(NO_PLACE if one[0] is None else places.index((one[0],)) for one in code),
        places=places,
        opened=tuple(stacks.index(one[3]) for one in code),
        stacks=tuple(tuple(names.index(name) for name in stack) for stack in stacks),
        regions=tuple(CodeRegion(split(name)[0], *(blocks[name] or ("", 0, 0))) for name in names),
    )


def _place() -> Place | None:
    """The user's line that runs."""
    frame = inspect.currentframe()
    while frame is not None and (is_ours(frame.f_code) or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
