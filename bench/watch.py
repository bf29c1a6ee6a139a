"""Latency of `kscope watch`: from the start of its process to its first complete verdict. Needs no GPU.

    python bench/watch.py [--blocks 264] [--runs 20] [--pool 256]

The simulator's kernel leaves 32 warps of each block unfinished, in a pool of --pool MiB: 264 blocks have as many warps
as 132 SMs hold. The table has the parts of an answer's time, of `kscope watch FILE` and `--once`, and the processes'
CPU time, which depends less on other load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT), str(ROOT / "frontends"), str(ROOT / "runtime")]
sys.path[:0] = PATHS
import kscope  # noqa: E402
import kscope_sim  # noqa: E402
from kscope.capture.pools import pool_folder  # noqa: E402

ITERATIONS, WARPS = 4, 32
START = "from kscope.__main__ import run; run()"
"""The installed command."""
STEPS = r"""
import sys, time
began, cpu = time.perf_counter(), time.process_time()
import kscope.cli.watch
from kscope.cli import parser
options = parser("watch").parse_args(["watch", "--once", sys.argv[1]])
loaded, cpu_loaded = time.perf_counter(), time.process_time()
options.command(options)
print(loaded - began, cpu_loaded - cpu, time.perf_counter() - loaded, time.process_time() - cpu_loaded, file=sys.stderr)
print(len(sys.modules), "numpy" in sys.modules, file=sys.stderr)
"""
"""Prints seconds, and seconds of CPU time, of the imports and of the answer after them; and the number of modules."""
Times = tuple[float, float]
"""Seconds, and seconds of CPU time."""


def hanging(warp: kscope_sim.Warp) -> None:
    """A ring of slots that no warp empties."""
    kscope.role("producer" if warp.index == 0 else "consumer")
    for iteration in range(ITERATIONS):
        with kscope.region("load" if warp.index == 0 else "multiply", value=iteration):
            warp.work(100)
    with kscope.region("wait_empty" if warp.index == 0 else "wait_full", value=ITERATIONS + warp.block[0] % 3):
        warp.trap()


def answered(*arguments: str) -> Times:
    """From the start of `kscope watch` until it has written a whole verdict, which ends with an empty line; with --once
    until it has ended.
    """
    lines = list[str]()
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", START, "watch", *arguments], env=_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines += iter(process.stdout.readline, "\n")
        if "--once" not in arguments:
            took = time.perf_counter() - began
            process.kill()
        _, _, used = os.wait4(process.pid, 0)
        if "--once" in arguments:
            took = time.perf_counter() - began
        process.returncode = 0
    if not any("have not finished" in line for line in lines):
        raise SystemExit(f"kscope watch did not answer: {''.join(lines)}")
    return took, used.ru_utime + used.ru_stime


def steps(pool: Path) -> tuple[Times, Times, str]:
    """The imports, the answer after them, and what was imported."""
    command = [sys.executable, "-c", STEPS, str(pool)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
    *times, modules, has_numpy = done.stderr.split()
    load, load_cpu, answer, answer_cpu = map(float, times)
    return (load, load_cpu), (answer, answer_cpu), f"{modules} modules{', with numpy' * (has_numpy == 'True')}"


def interpreter() -> Times:
    """An interpreter that starts and ends."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", "pass"], env=_environment()) as process:
        _, _, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
        process.returncode = 0
    return took, used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}


def _ms(seconds: Sequence[float]) -> str:
    return " ".join(f"{1e3 * one:8.1f}" for one in (min(seconds), statistics.median(seconds), max(seconds)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=264)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pool", type=int, default=256, help="MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kscope-watch-") as folder:
        os.environ[pool_folder.VARIABLE] = folder
        with kscope.profile(survive="shm", pool=options.pool << 20):
            kscope_sim.launch(hanging, grid=options.blocks, block=32 * WARPS, sms=132)
            (pool,) = Path(folder).glob("*.pool")
            runs = range(options.runs)
            rows = {
                "kscope watch FILE, its first answer": [answered(str(pool)) for _ in runs],
                "kscope watch --once FILE": [answered("--once", str(pool)) for _ in runs],
                "an interpreter alone": [interpreter() for _ in runs],
            }
            parts = [steps(pool) for _ in runs]
    rows["imports"] = [one[0] for one in parts]
    rows["the answer, after imports"] = [one[1] for one in parts]
    print(f"{options.blocks * WARPS:,} warps, {options.pool} MiB, {parts[0][2]}")
    print(f"{'ms: least, median, most':36} {'':18}time {'':18}CPU time")
    for name, times in rows.items():
        print(f"{name:36} {_ms([one[0] for one in times])} {_ms([one[1] for one in times])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
