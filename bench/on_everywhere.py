"""What recording costs the same two kernels in every language: softmax and matmul of examples/, timed by ncu.

Plain, at rest (prepared, not recording), and recording, in turns in one process; the examples check their results each
time. What lives here: the order of launches, and who is on the list. What does not: the kernels, their launches
(examples/*_softmax.py, *_gemm.py).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from rows import Row, row

LANGUAGES = ("triton", "gluon", "cupy", "numba", "cute")
NAMES = {"softmax": "softmax", "matmul": "gemm"}
STATES = ("plain", "at rest", "recording")
ROUNDS, DROPPED = 6, 1


def module(kernel: str, language: str) -> Any:
    """The example; CuTe's matmul of this size has another name."""
    name = "tiled_gemm" if (kernel, language) == ("matmul", "cute") else NAMES[kernel]
    return import_module(f"{language}_{name}")


def record(rounds: int, folder: Path) -> None:
    """Launches everything in turns, and writes down what was launched and what could not be."""
    import kscope

    launched: list[tuple[str, str, str, int]] = []
    missing: list[str] = []
    for language in LANGUAGES:
        for kernel in NAMES:
            try:
                example = module(kernel, language)
            except ImportError as error:
                missing.append(f"{language} {kernel}: {error}")
                continue
            for turn in range(rounds):
                for state in STATES:
                    if state == "at rest":
                        kscope.enable()
                    if state == "recording":
                        with kscope.profile():
                            example.run()
                    else:
                        example.run()
                    kscope.disable()
                    launched.append((language, kernel, state, turn))
    (folder / "everywhere.json").write_text(json.dumps({"launched": launched, "missing": missing}))


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per language and kernel the time of each state, and what it adds."""
    from on_triton import profiled  # it needs Triton, as one of the languages does

    rounds = 3 if options.quick else ROUNDS
    rows = profiled([__file__, str(rounds), str(options.folder)], "(softmax|gemm|matmul)", options.folder)
    recorded = json.loads((options.folder / "everywhere.json").read_text())
    duration = [one for one in rows if one["Metric Name"] == "gpu__time_duration.sum"]
    if len(duration) != len(recorded["launched"]):
        seen = ", ".join(one["Kernel Name"][:40] for one in duration[:40])
        raise RuntimeError(f"ncu saw {len(duration)} launches, {len(recorded['launched'])} were made; of {seen}")
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (language, kernel, state, turn), one in zip(recorded["launched"], duration, strict=True):
        if turn >= DROPPED:
            scale = 1e-3 if one["Metric Unit"] in ("ns", "nsecond") else 1.0
            time = float(one["Metric Value"].replace(",", "")) * scale
            found.setdefault((kernel, language), {}).setdefault(state, []).append(time)
    for (kernel, language), states in found.items():
        base = statistics.median(states["plain"])
        for state, times in states.items():
            yield row(f"{kernel}, {language}", state, "us", times)
        for state in STATES[1:]:
            yield row(f"{kernel}, {language}, added", state, "%", [100 * (one / base - 1) for one in states[state]])


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]))
