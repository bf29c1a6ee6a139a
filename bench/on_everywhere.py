"""Cost of recording the same five kernels in every language, timed by ncu: softmax, matmul, layer norm, a persistent
loop over tasks, attention.

Plain, at rest (prepared, not recording), and recording, in turns in one process; every result is checked. All numbers
are 32-bit floats and the regions are the same, so that languages can be compared; on_triton.py and on_cute.py measure
fast kernels.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from problems import KERNELS, REGIONS, THREADS, Problem, problems
from rows import Row, row

import kscope

LANGUAGES = ("triton", "gluon", "cupy", "numba", "cute")
STATES = ("plain", "at rest", "recording")
ROUNDS, DROPPED = 9, 1
RECORDS = 512
"""Records per slab: no warp here writes more."""
WRITTEN = "everywhere.json"
_NAMES = "softmax|gemm|layernorm|tasks|attention"
SPELLED = {
    ("triton", "gluon", "cupy"): rf"({_NAMES})",
    ("numba",): rf"_ZN[0-9]+(numba_[a-z]+|everywhere_numba)[0-9]+({_NAMES})B.*",
    ("cute",): rf"kernel_cutlass_({_NAMES}).*",
}
"""The kernels' names in machine code, by language, without the kernels that check results."""


def record(rounds: int, folder: Path) -> None:
    """Launches everything in turns, and records the launches, missing packages and failures."""
    launched: list[tuple[str, str, str, int]] = []
    missing: list[str] = []
    wrong: dict[str, str] = {}
    makers = problems()
    for kernel in KERNELS:
        given = makers[kernel]()
        for language in LANGUAGES:
            name = f"{kernel}, {language}"
            try:
                launch = import_module(f"everywhere_{language}").launch(kernel, given)
                for number in range(rounds):
                    for state in STATES:
                        found = run(launch, state, given, REGIONS[kernel])
                        launched.append((language, kernel, state, number))
                        if found:
                            wrong.setdefault(name, f"{state}: {found}")
            except ImportError as error:
                missing.append(f"{name}: {error}")
            except Exception as error:  # report the failure and measure the other languages
                wrong[name] = f"{type(error).__name__}: {error}"[:500]
                kscope.disable()
    (folder / WRITTEN).write_text(json.dumps({"launched": launched, "missing": missing, "wrong": wrong}))


def run(launch: Callable[[], object], state: str, given: Problem, regions: set[str]) -> str:
    """One launch in that state; returns what is wrong with its result or its records."""
    import torch

    for tensor in (given.out, *given.fresh):
        tensor.zero_()
    found = regions
    if state == "recording":
        with kscope.profile(records=RECORDS) as prof:
            launch()
        found = {prof.trace.region_names()[number] for number in set(prof.trace.region.tolist())}
    elif state == "at rest":
        kscope.enable(records=RECORDS)
        launch()
        kscope.disable()
    else:
        launch()
    if not torch.allclose(given.out, given.expected, rtol=1e-3, atol=1e-3):
        return f"its result is {float((given.out - given.expected).abs().max()):.3g} off"
    return "" if found == regions else f"it recorded {', '.join(sorted(found)) or 'nothing'}"


def missing(section: str, options: Any) -> list[str]:
    """Kernels that could not be launched."""
    path = options.folder / WRITTEN
    found: list[str] = json.loads(path.read_text())["missing"] if path.exists() else []
    return found


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per language and kernel: the time of each state, and the time it adds. After all rows, raises RuntimeError if one
    failed, or if ncu saw other launches of a language than were made."""
    from on_triton import DURATION, REGISTERS, microseconds, profiled  # needs Triton

    rounds = 4 if options.quick else ROUNDS
    script = [__file__, str(rounds), str(options.folder)]
    rows = profiled(script, f"^({'|'.join(SPELLED.values())})$", options.folder, "mangled")
    recorded = json.loads((options.folder / WRITTEN).read_text())
    doubts: dict[str, str] = recorded["wrong"]
    wrong = [f"{name}: {text}" for name, text in doubts.items()]
    for languages, spelled in SPELLED.items():
        launched = [one for one in recorded["launched"] if one[0] in languages]
        seen = [one for one in rows if re.fullmatch(spelled, one["Kernel Name"])]
        mine = [one for one in seen if one["Metric Name"] == DURATION]
        registers = [float(one["Metric Value"]) for one in seen if one["Metric Name"] == REGISTERS]
        if len(mine) == len(registers) == len(launched):
            yield from _rows(launched, [microseconds(one) for one in mine], registers, doubts)
        else:
            names = ", ".join(sorted({one["Kernel Name"][:60] for one in rows}))
            wrong.append(f"{languages}: ncu saw {len(mine)} launches, {len(launched)} were made; of {names}")
    if wrong:
        raise RuntimeError("; ".join(wrong))


def _rows(
    launched: list[tuple[str, str, str, int]], times: list[float], registers: list[float], doubts: dict[str, str]
) -> Iterator[Row]:
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for (language, kernel, state, number), time, count in zip(launched, times, registers, strict=True):
        if number >= DROPPED:
            found.setdefault((kernel, language), {}).setdefault(state, []).append((time, count))
    for (kernel, language), states in found.items():
        name = f"{kernel}, {language}"
        notes = {"doubt": doubts[name]} if name in doubts else {}
        base = statistics.median(time for time, _ in states["plain"])
        for state, seen in states.items():
            yield row(name, state, "us", [time for time, _ in seen], **notes)
            if state != "plain":
                yield row(f"{name}, added", state, "%", [100 * (time / base - 1) for time, _ in seen])
            yield row(f"{name}, registers", state, "registers", [count for _, count in seen])


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: the kernels of every installed language, prepared. Rows are instructions and registers. Raises
    RuntimeError where a kernel has another name than measure() looks for."""
    from driver import code, resources

    for language in LANGUAGES:
        try:
            module = import_module(f"everywhere_{language}")
        except ImportError:
            continue
        spelled = next(text for languages, text in SPELLED.items() if language in languages)
        for kernel, cubin in module.built(int(re.sub(r"\D", "", options.arch))):
            path = options.folder / f"{language}-{kernel}.cubin"
            path.write_bytes(cubin)
            expected = "gemm" if kernel == "matmul" else kernel
            names = [name for name in code(path) if re.fullmatch(spelled, name) and expected in name]
            if len(names) != 1:
                raise RuntimeError(f"{language} {kernel}: kernels are called {', '.join(code(path))}, not {spelled}")
            one = resources(path, names[0], THREADS)
            yield row(f"{kernel}, {language}", "instructions", "instructions", [one.instructions])
            yield row(f"{kernel}, {language}", "registers", "registers", [one.registers])
            yield row(f"{kernel}, {language}", "spills", "spills", [one.spill_instructions])


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]))
