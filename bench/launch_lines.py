"""Time that profile(launch_stacks=True) adds to a launch, on the host and without a GPU.

    PYTHONPATH=.:frontends:tests python bench/launch_lines.py [--rounds 2000]

A round measures, in random order, a launch without recording, one recorded in C, and one recorded in Python, after
reading memory of a given size, so that caches are cold up to that size. Prints medians of the differences from the
launch without recording, and their 95 % confidence intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import kscope_sim
from kscope import native
from kscope.instrument.launch_lines import LaunchLines

READ = {"nothing": 0, "256 KiB": 256 << 10, "2 MiB": 2 << 20, "16 MiB": 16 << 20}
FRAMES = (0, 8, 16)
"""Functions of a package between the line and the launcher."""
KERNEL = 7 << 60
"""Ids have 64 bits; Python has no small object for them."""
LINE = 64
"""Bytes of a cache line."""
RESAMPLED = 1000
LAUNCHER = """
def item(kernel):
    return run(kernel)

def run(kernel):
    return launch(kernel)

def launch(kernel):
    return called_by_the_driver(kernel)

def called_by_the_driver(kernel):
    return launched(kernel)

def launched(kernel):
    add(kernel)
"""
Launch = Callable[[int], None]
Times = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    memory = np.ones(max(READ.values()), np.uint8)
    for frames in FRAMES:
        launches = {"off": launcher(frames, enabled=False), "Python": launcher(frames, enabled=True)}
        if native.module() is not None:
            launches["C"] = launcher(frames, enabled=True, compiled=True)
        print(f"\nThrough {frames} functions of a package:\n")
        columns = ["read before a launch", "launch and work, us", *(f"{one} adds, us" for one in added(launches))]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for text, size in READ.items():
            took = measured(launches, memory[:size:LINE], rounds)
            found = " | ".join(shown((took[one] - took["off"]) / 1000) for one in added(launches))
            print(f"| {text} | {np.median(took['off']) / 1000:.1f} | {found} |")
        for name in added(launches):
            print(f"{name}, called again and again: {again(launches[name]) - again(launches['off']):.2f} us")


def added(launches: dict[str, Launch]) -> list[str]:
    """The launches that record."""
    return [one for one in launches if one != "off"]


def launcher(frames: int, *, enabled: bool, compiled: bool = False) -> Launch:
    """A function that calls the hook through so many functions of a package, and those of a launcher's."""
    os.environ["KSCOPE_NATIVE"] = "1" if compiled else "0"
    lines = LaunchLines()
    lines.begin(enabled)
    del os.environ["KSCOPE_NATIVE"]
    names: dict[str, Any] = {"__name__": "kscope_sim.launcher", "add": lines.add}
    exec(compile(LAUNCHER, str(Path(kscope_sim.__file__).with_name("launcher.py")), "exec"), names)
    called = names["item"]
    for _ in range(frames):
        names = {"__name__": "pack.calls", "called": called}
        exec(compile("def call(kernel):\n    return called(kernel)\n", "/site-packages/pack/calls.py", "exec"), names)
        called = names["call"]
    found: Launch = called
    return found


def measured(
    launches: dict[str, Launch], memory: npt.NDArray[np.uint8], rounds: int
) -> dict[str, npt.NDArray[np.int64]]:
    """ns of a launch and the work around it, by launcher, (rounds,)."""
    took = {name: np.zeros(rounds, np.int64) for name in launches}
    for at in range(rounds):
        for name in random.sample(list(launches), len(launches)):
            memory.sum()
            begin = time.perf_counter_ns()
            work()
            launches[name](KERNEL)
            work()
            took[name][at] = time.perf_counter_ns() - begin
    return took


TEXT = json.dumps({"shape": [128, 64, 1], "options": {"stages": 3, "warps": 8, "names": ["x", "y", None, True]}})
PATTERN = re.compile(r"(\w+)-(\d+)")
NUMBERS = np.arange(30.0)


def work() -> object:
    """About 12 us of varied code, as a launcher and a driver run it."""
    found = json.loads(TEXT)
    same = pickle.loads(pickle.dumps(found))
    total = (NUMBERS * 2 + 1).sum()
    match = PATTERN.search("a launch of kernel-128")
    date = datetime(2026, 1, 2).isoformat()
    return same, total, match, date, f"{total:.3f}", sorted(TEXT.split(",")), [str(one) for one in range(8)]


def shown(values: npt.NDArray[np.float64]) -> str:
    """The median and its 95 % confidence interval, by resampling."""
    rng = np.random.default_rng(1)
    medians = np.median(rng.choice(values, (RESAMPLED, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{np.median(values):.2f} ({low:.2f} to {high:.2f})"


def again(launch: Launch, repeat: int = 20, calls: int = 2000) -> float:
    """The least us of a launch without other code between launches."""
    took = []
    for _ in range(repeat):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            launch(KERNEL)
        took.append((time.perf_counter_ns() - begin) / calls / 1000)
    return min(took)


if __name__ == "__main__":
    main()
