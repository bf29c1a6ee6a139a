"""A progress bar: rich's or tqdm's if installed, else a percentage; a pulse for work of unknown length. Writers call
their `step` with the number of records processed since the last call.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

Step = Callable[[int], object]


def no_progress(count: int) -> None:
    """No-op progress callback."""


@contextmanager
def progress_bar(total: int, label: str) -> Generator[Step]:
    """Show a progress bar on stderr.

    Args:
        total: number of records.
        label: text next to the bar.

    Yields:
        The step callback.
    """
    if find_spec("rich") is not None:
        console = import_module("rich.console").Console(stderr=True)
        with import_module("rich.progress").Progress(console=console, transient=True) as shown:
            task = shown.add_task(label.replace("[", r"\["), total=total)
            yield lambda count: shown.advance(task, count)
    elif find_spec("tqdm") is not None:
        tqdm = import_module("tqdm").tqdm
        with tqdm(total=total, desc=label, unit=" records", unit_scale=True, leave=False, file=sys.stderr) as counter:
            yield counter.update
    else:
        yield _percents(total, label)
        print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def pulse(label: str) -> Generator[None]:
    """Show on stderr that work of unknown length is under way: rich's moving bar if installed, else its seconds.

    Args:
        label: text next to the bar.
    """
    if find_spec("rich") is not None:
        console = import_module("rich.console").Console(stderr=True)
        with import_module("rich.progress").Progress(console=console, transient=True) as shown:
            shown.add_task(label.replace("[", r"\["), total=None)
            yield
        return
    done = threading.Event()
    writer = threading.Thread(target=_seconds, args=(label, done), daemon=True)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _seconds(label: str, done: threading.Event) -> None:
    start = time.monotonic()
    while True:
        print(f"\r{label}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        if done.wait(1):
            return


def _percents(total: int, label: str) -> Step:
    done = shown = 0

    def step(count: int) -> None:
        nonlocal done, shown
        done += count
        percent = 100 * done // max(1, total)
        if percent > shown:
            shown = percent
            print(f"\r{label}: {min(percent, 100)} %", end="", file=sys.stderr, flush=True)

    return step
