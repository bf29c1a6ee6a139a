"""Work on slices of columns, on all cores: numpy releases the GIL.

What lives here: the pool. What does not: any work.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK = 1 << 15
"""Records whose columns and temporaries stay in a core's second-level cache."""


def workers() -> int:
    """Threads that are worth having here."""
    return min(os.cpu_count() or 1, 8)


def is_shut_down(pool: Executor) -> bool:
    """Whether the pool takes no work any more: the interpreter ends, and what runs now is called by atexit."""
    try:
        pool.submit(int)
    except RuntimeError:
        return True
    return False


def submit(pool: Executor, work: Callable[[Item], Result], item: Item) -> Future[Result]:
    """The work on an item, in the pool; at once where that is shut down."""
    if not is_shut_down(pool):
        return pool.submit(work, item)
    done: Future[Result] = Future()
    done.set_result(work(item))
    return done


def each(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Run the work on every item; raises what the first failing one raised."""
    with ThreadPoolExecutor(workers()) as pool:
        for _ in map(work, items) if is_shut_down(pool) else pool.map(work, items):
            pass


def map_ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in order, made at most two per thread ahead of the reader, so that they do not pile up."""
    jobs: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers()) as pool:
        if is_shut_down(pool):
            yield from map(work, items)
            return
        for item in items:
            jobs.append(pool.submit(work, item))
            if len(jobs) > 2 * workers():
                yield jobs.popleft().result()
        while jobs:
            yield jobs.popleft().result()


def chunks(total: int, size: int | None = None) -> list[slice]:
    """Slices of `size`, else CHUNK, that cover a column."""
    size = size or CHUNK
    return [slice(a, min(a + size, total)) for a in range(0, total, size)]
