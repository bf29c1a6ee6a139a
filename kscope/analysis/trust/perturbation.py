"""Perturbation: a kernel's build with marks compared with its build without, and its time. Static numbers come from two
cubins, without a GPU; time and executed instructions from measurements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import UsageError
from ...machine_code import tools
from ...machine_code.disassembly import Function, functions
from ...machine_code.occupancy import SMS

_USAGE = re.compile(r"Function\s+(?P<name>[^\s:]+):\s*(?P<rest>[^\n]*(?:\n[^\n]*REG:[^\n]*)?)")
_NUMBER = re.compile(r"(REG|STACK|SHARED|LOCAL):([0-9]{1,12})")
_TARGET = re.compile(r"(?:\.target\s+sm_|\bEF_CUDA_SM)([0-9]{1,4})")
_SPILLS = ("STL", "LDL")


@dataclass(frozen=True)
class Build:
    """One build of a kernel.

    Attributes:
        kernel, arch: its name; 90 for sm_90.
        registers: per thread.
        stack_bytes: per thread, with spilled registers.
        shared_bytes: static, per block.
        instructions: in the code.
        spill_instructions: of them, to and from local memory.
        warps_per_sm: resident warps, in whole blocks; None if the block size or the GPU is unknown.
    """

    kernel: str
    arch: int
    registers: int
    stack_bytes: int
    shared_bytes: int
    instructions: int
    spill_instructions: int
    warps_per_sm: int | None


@dataclass(frozen=True)
class Perturbation:
    """A kernel without marks (off) and with them (on).

    Attributes:
        off, on: the builds.
        off_ns, on_ns: kernel times; None if not measured.
        off_executed, on_executed: warp instructions of a launch; None if not measured.
        threads, dynamic_shared: per block at launch; None if unknown.
    """

    off: Build
    on: Build
    off_ns: float | None = None
    on_ns: float | None = None
    off_executed: int | None = None
    on_executed: int | None = None
    threads: int | None = None
    dynamic_shared: int | None = None

    def fitted(self, threads: int | None, dynamic_shared: int = 0) -> Perturbation:
        """The same with warps per SM for blocks of `threads` threads and `dynamic_shared` bytes; None if unknown."""
        off, on = (replace(one, warps_per_sm=_fits(one, threads, dynamic_shared)) for one in (self.off, self.on))
        return replace(
            self, off=off, on=on, threads=threads, dynamic_shared=None if threads is None else dynamic_shared
        )

    @property
    def slowdown(self) -> float | None:
        """(on - off) / off of the kernel's time."""
        return None if self.off_ns is None or self.on_ns is None else (self.on_ns - self.off_ns) / self.off_ns

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why the recorded kernel behaves differently from the plain one."""
        text = []
        if self.on.stack_bytes > self.off.stack_bytes or self.on.spill_instructions > self.off.spill_instructions:
            text.append("with marks the kernel spills more registers: fewer regions, or records of fewer warps")
        if self.off.warps_per_sm is not None and (self.on.warps_per_sm or 0) < self.off.warps_per_sm:
            text.append(f"with marks {self.on.warps_per_sm} warps fit on an SM instead of {self.off.warps_per_sm}")
        return tuple(text)


def perturbation(
    off: Path,
    on: Path,
    *,
    kernel: str | None = None,
    threads: int | None = None,
    dynamic_shared: int = 0,
    times_ns: tuple[float, float] | None = None,
) -> Perturbation:
    """Compare two cubins.

    Args:
        off, on: paths of the build without and with marks.
        kernel: its name, if they have several.
        threads: per block, for occupancy.
        dynamic_shared: bytes given at launch.
        times_ns: measured kernel times (off, on).

    Raises:
        UsageError: the kernel is not in both, a time is not positive, or threads is not from 1 to 1024.
        MissingError: the CUDA tools are not installed.
        FormatError: the tools refuse a file.
    """
    if times_ns is not None and not all(time > 0 for time in times_ns):
        raise UsageError(f"times_ns={times_ns!r}: expected two times above 0")
    texts = [(tools.resources(path), tools.disassembly(path)) for path in (off, on)]
    names = [{function.name for function in functions(code)} for _, code in texts]
    both = names[0] & names[1]
    if kernel is None and len(both) == 1:
        kernel = next(iter(both))
    if kernel is None or kernel not in both:
        text = f"kernel {kernel!r} is not in both" if kernel else "several kernels, or none, are in both: name one"
        raise UsageError(f"{text}; off has {', '.join(sorted(names[0])) or 'none'}, "
                         f"on has {', '.join(sorted(names[1])) or 'none'}")  # fmt: skip
    off_ns, on_ns = times_ns or (None, None)
    builds = [build(usage, code, kernel) for usage, code in texts]
    return Perturbation(builds[0], builds[1], off_ns, on_ns).fitted(threads, dynamic_shared)


def build(usage: str, code: str, kernel: str, threads: int | None = None, dynamic_shared: int = 0) -> Build:
    """One build from the output of `cuobjdump -res-usage` and a disassembly."""
    numbers = _numbers(usage, kernel)
    function = next(one for one in functions(code) if one.name == kernel)
    target = _TARGET.search(code)
    arch = int(target[1]) if target else 0
    found = Build(
        kernel, arch, numbers["REG"], numbers["STACK"] + numbers["LOCAL"], numbers["SHARED"],
        len(function.instructions), _spills(function), None,
    )  # fmt: skip
    return replace(found, warps_per_sm=_fits(found, threads, dynamic_shared))


def _fits(build: Build, threads: int | None, dynamic_shared: int) -> int | None:
    if threads is None or build.arch not in SMS:
        return None
    if not 1 <= threads <= 1024:
        raise UsageError(f"threads={threads}: expected the threads of a block, 1 to 1024")
    warps = -(-threads // 32)
    return warps * SMS[build.arch].fitting(build.registers, build.shared_bytes + dynamic_shared, warps)


def _numbers(usage: str, kernel: str) -> dict[str, int]:
    numbers = {"REG": 0, "STACK": 0, "SHARED": 0, "LOCAL": 0}
    for match in _USAGE.finditer(usage):
        if match["name"] == kernel:
            numbers.update({name: int(value) for name, value in _NUMBER.findall(match["rest"])})
    return numbers


def _spills(function: Function) -> int:
    return sum(one.name in _SPILLS for one in function.instructions)
