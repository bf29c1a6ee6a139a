"""Slabs of many warps with given clocks and times, all at once; and what a command needs, in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import synth

from kscope.capture import layout
from kscope.capture.layout import Kind


def slabs(
    clock: np.ndarray, timer: np.ndarray, kernel: np.ndarray, grid_id: np.ndarray, block: np.ndarray, blocks: int,
    names: np.ndarray, cut: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Lines of one slab per warp, in which one record follows another.

    Args:
        clock, timer: (w, 2) %clock64 and %globaltimer of the first and the last instruction of each warp.
        kernel, grid_id, block: (w,) of each warp.
        blocks: of each launch.
        names: (w, r) names of the records.
        cut: (w, r + 1) %clock64 between the records.
    """
    warps, records = names.shape
    log2 = max(layout.MIN_LOG2_RECORDS, (records - 1).bit_length())
    lines = np.zeros((warps, layout.slab_lines(log2), 16), np.uint32)
    rows = lines[:, layout.HEADER_LINES :].reshape(warps, 1 << log2, 4)[:, :records]
    rows[..., 0], rows[..., 2] = cut[:, :-1] + 2, cut[:, 1:] - 2
    known, which = np.unique(names, return_inverse=True)
    ids = np.array([layout.record_id(str(name), Kind.SPAN) for name in known], np.uint32)
    rows[..., 1] = ids[which.reshape(names.shape)]
    head = np.zeros(warps, layout.HEADER)
    head["magic"], head["epoch"], head["kernel"], head["grid_id"] = layout.HEADER_WORD, synth.EPOCH, kernel, grid_id
    head["ctaid_x"], head["nctaid_x"], head["nctaid_yz"], head["ntid"] = block, blocks, 1 | 1 << 16, 31
    head["place"] = log2 << layout.LOG2_SHIFT | block % 132 << layout.SMID_SHIFT
    head["start_clock"], head["end_clock"] = clock.T
    head["start_time"], head["end_time"] = timer.T
    head["start_width"] = head["end_width"] = 10
    head["count"] = records
    words = head.view(np.uint32).reshape(warps, 32)
    head["check"] = layout.header_check(words)
    head["done"] = np.uint32(layout.DONE_WORD) ^ head["count"] ^ head["end_clock"].astype(np.uint32)
    lines[:, : layout.HEADER_LINES] = words.reshape(warps, 2, 16)
    return lines.reshape(-1, 16)


class Cost(NamedTuple):
    """What a command took: wall time and CPU time (user and system, all processes) in seconds; and the sum of its
    processes' peak memory in bytes, which is more than they had at any one time, as they share pages."""

    wall: float
    cpu: float
    memory: int


def command(*arguments: str) -> tuple[str, Cost]:
    """Run `python -m kscope` with arguments: what it printed, and what it took.

    Raises:
        RuntimeError: it failed; the text is what it printed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begun = os.times(), time.monotonic()
    done, peaks = threading.Event(), dict[int, int]()
    pipe = subprocess.PIPE
    whole = [sys.executable, "-m", "kscope", *arguments]
    with subprocess.Popen(whole, stdout=pipe, stderr=pipe, text=True, env=environment) as process:

        def watch() -> None:
            while not done.wait(0.02):
                peaks.update({pid: size for pid in _tree(process.pid) if (size := _peak(pid))})

        watcher = threading.Thread(target=watch)
        watcher.start()
        out, err = process.communicate()
        wall = time.monotonic() - begun
        done.set()
        watcher.join()
    after = os.times()
    if process.returncode:
        raise RuntimeError(f"kscope {' '.join(arguments)}: exit code {process.returncode}\n{err}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return out, Cost(wall, used, sum(peaks.values()))


def _tree(pid: int) -> Sequence[int]:
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in _tree(int(child)))]


def _peak(pid: int) -> int:
    """The most memory that a process has had so far, in bytes; 0 if it has ended."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        return 0
