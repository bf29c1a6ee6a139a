"""Measurements for `kscope doctor` and `kscope trust overhead`: the GPUs, their timer, and the cost of a region."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kscope import decode
from kscope.capture.capture import Capture
from kscope.instrument.backend import Backend
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering import plan

from .clocks import Clocks
from .driver import CudaDriver

ROUNDS = 4096
_EPOCH = 1
_POOL = 8 << 20
_REPEATS = 5

# t, g = clock64, globaltimer; ROUNDS times { enter; work dependent FMAs; exit }; out = clock64 - t, globaltimer - g
_LOOP = """
.visible .entry {name}(.param .u64 out)
{{
	.reg .b64 %rd1, %rd2, %rd3, %rd4, %rd5;
	.reg .b32 %r1;
	.reg .f32 %f1;
	.reg .pred %p1;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, 0;
	mov.f32 %f1, 0f3F800000;
	mov.u64 %rd4, %globaltimer;
	mov.u64 %rd2, %clock64;
LOOP:
	.pragma "nounroll";
{enter}{work}{exit}	add.u32 %r1, %r1, 1;
	setp.lt.u32 %p1, %r1, {rounds};
	@%p1 bra LOOP;
	mov.u64 %rd3, %clock64;
	mov.u64 %rd5, %globaltimer;
	sub.u64 %rd3, %rd3, %rd2;
	sub.u64 %rd5, %rd5, %rd4;
	st.volatile.global.u64 [%rd1], %rd3;
	st.volatile.global.u64 [%rd1+8], %rd5;
	st.volatile.global.f32 [%rd1+16], %f1;
	ret;
}}
"""
HEAD = ".version 7.1\n.target sm_80\n.address_size 64\n"
_FMA = "\tfma.rn.f32 %f1, %f1, 0fBA83126F, %f1;\n"
_ENTER, _EXIT = "\t//kscope enter probe - - with\n", "\t//kscope exit probe - - with\n"


@dataclass(frozen=True)
class Cost:
    """Duration of one round of the loop, in SM cycles and in ns."""

    cycles: float
    ns: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cycles - other.cycles, self.ns - other.ns)

    def __str__(self) -> str:
        return f"{self.cycles:.0f} cycles ({self.ns:.1f} ns)"


def loop(name: str, fmas: int, *, marked: bool) -> str:
    """A kernel in PTX whose loop runs `fmas` dependent FMAs per round, inside a region if `marked`."""
    marks = (_ENTER, _EXIT) if marked else ("", "")
    return _LOOP.format(name=name, work=_FMA * fmas, enter=marks[0], exit=marks[1], rounds=ROUNDS)


def describe(backend: Backend) -> Iterator[tuple[str, str]]:
    """(subject, sentence) about every GPU, then the first one's timer and what a region costs on it.

    Raises:
        DriverError: a driver call failed.
    """
    driver = CudaDriver()
    for ordinal in range(driver.devices()):
        yield f"gpu {ordinal}", driver.about(ordinal)
    driver.use(0)
    page = driver.pinned(64)
    tick = Clocks(driver, page[:8]).tick_ns()
    yield "timer", f"globaltimer ticks every {tick} ns" if tick else "the tick of globaltimer could not be seen"
    near, far = (_added(driver, backend, page, fmas) for fmas in (1, 64))
    yield "region", f"adds {near} to one warp back to back, {far} around 64 dependent FMAs"


def region_cost(backend: Backend) -> tuple[float, float]:
    """Measure the cost of a region on the first GPU, in SM cycles.

    Returns:
        Cycles that a region adds to its warp around 64 dependent FMAs, and the shortest duration of an empty region.

    Raises:
        DriverError: a driver call failed.
    """
    driver = CudaDriver()
    driver.use(0)
    page = driver.pinned(64)
    return max(_added(driver, backend, page, 64).cycles, 0.0), _inside(driver, backend, page)


def _inside(driver: CudaDriver, backend: Backend, page: np.ndarray) -> float:
    """The shortest duration that an empty region records."""
    lowered = plan.lower(HEAD + loop("ks_empty", 0, marked=True), Recording(records=256), frontend="probe")
    module = driver.load(lowered.text)
    backend.module_loaded(module)
    backend.arm(_EPOCH, Subset(), _POOL)
    try:
        _cost(driver, module, "ks_empty", page)
    finally:
        backend.disarm()
        devices = tuple(backend.collect(wait=True))
    took = decode(Capture(_EPOCH, devices, (lowered.meta,))).dur_cycles
    return float(took[took >= 0].min(initial=1 << 20)) if len(took) else 0.0


def _added(driver: CudaDriver, backend: Backend, page: np.ndarray, fmas: int) -> Cost:
    text = HEAD + loop("ks_plain", fmas, marked=False) + loop("ks_marked", fmas, marked=True)
    module = driver.load(plan.lower(text, Recording(records=256), frontend="probe").text)
    backend.module_loaded(module)
    backend.arm(_EPOCH, Subset(), _POOL)
    try:
        return _cost(driver, module, "ks_marked", page) - _cost(driver, module, "ks_plain", page)
    finally:
        backend.disarm()
        backend.collect(wait=True)


def _cost(driver: CudaDriver, module: int, kernel: str, page: np.ndarray) -> Cost:
    """The fastest of a few runs; slower ones were disturbed."""
    stream, found = driver.stream(), []
    for _ in range(_REPEATS):
        driver.launch(module, kernel, page.ctypes.data, stream)
        driver.synchronize(stream)
        cycles, ns = page[:16].view(np.uint64).tolist()
        found.append(Cost(cycles / ROUNDS, ns / ROUNDS))
    return min(found, key=lambda cost: cost.cycles)
