"""One softmax and one matrix product in every kernel language: one process, one session, one timeline, one table.

    python examples/same_kernel_everywhere.py

The kernels are those of *_softmax.py and *_gemm.py: Triton, Gluon, CuTe DSL, Numba, CUDA C++ through CuPy, and the
simulator. They do the same work in blocks of the same size with the same regions, so a row of the table is one piece of
work in all of them. On a GPU: runs all that are installed, checks every result and every count of records, writes
everywhere.kscope and everywhere.pftrace, and names missing languages. Without one: compiles the others, and runs the
simulator's (and Numba's, with NUMBA_ENABLE_CUDASIM=1).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import kscope
from kscope.util.terminal import part_text, time_text

SOFTMAX = dict.fromkeys(("triton", "gluon", "cute", "numba", "cupy", "sim"), "softmax")
GEMM = {**dict.fromkeys(SOFTMAX, "gemm"), "cute": "tiled_gemm"}
KERNELS = {"softmax": (SOFTMAX, ("maximum", "sum", "write")), "gemm": (GEMM, ("load", "multiply", "store"))}


def on_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def examples() -> Iterator[tuple[str, str, Any]]:
    """(kernel, language, module) of all modules that can be imported."""
    missing = set()
    for kernel, (languages, _) in KERNELS.items():
        for language, name in languages.items():
            try:
                yield kernel, language, import_module(f"{language}_{name}")
            except ImportError as error:
                if language not in missing:
                    print(f"{language}: left out, {error}")
                missing.add(language)


def runs_here(language: str, module: Any) -> bool:
    """Compile the kernel; True if it can also be launched. Launches it once, so that the recording contains neither
    compilation nor cold memory."""
    launched = language == "sim" or on_gpu() or getattr(module, "SIMULATED", False)
    try:
        if launched:
            module.run()
        elif hasattr(module, "compile_only"):
            print(f"{language}: ", end="")
            module.compile_only()
        else:
            print(f"{language}: no GPU here, and {module.__name__} is compiled when it is launched")
    except Exception as error:  # an installed language may not work here; go on with the others
        first = (str(error).strip().splitlines() or ["no more is known"])[0]
        print(f"{language}: {module.__name__} left out, {type(error).__name__}: {first}")
        return False
    return launched


def table(trace: kscope.Trace, launches: list[tuple[str, str]]) -> str:
    """Rows are kernels and regions, columns languages: time per warp, and its share of the warp's lifetime. launches:
    kernel and language of each."""
    summary = trace.summary(by="launch")
    spent = {(*launches[row.key[0]], row.region): (row.warp_time_ns, row.share) for row in summary.regions}
    warps = {launches[row.key[0]]: row for row in summary.warps}
    across = [language for language in SOFTMAX if any(language == of for _, of in launches)]

    def line(title: str, cells: dict[str, str]) -> str:
        return f"{title:14}" + "".join(f"{cells.get(language, '-'):>20}" for language in across)

    lines = [line("", {language: language for language in across})]
    for kernel, (_, regions) in KERNELS.items():
        mine = {language: row for (of, language), row in warps.items() if of == kernel}
        lines.append(line(kernel, {language: time_text(row.time_ns) for language, row in mine.items()}))
        for region in regions:
            parts = {language: spent[kernel, language, region] for language in mine}
            cells = {
                language: f"{time_text(total / mine[language].warps)} {part_text(share):>7}"
                for language, (total, share) in parts.items()
            }
            lines.append(line(f"  {region}", cells))
    return "\n".join(lines)


def main() -> None:
    kscope.enable()  # kernels compiled from here on can record
    ready = [(kernel, language, module) for kernel, language, module in examples() if runs_here(language, module)]
    if on_gpu():  # without the simulator, whose cycles are not measured
        ready = [row for row in ready if row[1] != "sim"] or ready
    with kscope.profile("everywhere.kscope") as prof:
        expected = [module.run() for _, _, module in ready]
    kscope.disable()
    trace, launches = prof.trace, [(kernel, language) for kernel, language, _ in ready]
    for launch, (kernel, _) in zip(trace.launches, launches, strict=True):
        assert kernel in launch.kernel, f"{launch.kernel} in the place of a {kernel}"
    counted = np.bincount(trace.launch, minlength=len(ready)).tolist()
    assert counted == expected, f"{counted} records, expected {expected}"
    trace.export("everywhere.pftrace")
    print(f"\nwhat a launch takes, and of it what a warp spends in each region\n\n{table(trace, launches)}\n")
    for problem in trace.problems:
        print(f"! {problem.text}")
    print(
        f"{len(trace)} records of {len(ready)} launches: everywhere.kscope, and everywhere.pftrace for ui.perfetto.dev"
    )


if __name__ == "__main__":
    main()
