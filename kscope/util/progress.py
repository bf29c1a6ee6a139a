"""A bar for work that takes long: rich's or tqdm's where one is installed, else a line of percents.

What lives here: the choice. What does not: how far the work is; formats call their `step` with the
number of records that they have done since they last did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

Step = Callable[[int], object]


def no_progress(count: int) -> None:
    """The step of work that nobody watches."""


@contextmanager
def progress_bar(total: int, what: str) -> Generator[Step]:
    """A bar on stderr over `total` records, gone when the work is done."""
    if find_spec("rich") is not None:
        console = import_module("rich.console").Console(stderr=True)
        with import_module("rich.progress").Progress(console=console, transient=True) as shown:
            task = shown.add_task(what.replace("[", r"\["), total=total)
            yield lambda count: shown.advance(task, count)
    elif find_spec("tqdm") is not None:
        tqdm = import_module("tqdm").tqdm
        with tqdm(total=total, desc=what, unit=" records", unit_scale=True, leave=False, file=sys.stderr) as counter:
            yield counter.update
    else:
        yield _percents(total, what)
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _percents(total: int, what: str) -> Step:
    done = shown = 0

    def step(count: int) -> None:
        nonlocal done, shown
        done += count
        percent = 100 * done // max(1, total)
        if percent > shown:
            shown = percent
            print(f"\r{what}: {min(percent, 100)} %", end="", file=sys.stderr, flush=True)

    return step
