"""Nsight Compute: kernel times and resources from one run of a program."""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from ...errors import MissingError
from ...util.cuda_home import cuda_folders
from ...util.grouping import grouped

TIME, REGISTERS, STATIC, DYNAMIC, EXECUTED = METRICS = (
    "gpu__time_duration.sum", "launch__registers_per_thread", "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic", "smsp__inst_executed.sum",
)  # fmt: skip
_COLUMNS = {"ID", "Kernel Name", "Metric Name", "Metric Value"}
_NANOSECONDS = {"n": 1.0, "u": 1e3, "m": 1e6, "s": 1e9}
_THOUSANDS = {"K": 1e3, "M": 1e6, "G": 1e9}
_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
_ERROR = re.compile(r"^==ERROR==\s*(.+)$", re.M)


@dataclass(frozen=True)
class Launch:
    """A launch measured by ncu; None for values that ncu does not report.

    Attributes:
        kernel: mangled name.
        grid, block: dimensions.
        ns: duration.
        registers: per thread.
        static_shared, dynamic_shared: bytes of shared memory per block.
        executed: warp instructions.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    ns: float | None
    registers: int | None
    static_shared: int | None
    dynamic_shared: int | None
    executed: int | None

    @property
    def threads(self) -> int:
        """Threads per block."""
        return math.prod(self.block)


def find() -> str:
    """The path of ncu.

    Raises:
        MissingError: it is not installed; the message names the remedy.
    """
    folders = [*cuda_folders(), *_FOLDERS]
    folders += [str(path) for path in sorted(Path(_FOLDERS[1]).glob("*"), reverse=True)]
    if found := shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(folders)):
        return found
    raise MissingError(
        "ncu (Nsight Compute) is not installed: it comes with the CUDA toolkit, and measures kernel times and executed"
        " instructions"
    )


def command(ncu: str, log: Path, program: Sequence[str], kernels: Sequence[str] = ()) -> list[str]:
    """The command line that runs `program` under ncu with the table in `log`. kernels: name patterns, as attn_*."""
    names = "|".join(_regex(glob) for glob in kernels)
    filters = ["--kernel-name-base", "mangled", "--kernel-name", f"regex:{names}"] if names else []
    return [
        ncu, "--csv", "--log-file", str(log), "--print-units", "base", "--print-kernel-base", "mangled",
        "--clock-control", "none", "--cache-control", "none", "--target-processes", "all",
        "--metrics", ",".join(METRICS), *filters, *program,
    ]  # fmt: skip


def _regex(pattern: str) -> str:
    return translate(pattern).replace("(?s:", "^(?:").replace("\\Z", "$").replace("\\z", "$")


def read(text: str) -> list[Launch]:
    """The launches in a table, in order. Other lines, such as the program's output, are ignored."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: dict[str, dict[str, str]] = {}
    metrics: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines):
        if None in row or None in row.values() or _COLUMNS - row.keys():
            continue  # cut off
        found.setdefault(row["ID"], row)
        value = _number(row["Metric Value"], row.get("Metric Unit", ""), row["Metric Name"] == TIME)
        if value is not None:
            metrics.setdefault(row["ID"], {})[row["Metric Name"]] = value
    return [_launch(row, metrics.get(number, {})) for number, row in found.items()]


def errors(text: str) -> list[str]:
    """The errors that ncu reports."""
    return list(dict.fromkeys(_ERROR.findall(text)))


def _launch(row: dict[str, str], metrics: dict[str, float]) -> Launch:
    whole = [None if metrics.get(name) is None else round(metrics[name]) for name in METRICS[1:]]
    grid, block = (tuple(map(int, re.findall(r"\d+", row.get(name, "")))) for name in ("Grid Size", "Block Size"))
    return Launch(row["Kernel Name"], grid, block, metrics.get(TIME), *whole)


def _number(text: str, unit: str, time: bool) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:  # n/a
        return None
    return value * (_NANOSECONDS if time else _THOUSANDS).get(unit[:1], 1.0)


def longest(launches: Iterable[Launch]) -> list[Launch]:
    """Launches of one kernel with the grid and block that took the most time in total."""
    shapes = grouped(((one.grid, one.block, one.dynamic_shared), one) for one in launches)
    return max(shapes.values(), key=lambda group: sum(one.ns or 0.0 for one in group), default=[])
