"""Cost of recording a whole CuTe DSL kernel (examples/cute_gemm.py): kscope and NVIDIA's IKET, on the same matmul with
the same regions. Needs an sm_90 GPU, torch and nvidia-cutlass-dsl 4.6 or later. kscope and IKET run in separate
processes, in which launches alternate between the kernel without annotations and one variant, in both orders.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fresh_module import fresh
from rows import Row, row

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "examples" / "cute_gemm.py"
REGION = re.compile(r"with kscope\.region\((\"\w+\")(?:, value=\w+)?\):")
IKET = '''
from cutlass.cute.experimental import iket


class ranged:
    """A range of IKET as a `with`."""

    __dsl_trace_time_ctxmgr__ = True

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        iket.range_push(self.name)

    def __exit__(self, kind, error, trace):
        iket.range_pop()

'''
FORMS: dict[str, Callable[[str], str]] = {
    "bare": lambda source: REGION.sub("if cutlass.const_expr(True):", source),
    "kscope": lambda source: source,
    "iket": lambda source: REGION.sub(r"with ranged(\1):", source).replace("import kscope\n", f"import kscope\n{IKET}"),
}


SIZES = {4096: 1024, 8192: 8192}
"""Rows of the matrices, and room for all records that a warp then writes."""
ROUNDS, ROWS = 100, 64
ASLEEP = {4096: 20_000_000, 8192: 200_000_000}
"""Cycles that the GPU sleeps before a launch: longer than the host takes to launch, even while it drains."""
BARE = "without annotations"
LOG_LINES = 25
"""Last lines kept of each log of a failed run."""
POOL = 4 << 30
EXPECTED = ("plain", "clock")
"""Problems expected here: one kernel is launched plain on purpose, and events do not read the SMs' clocks."""
LEAST = 1 << 20
"""A recording of this kernel has at least this many bytes: a launch has half a million ranges."""


def measure(section: str, options: Any) -> Iterator[Row]:
    """The time of each kind of launch, and the time added to the kernel without annotations in the same process."""
    failed = []
    for size in SIZES:
        for tool in ("kscope", "iket"):
            found = within(tool, size, 30 if options.quick else ROUNDS, options.folder)
            if "failed" in found:
                failed.append(f"{tool}, {size}: {' | '.join(found['failed'])}")
            else:
                yield from _rows(f"{size}^3, {tool}'s process", found)
    if failed:
        raise RuntimeError("; ".join(failed))


def _rows(what: str, found: dict[str, Any]) -> Iterator[Row]:
    """Differences are taken pair by pair: a hot GPU lowers its clock for all later launches."""
    notes = {"doubt": "; ".join(found["problems"])} if found["problems"] else {}
    yield row(what, BARE, "us", [one for bare in found["beside"].values() for one in bare], **notes)
    for name, times in found["times"].items():
        yield row(what, name, "us", times, **notes)
        added = [100 * (one / bare - 1) for one, bare in zip(times, found["beside"][name], strict=True)]
        yield row(f"{what}, added", name, "%", added)


def within(tool: str, size: int, rounds: int, folder: Path) -> dict[str, Any]:
    """The measurement in a separate process; IKET's runs under run-iket."""
    result = folder / f"{tool}-{size}.json"
    command = [sys.executable, __file__, tool, str(result), str(size), str(rounds)]
    if tool == "iket":
        run = "from iket.cli.main import entrypoint; entrypoint()"
        where, quiet = ["--clobber", "--output-dir", str(folder / "iket")], ["--postprocess", "none", "--keep"]
        command = [sys.executable, "-c", run, *where, "profile", *quiet, "--", *command]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # run-iket merges the program's stderr into stdout
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},  # prints the Python stack if native code aborts
    )
    if done.returncode or not result.exists():  # run-iket runs it twice; only the second run records
        return {"failed": [f"ended with {done.returncode}", *failure_lines(done.stdout, folder / "iket")]}
    found: dict[str, Any] = json.loads(result.read_text())
    if tool == "iket":
        written = sum(path.stat().st_size for path in (folder / "iket" / "iket").rglob("*") if path.is_file())
        if written < LEAST:
            found["problems"].append(f"run-iket wrote {written:,} bytes: it recorded next to nothing")
    return found


def failure_lines(output: str, folder: Path) -> list[str]:
    """The last lines of a failed run's output, and of each log in its folder."""
    logs = {path.name: path.read_text(errors="replace") for path in sorted(folder.rglob("*.log"))}
    lines = [f"{name}: {line}" for name, text in logs.items() for line in text.splitlines()[-LOG_LINES:]]
    return [line for line in (*lines, *output.splitlines()[-LOG_LINES:]) if line.strip()]


def form(name: str, folder: Path) -> Any:
    """The example's module, annotated by FORMS. CuTe reads the source of its functions from files."""
    path = folder / f"gemm_{name}.py"
    path.write_text(FORMS[name](SOURCE.read_text()))
    return fresh(path)


def launched(tool: str, size: int, rounds: int) -> dict[str, Any]:
    """Times in us of each kind of launch, and of the kernel without annotations in the same rounds; and the device.

    A sleeping kernel precedes every launch: it hides the launch's latency, and keeps the GPU cool and its clock high.
    CUDA events measure the time on the GPU. cuBLAS is not called: IKET 4.8.1 cannot read one of its modules, and ends
    the process at its first launch.
    """
    import torch
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack
    from gpu_time import microseconds

    import kscope

    folder = Path(tempfile.mkdtemp(prefix="kscope-bench-"))
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)]

    def compiled(name: str) -> Callable[[], None]:
        module = form(name, folder)
        stream = module.driver.CUstream(torch.cuda.current_stream().cuda_stream)
        made = cute.compile(module.matmul, *tensors, blocks, stream)
        return lambda: made(*tensors, stream)

    launches = {BARE: compiled("bare")}
    if tool == "kscope":
        launches["kscope, disabled"] = compiled("kscope")
        kscope.enable(records=SIZES[size])
        prepared = compiled("kscope")
        launches |= {"kscope, at rest": prepared, "kscope, recording": prepared}
    else:
        launches["IKET, recording"] = compiled("iket")
    bare = launches.pop(BARE)
    times: dict[str, list[float]] = {name: [] for name in launches}
    beside: dict[str, list[float]] = {name: [] for name in launches}
    problems: tuple[Any, ...] = ()
    for name, launch in launches.items():
        session = kscope.profile(records=SIZES[size], pool=POOL) if name == "kscope, recording" else None
        with session or nullcontext():
            for number in range(rounds + 3):
                took = {}
                for kind in (BARE, name) if number % 2 else (name, BARE):
                    with session.paused() if session is not None and kind == BARE else nullcontext():
                        took[kind] = microseconds(bare if kind == BARE else launch, asleep=ASLEEP[size])
                if number >= 3:
                    times[name].append(took[name])
                    beside[name].append(took[BARE])
        problems += session.trace.problems if session is not None else ()
    some = slice(0, size, size // ROWS)
    expected = a[some].cpu().float() @ b.cpu().float().T
    torch.testing.assert_close(c[some].cpu().float(), expected, rtol=1e-2, atol=1e-1)
    lost = [problem.text for problem in problems if problem.kind not in EXPECTED]
    return {"device": torch.cuda.get_device_name(), "times": times, "beside": beside, "problems": lost}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(launched(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]))))
