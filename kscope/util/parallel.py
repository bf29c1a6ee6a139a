"""Work on slices of columns, on all cores: numpy releases the GIL."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .. import native

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK, _LARGEST = 1 << 15, 1 << 18
"""Records per chunk: their columns and temporaries fit a core's L2 cache. The largest share of a few columns."""


_most = 8
_cores = cache(os.cpu_count)
_kept = threading.local()


def workers() -> int:
    """Number of threads to use."""
    return min(_cores() or 1, _most)


def one_thread() -> None:
    """Let this process work in one thread from now on: it is one of several that share the cores."""
    global _most
    _most = 1
    native.one_thread()


def is_shut_down(pool: Executor) -> bool:
    """True if the pool refuses work, which happens in atexit handlers while the interpreter shuts down."""
    try:
        pool.submit(int)
    except RuntimeError:
        return True
    return False


def submit(pool: Executor, work: Callable[[Item], Result], item: Item) -> Future[Result]:
    """Submit `work(item)` to the pool, or run it immediately if the pool is shut down."""
    if not is_shut_down(pool):
        return pool.submit(work, item)
    done: Future[Result] = Future()
    done.set_result(work(item))
    return done


@contextmanager
def same_threads() -> Generator[None]:
    """Within it, all calls of each() by this thread share their worker threads.

    Starting eight of them takes about 2 ms, and decoding calls each() about 30 times.
    """
    if getattr(_kept, "pool", None) is not None:
        yield
        return
    with ThreadPoolExecutor(workers()) as _kept.pool:
        try:
            yield
        finally:
            _kept.pool = None


def each(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Run `work` on every item in parallel, on this thread too; an exception is raised.

    It waits only for threads that have taken an item: short work is done before most of them wake.
    """
    left = deque(items)
    threads = min(len(left), workers())

    def take() -> None:
        while left:
            try:
                item = left.popleft()
            except IndexError:  # another thread took it
                return
            work(item)

    if threads < 2:
        take()
        return
    with same_threads():
        others = _submitted(_kept.pool, take, threads - 1)
        try:
            take()
        finally:
            left.clear()
            begun = [other for other in others if not other.cancel()]
            wait(begun)
        for other in begun:
            other.result()


def _submitted(pool: Executor, work: Callable[[], None], times: int) -> list[Future[None]]:
    """Submit the work so many times, or less often if the pool takes no more."""
    found: list[Future[None]] = []
    with suppress(RuntimeError):  # it is shut down, or no thread can be started
        for _ in range(times):
            found.append(pool.submit(work))
    return found


def filled(total: int, dtype: npt.DTypeLike, work: Callable[[slice], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """(total,) the column whose slices work() returns, in parallel."""
    found = np.empty(total, dtype)

    def fill(part: slice) -> None:
        found[part] = work(part)

    each(fill, shares(total))
    return found


def least(count: int, index: npt.NDArray[np.integer], values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(count,) the least of the values (n,) with each index (n,) below `count`, in parallel; the largest int64 for
    indices without values.
    """
    parts = shares(len(index))
    if count * len(parts) > len(index):  # the tables would take most of the time
        parts = [slice(0, len(index))]
    found = np.full((len(parts), count), np.iinfo(np.int64).max)

    def reduce(at: int) -> None:
        np.minimum.at(found[at], index[parts[at]], values[parts[at]])

    each(reduce, range(len(parts)))
    return np.asarray(found.min(axis=0, initial=np.iinfo(np.int64).max), np.int64)


def map_ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map in parallel and in order, at most two results per thread ahead of the consumer, to bound memory."""
    if workers() < 2:
        yield from map(work, items)
        return
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
    """Slices that cover `total` elements, `size` (default CHUNK) each."""
    size = size or CHUNK
    return [slice(a, min(a + size, total)) for a in range(0, total, size)]


def shares(total: int) -> list[slice]:
    """Slices that cover `total` elements, for work that takes about as long as handing it to a thread: as few as keep
    all threads busy.
    """
    return chunks(total, min(max(CHUNK, -(-total // (2 * workers()))), _LARGEST))
