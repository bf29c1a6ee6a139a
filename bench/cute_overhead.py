"""What recording costs a whole CuTe DSL kernel: kscope, and NVIDIA's IKET, on the same matmul with the same regions.

    python bench/cute_overhead.py [--rounds 30] [--size 4096]

The kernel is examples/cute_gemm.py. Three processes: kscope's in one; IKET's in run-iket, which runs it twice. In each,
the kernel without any annotation takes turns with the others, every launch behind a matmul that hides its latency, and
CUDA events tell the time on the GPU. What lives here: this measurement, in under a minute on an H200. What does not:
the kernel. Needs an sm_90 GPU, torch, and nvidia-cutlass-dsl 4.6 or later.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--within", choices=("kscope", "iket"), help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.within is not None:
        options.result.write_text(json.dumps(measure(options.within, options.size, options.rounds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = {tool: within(tool, options, Path(folder)) for tool in ("kscope", "iket")}
    show(rows, options.size)


def within(tool: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The measurement in a process of its own, in run-iket where it is IKET's."""
    result = folder / f"{tool}.json"
    command = [__file__, "--within", tool, "--result", str(result), "--size", str(options.size)]
    command = [sys.executable, *command, "--rounds", str(options.rounds)]
    if tool == "iket":
        run = "from iket.cli.main import entrypoint; entrypoint()"
        where, quiet = ["--clobber", "--output-dir", str(folder / "iket")], ["--postprocess", "none", "--no-keep"]
        command = [sys.executable, "-c", run, *where, "profile", *quiet, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not result.exists():
        return {"failed": (done.stderr or done.stdout).strip().splitlines()[-3:]}
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def form(name: str, folder: Path) -> Any:
    """The example's module, annotated as FORMS says: CuTe reads the source of its functions from files."""
    path = folder / f"gemm_{name}.py"
    path.write_text(FORMS[name](SOURCE.read_text()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(tool: str, size: int, rounds: int) -> dict[str, Any]:
    """Times in us of each kind of launch, in turns; and the device."""
    import torch
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

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

    launches = {"without annotations": compiled("bare")}
    if tool == "kscope":
        launches["kscope, disabled"] = compiled("kscope")
        kscope.enable(records=1024)
        prepared = compiled("kscope")
        launches |= {"kscope, at rest": prepared, "kscope, recording": prepared}
    else:
        launches["IKET, recording"] = compiled("iket")
    times: dict[str, list[float]] = {name: [] for name in launches}
    with kscope.profile(records=1024) if tool == "kscope" else nullcontext() as prof:
        for turn in range(rounds + 3):
            for name, launch in launches.items():
                with nullcontext() if prof is None or name == "kscope, recording" else prof.paused():
                    took = timed(launch, a, b)
                if turn >= 3:
                    times[name].append(took)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    problems = prof.trace.problems if prof is not None else ()
    lost = [problem.text for problem in problems if problem.kind != "plain"]  # one was launched plain on purpose
    return {"device": torch.cuda.get_device_name(), "times": times, "problems": lost}


def timed(launch: Callable[[], None], a: Any, b: Any) -> float:
    """Duration on the GPU in us; the launch is queued while a matmul runs."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.matmul(a, b)
    begin.record()
    launch()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1000


def show(rows: dict[str, dict[str, Any]], size: int) -> None:
    """A table, each row against the kernel without annotations of its own process."""
    for tool, row in rows.items():
        if "failed" in row:
            print(f"{tool}: did not run: {' | '.join(row['failed'])}")
            continue
        print(f"{row['device']}, {size} x {size} x {size} in fp16, examples/cute_gemm.py, {tool}'s process")
        base = statistics.median(row["times"]["without annotations"])
        for name, times in row["times"].items():
            middle = statistics.median(times)
            print(f"  {name:<22} {middle:8.1f} us  {(middle / base - 1) * 100:+6.2f} %   (fastest {min(times):.1f} us)")
        for text in row["problems"]:
            print(f"  problem: {text}")


if __name__ == "__main__":
    main()
