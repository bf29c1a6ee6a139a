"""What recording costs the same two kernels in every language: softmax and matmul of examples/, timed by ncu.

Plain, at rest (prepared, not recording), and recording, in turns in one process; the examples check their results each
time. What lives here: the order of launches, and who is on the list. What does not: the kernels, their launches
(examples/*_softmax.py, *_gemm.py).
"""

from __future__ import annotations

import json
import re
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
WRITTEN = "everywhere.json"
SPELLED = {
    ("triton", "gluon", "cupy"): r"(softmax|gemm)(\(.*)?",
    ("numba",): r".*(softmax|gemm).*(abi|Array|cudapy).*",
    ("cute",): r"kernel_cutlass.*",
}
"""How ncu names the kernels of these languages, and not those that check their results."""


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
                for turn in range(rounds):
                    for state in STATES:
                        run(example, state)
                        launched.append((language, kernel, state, turn))
            except (ImportError, RuntimeError, kscope.KscopeError) as error:
                missing.append(f"{language} {kernel}: {type(error).__name__}: {error}")
                kscope.disable()
    (folder / WRITTEN).write_text(json.dumps({"launched": launched, "missing": missing}))


def run(example: Any, state: str) -> None:
    """One launch in that state."""
    import kscope

    if state == "recording":
        with kscope.profile():
            example.run()
    elif state == "at rest":
        kscope.enable()
        example.run()
        kscope.disable()
    else:
        example.run()


def said(section: str, options: Any) -> list[str]:
    """What could not be launched."""
    found: list[str] = json.loads((options.folder / WRITTEN).read_text())["missing"]
    return found


def measure(section: str, options: Any) -> Iterator[Row]:
    """Per language and kernel the time of each state, and what it adds. Raises RuntimeError, behind the rows of the
    others, where ncu saw other launches of a language than were made."""
    from on_triton import microseconds, profiled  # it needs Triton, as one of the languages does

    rounds = 3 if options.quick else ROUNDS
    rows = profiled([__file__, str(rounds), str(options.folder)], "(softmax|gemm|kernel_cutlass)", options.folder)
    recorded = json.loads((options.folder / WRITTEN).read_text())
    wrong = []
    for languages, spelled in SPELLED.items():
        launched = [one for one in recorded["launched"] if one[0] in languages]
        mine = [one for one in rows if re.fullmatch(spelled, one["Kernel Name"], re.S)]
        if len(mine) == len(launched):
            yield from _rows(launched, [microseconds(one) for one in mine])
        else:
            names = ", ".join(sorted({one["Kernel Name"][:60] for one in rows}))
            wrong.append(f"{languages}: ncu saw {len(mine)} launches, {len(launched)} were made; of {names}")
    if wrong:
        raise RuntimeError("; ".join(wrong))


def _rows(launched: list[tuple[str, str, str, int]], times: list[float]) -> Iterator[Row]:
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (language, kernel, state, turn), time in zip(launched, times, strict=True):
        if turn >= DROPPED:
            found.setdefault((kernel, language), {}).setdefault(state, []).append(time)
    for (kernel, language), states in found.items():
        base = statistics.median(states["plain"])
        for state in STATES:
            yield row(f"{kernel}, {language}", state, "us", states[state])
        for state in STATES[1:]:
            yield row(f"{kernel}, {language}, added", state, "%", [100 * (one / base - 1) for one in states[state]])


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]))
