"""Cost of recording on a GPU, compared with other profilers: one table and one JSON file per run.

    make bench-gpu                                     all sections; ARGS="--sections regions warps" selects
    python bench/gpu.py --list                         the sections, and how long each takes
    python bench/gpu.py --sections triton --kernels softmax,splitk     some kernels of the section `triton`
    python bench/gpu.py --dry-run                      no GPU: compiles everything, and checks the machine code
    --json FILE (bench-gpu.json)  --headers FOLDER     peers' headers, which `make peers` downloads

Each section runs in a separate process: the table reports failures, and the other sections still run. Rows are medians
with their spread; variants take turns within a section.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from rows import Report, Row, Section, table, to_dict
from sections import KERNELS, PARTS, Options

ROOT = Path(__file__).resolve().parents[1]
HEADERS = ROOT / ".cache" / "peers"
LEAST = 5
"""A section starts only if this many seconds are left."""
PACKAGES = (
    "torch", "triton", "cupy-cuda13x", "numba-cuda", "nvidia-cutlass-dsl", "cuda-bindings", "numpy",
)  # fmt: skip


def names(text: str) -> tuple[str, ...]:
    """Kernels from a command line. Raises argparse.ArgumentTypeError for unknown ones."""
    found = tuple(text.split(","))
    if unknown := [one for one in found if one not in KERNELS]:
        raise argparse.ArgumentTypeError(f"unknown kernels {', '.join(unknown)}; known: {', '.join(KERNELS)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument(
        "--kernels", type=names, default=(), metavar="NAME,...", help=f"of triton and placement: {', '.join(KERNELS)}"
    )
    parser.add_argument("--json", type=Path, default=Path("bench-gpu.json"))
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--headers", type=Path, default=HEADERS, help="a folder with profiler.cuh, warpscope.cuh")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--dry-run", action="store_true", help="no GPU: compile, and check the machine code")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--timeout", type=int, default=540, help="seconds that a section may take")
    parser.add_argument(
        "--budget", type=int, default=0, help="seconds that all may take: what comes too late is left out"
    )
    parser.add_argument("--within", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        for name, part in PARTS.items():
            print(f"{name:12} {part.seconds:4} s  {part.what} (needs {', '.join(part.needs)})")
        return 0
    if options.within:
        return within(options)
    report = measured(options)
    options.json.write_text(json.dumps(to_dict(report), indent=1) + "\n")
    print(table(report))
    return int(any(section.state == "failed" for section in report.sections))


def measured(options: argparse.Namespace) -> Report:
    """All sections, one after another. The file is written after each, so a later failure loses nothing."""
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    typed = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    report, begin = Report(["python", *typed], started, machine(), versions(), ()), time.monotonic()
    for name in options.sections:
        left = options.budget - (time.monotonic() - begin) if options.budget else options.timeout
        section = process(name, options, min(left, options.timeout))
        report = Report(report.command, started, report.machine, report.versions, (*report.sections, section))
        options.json.write_text(json.dumps(to_dict(report), indent=1) + "\n")
        last = section.message.splitlines()[-1] if section.message else ""
        print(f"{name}: {section.state} in {section.seconds:.0f} s {last}", file=sys.stderr)
    return report


def process(name: str, options: argparse.Namespace, timeout: float) -> Section:
    """One section, in a separate process."""
    if options.dry_run and not PARTS[name].dry:
        return Section(name, 0.0, "skipped", "nothing of it can be checked without a GPU")
    if timeout < LEAST and options.budget:
        return Section(name, 0.0, "skipped", f"no time is left of {options.budget} s")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kscope-bench-") as folder:
        result = Path(folder, "rows.json")
        command = [sys.executable, __file__, "--within", name, "--result", str(result), "--arch", options.arch]
        command += ["--headers", str(options.headers)] + ["--quick"] * options.quick + ["--dry-run"] * options.dry_run
        command += ["--kernels", ",".join(options.kernels)] if options.kernels else []
        output = ended(command, timeout)
        found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {"state": "failed", "rows": []}
    rows = tuple(Row(**one) for one in found["rows"])
    state = "ok" if found["state"] == "ok" and rows else "failed"
    return Section(
        name,
        round(time.monotonic() - start, 1),
        state,
        found.get("message", "") or (output if state == "failed" else ""),
        rows,
    )


def ended(command: list[str], timeout: float) -> str:
    """A process's error output. A process that exceeds the time limit is killed with its children."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=timeout)[1].strip()[-3000:]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"it took more than {timeout:.0f} s"


def environment() -> dict[str, str]:
    """With kscope, its frontends and the tests' helpers on the path."""
    paths = [str(ROOT / path) for path in (".", "frontends", "runtime", "tests", "bench", "examples")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}


def within(options: argparse.Namespace) -> int:
    """The process of one section: rows are written as they are measured, so that a failure loses none."""
    given = Options(options.result.parent, options.arch, options.headers, options.quick, options.kernels)
    module = import_module(PARTS[options.within].module)
    measure: Callable[[str, Options], Iterator[Row]] = module.dry if options.dry_run else module.measure
    rows: list[dict[str, Any]] = []

    def write(state: str, message: str = "") -> None:
        options.result.write_text(json.dumps({"state": state, "message": message, "rows": rows}))

    for one in measure(options.within, given):
        rows.append(vars(one))
        write("failed")
    write("ok", "; ".join(module.missing(options.within, given)) if hasattr(module, "missing") else "")
    return 0


def machine() -> dict[str, Any]:
    """GPU, driver and host; unavailable values are omitted."""
    found: dict[str, Any] = {"host": f"{os.cpu_count()}-core {platform.machine()}", "python": platform.python_version()}
    fields = "name,driver_version,clocks.sm,clocks.max.sm,memory.total,power.limit"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {"gpu": "none", **found}
    values = [part.strip() for part in done.stdout.strip().split(",")]
    return {**dict(zip(("gpu", "driver", "sm clock", "most", "memory", "power"), values, strict=False)), **found}


def versions() -> dict[str, str]:
    """Versions of the installed packages, of this checkout of kscope, and of nvcc."""
    found = {}
    if spelled := re.search(r'__version__ = "(.+?)"', (ROOT / "kscope" / "__init__.py").read_text()):
        found["kscope"] = spelled[1]
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
        found["nvcc"] = done.stdout.strip().splitlines()[-1].removeprefix("Build ")
    except (OSError, subprocess.SubprocessError):
        return found
    return found


if __name__ == "__main__":
    sys.exit(main())
