"""Runs a program without marks and with them, and compares its kernels and their times.

    without   python SCRIPT: nothing of kscope is compiled in
    with      kscope run SCRIPT, with two builds of each kernel: as recorded, and without its marks

Both run under Nsight Compute if it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson

from ...analysis.trust import nsight
from ...analysis.trust.nsight import Launch
from ...analysis.trust.perturbation import Perturbation, perturbation
from ...capture.capture import load_capture
from ...errors import MissingError, UsageError
from ...instrument.selection.catalog import KernelSites, listing
from ...machine_code import tools
from ...session.kernel_filter import Patterns
from ...trace import Trace, decode
from .. import GROUPS, run
from ..common.command_parser import commands

_CAPTURE, _BUILDS = "run.kscope", "builds.json"
_OFF, _ON = "off.csv", "on.csv"


@dataclass(frozen=True)
class Report:
    """kernels: the recorded ones; the compiled ones if nothing was recorded. problems: what is unknown, and why."""

    kernels: tuple[Perturbation, ...]
    problems: tuple[str, ...]


def perturbed(
    script: str,
    args: Sequence[str] = (),
    *,
    module: bool = False,
    flags: Sequence[str] = (),
    kernels: Sequence[str] = (),
    threads: int | None = None,
    dynamic_shared: int | None = None,
    keep: Path | None = None,
) -> Report:
    """Run a script without marks and with them. The script's output goes to stderr.

    Args:
        script, args: the script and its arguments.
        module: True if `script` is a module's name.
        flags: of `kscope run`.
        kernels: only kernels whose name matches one of the patterns, as attn_*; none = all.
        threads, dynamic_shared: per block, if neither capture nor ncu reports them.
        keep: a new or empty folder for the capture and the builds.

    Raises:
        UsageError: the script fails, or the folder is not empty.
        MissingError: the CUDA tools are not installed.
    """
    if keep is not None:
        keep.mkdir(exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(f"--keep {keep}: that folder is not empty; name a new one")
    with _temporary() if keep is None else nullcontext(keep) as folder:
        problems = list[str]()
        program = ["-m", script, *args] if module else [script, *args]
        filters = [f"--kernel={glob}" for glob in kernels]
        inside = ["-m", "kscope", "trust", "perturb", "--into", str(folder), *flags, *filters, *program]
        names = Patterns.of(kernels or None).names  # empty with a hash, which is not known before
        try:
            ncu: str | None = nsight.find()
        except MissingError as error:
            problems.append(str(error))
            ncu = None
        if ncu is not None and not _under(ncu, folder / _OFF, program, names, problems):
            ncu = None
        measured = ncu is not None and _under(ncu, folder / _ON, inside, names, problems)
        if not measured and (code := _run([sys.executable, *inside])):
            raise UsageError(f"{script} ended with exit code {code}; its output is above")
        capture = load_capture(folder / _CAPTURE, max_bytes=sys.maxsize)  # written just now, by ourselves
        simulated = {kernel.id for module in capture.modules if module.frontend == "sim" for kernel in module.kernels}
        builds = [
            one
            for one in orjson.loads((folder / _BUILDS).read_bytes())
            if not names or any(fnmatchcase(one["kernel"], glob) for glob in names)
        ]
        off, on = (nsight.read(path.read_text()) if path.exists() else [] for path in (folder / _OFF, folder / _ON))
        found = list(_joined(builds, decode(capture), simulated, off, on, threads, dynamic_shared, problems))
        return Report(tuple(found), tuple(dict.fromkeys(problems)))


@contextmanager
def _temporary() -> Generator[Path]:
    """A new folder, removed at the end; kept if the script fails, because messages name its recording there."""
    folder = Path(tempfile.mkdtemp(prefix="kscope-"))
    try:
        yield folder
    except UsageError:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def within(folder: Path, argv: Sequence[str]) -> int:
    """The run with marks: `kscope run`, with the builds of its kernels in the folder."""
    grammar = argparse.ArgumentParser(allow_abbrev=False)
    run.add(commands(grammar, GROUPS["record"]))
    options = grammar.parse_args(["run", "-q", "-o", str(folder / _CAPTURE), *argv])
    with listing() as kernels:
        code: int = options.command(options)
    (folder / _BUILDS).write_bytes(orjson.dumps([_kept(folder / f"{n}", one) for n, one in enumerate(kernels)]))
    return code


def _kept(folder: Path, kernel: KernelSites) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)  # the file exists if ncu failed and the script ran again
    paths = None if kernel.build is None else kernel.build(folder)
    names = {"kernel": kernel.kernel, "symbol": kernel.symbol or kernel.kernel, "frontend": kernel.frontend}
    return {**names, "paths": paths and [str(path) for path in paths]}


def _run(command: Sequence[str]) -> int:
    """Run a command; returns its exit code. Its output goes to stderr, because stdout is the report's."""
    plain = {name: value for name, value in os.environ.items() if name != "KSCOPE"}
    sys.stderr.flush()
    return subprocess.run(command, check=False, stdout=2, env=plain).returncode


def _under(ncu: str, log: Path, program: Sequence[str], kernels: Sequence[str], problems: list[str]) -> bool:
    """Run Python under ncu; False if ncu could not measure although the program works."""
    code = _run(nsight.command(ncu, log, [sys.executable, *program], kernels))
    text = log.read_text(errors="replace") if log.exists() else ""
    if (code or not nsight.read(text)) and (ncu_errors := nsight.errors(text)):
        problems.append(f"ncu measured nothing: {ncu_errors[0]}")
        log.unlink()
        return False
    if code:
        raise UsageError(f"{' '.join(program[:3])} ended with exit code {code} under ncu; its output is above")
    if not nsight.read(text):
        problems.append("ncu measured nothing: there was no launch")
    return True


def _joined(
    builds: Iterable[dict[str, Any]],
    trace: Trace,
    simulated: set[int],
    off: list[Launch],
    on: list[Launch],
    threads: int | None,
    dynamic_shared: int | None,
    problems: list[str],
) -> Iterable[Perturbation]:
    """One comparison per build that was launched."""
    recorded = {launch.kernel_id: number for number, launch in enumerate(trace.launches)}
    known: set[int] = set()
    without: set[str] = set()
    for one in builds:
        if one["paths"] is None:
            without.add(one["kernel"])
            continue
        paths = [Path(path) for path in one["paths"]]
        if paths[0].read_bytes() == paths[1].read_bytes():
            continue
        ids = tools.builds(paths[1])
        number = ids.get(one["kernel"], ids.get(one["symbol"], -1))
        launch = recorded.get(number)
        if number in known or (recorded and launch is None):
            continue
        known.add(number)
        block = _threads(trace, launch) if threads is None else threads
        try:
            found = perturbation(*paths, kernel=one["symbol"] if len(ids) > 1 else None)
        except UsageError as error:  # the frontend's name is not the cubin's
            problems.append(f"kernel {one['kernel']}: {error}")
            continue
        seen = _measured(found, off, on, block, dynamic_shared)
        if seen.on_ns is not None and seen.off_ns is None:
            problems.append(
                f"kernel {one['kernel']}: without marks it had no launch of this shape, so its time is unknown"
            )
        yield seen
    if known and not recorded:
        problems.append("nothing was recorded: these are all compiled kernels, with their code only")
    if not (known or recorded or without):
        problems.append("no kernel with marks was compiled")
    if ran := {launch.kernel for launch in trace.launches if launch.kernel_id in simulated}:
        problems.append(f"{', '.join(sorted(ran))} ran on the simulator, which has no machine code to compare")
    without |= {launch.kernel for launch in trace.launches if launch.kernel_id not in known | simulated}
    for name in sorted(without):
        problems.append(f"kernel {name}: its build without marks is unknown; name two cubins instead")


def _threads(trace: Trace, launch: int | None) -> int | None:
    """Threads of a block of a launch."""
    if launch is None:
        return None
    row = int(np.flatnonzero(trace.warps.launch == launch)[0])
    return int(trace.warps.threads[row].prod())


def _measured(
    found: Perturbation, off: list[Launch], on: list[Launch], threads: int | None, dynamic_shared: int | None
) -> Perturbation:
    """The comparison with ncu's measurements, for the launch shape with the longest total time."""
    mine = [one for one in on if one.kernel == found.on.kernel]
    mine = nsight.longest([one for one in mine if one.registers == found.on.registers] or mine)
    plain: list[Launch] = []
    if mine:
        shape = mine[0].grid, mine[0].block, mine[0].dynamic_shared
        plain = [
            one for one in off if (one.grid, one.block, one.dynamic_shared) == shape and one.kernel == mine[0].kernel
        ]
        threads = mine[0].threads
        dynamic_shared = mine[0].dynamic_shared if dynamic_shared is None else dynamic_shared
    times = [_median([one.ns for one in launches]) for launches in (plain, mine)]
    executed = [_median([one.executed for one in launches]) for launches in (plain, mine)]
    return replace(
        found.fitted(threads, dynamic_shared or 0),
        off_ns=times[0], on_ns=times[1],
        off_executed=None if executed[0] is None else round(executed[0]),
        on_executed=None if executed[1] is None else round(executed[1]),
    )  # fmt: skip


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None
