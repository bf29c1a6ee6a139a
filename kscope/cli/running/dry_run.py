"""`kscope run --dry-run SCRIPT`: what would be marked in the script's kernels, and the cost.

softmax (triton, sm_90a): 6 places, 5 regions
  region           where            records                     instructions
  load k.py:45     /home/me/k.py:45  1 per launch                          14
  ...
  with marks: 32 -> 40 registers, 610 -> 742 instructions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...analysis.trust.site_cost import Cost, cost
from ...instrument.selection.auto import Selection
from ...instrument.selection.catalog import KernelSites
from ...util.terminal import cut, grid, terminal_width, wrapped
from ...util.text import counted

_NONE = (
    "no kernel is listed: a dry run lists those that Triton, CuTe DSL, CuPy, Numba and NVRTC compile; those of the "
    "simulator and of nvcc have the marks of their source, which kscope run records"
)


def show(kernels: Sequence[KernelSites], selection: Selection) -> str:
    """The compiled kernels as text for a terminal; kernels with the same sites are shown once."""
    lines: list[str] = []
    for kernel, times in _once(kernels):
        lines += ["", *_kernel(cost(kernel), times)] if lines else _kernel(cost(kernel), times)
    if not kernels:
        return "\n".join(wrapped(_NONE, terminal_width()))
    named = {site.region for kernel in kernels for site in kernel.sites}
    for missing in (one for one in selection.lines if one.name not in named):
        lines += ["", f"region {missing}: no kernel has an operation at these lines"]
    return "\n".join(lines)


def _once(kernels: Iterable[KernelSites]) -> list[tuple[KernelSites, int]]:
    """Kernels that differ in specialization, but not in sites, as one."""
    found: dict[tuple[object, ...], tuple[KernelSites, int]] = {}
    for kernel in kernels:
        key = kernel.frontend, kernel.kernel, kernel.target, kernel.sites
        first, times = found.get(key, (kernel, 0))
        found[key] = first, times + 1
    return list(found.values())


def _kernel(found: Cost, times: int) -> list[str]:
    width = terminal_width()
    kernel = found.kernel
    regions = counted(len({row.region for row in found.rows}), "region")
    count = f"{counted(len(kernel.sites), 'place')}, {regions}" if kernel.sites else "nothing to mark"
    several = f", compiled {times} times" if times > 1 else ""
    head = f"{kernel.kernel} ({kernel.frontend}, {kernel.target}): {count}{several}"
    lines = [cut(head, len(head))]  # torch.compile's names are long, and one that is cut names nothing
    if not found.rows:
        return [*lines, *_misplaced(found, width)]
    columns = {
        "where": [row.where for row in found.rows],
        "records per warp": [row.records for row in found.rows],
        "instructions": [row.code for row in found.rows],
    }
    names = [f"{row.region} [{row.group}]" if row.group else row.region for row in found.rows]
    lines += grid("region", names, columns, width, ("where",))
    if found.build is not None:
        off, on = found.build.off, found.build.on
        spills = f", {off.spill_instructions} -> {on.spill_instructions} spills" if on.spill_instructions else ""
        lines.append(
            f"  with all marks: {off.registers} -> {on.registers} registers,"
            f" {off.instructions:,} -> {on.instructions:,} instructions{spills}"
        )
    if found.unknown:
        lines += wrapped(f"its machine code is unknown: {found.unknown}", width, "  ")
    return [*lines, *_misplaced(found, width)]


def _misplaced(found: Cost, width: int) -> list[str]:
    return [line for one in found.misplaced for line in wrapped(f"! {one}", width, "  ")]
