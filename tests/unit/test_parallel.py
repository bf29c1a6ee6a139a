"""Work on all cores: in order, complete, and with its errors; and numbers in sentences."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import synth

from kscope import decode, native
from kscope.capture.capture import Capture
from kscope.util import parallel
from kscope.util.parallel import CHUNK, chunks, each, filled, least, map_ahead, shares
from kscope.util.text import counted


def test_results_come_in_order_and_only_a_little_ahead_of_the_reader() -> None:
    begun: list[int] = []

    def square(number: int) -> int:
        begun.append(number)
        return number * number

    results = map_ahead(square, range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(begun) < 100
    assert list(results) == [number * number for number in range(3, 1000)]


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        each(lambda number: 1 // number, [1, 0, 2])
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda number: 1 // number, [1, 0, 2]))


def test_a_process_that_shares_the_cores_works_in_one_thread() -> None:
    program = "from kscope import native; from kscope.util import parallel; parallel.one_thread()"
    shown = f"{program}; print(native.threads(), parallel.workers())"
    assert subprocess.check_output([sys.executable, "-c", shown], text=True).split() == ["1", "1"]


@pytest.mark.parametrize("total", [0, 1, 9, 10, 11, 1000])
def test_chunks_cover_a_column_once(total: int) -> None:
    assert [index for part in chunks(total, 10) for index in range(total)[part]] == list(range(total))


def test_counted_nouns_are_pluralized() -> None:
    assert [counted(1, "record"), counted(1234, "warp"), counted(2, "launch")] == [
        "1 record",
        "1,234 warps",
        "2 launches",
    ]


@pytest.mark.parametrize("total", [0, 1, CHUNK, CHUNK + 1, 10 * CHUNK + 7])
def test_a_column_is_filled_slice_by_slice(total: int) -> None:
    numbers = np.arange(total)
    assert np.array_equal(filled(total, np.int32, lambda part: numbers[part] * 3), numbers * 3)


@pytest.mark.parametrize("total", [0, 1, 1_000_000, 100_000_000])
def test_shares_cover_everything_once_and_fit_a_cache(total: int) -> None:
    found = shares(total)
    assert [part.start for part in found] == [0, *(part.stop for part in found)][: len(found)]
    assert sum(part.stop - part.start for part in found) == total
    assert all(part.stop - part.start <= 1 << 18 for part in found)


def test_calls_within_same_threads_start_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "workers", lambda: 2)
    names = set[str]()

    def work(_: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            names.add(threading.current_thread().name)
        parallel.each(int, range(2))  # its parts do not wait for the thread that runs it

    with parallel.same_threads():
        for _ in range(20):
            parallel.each(work, range(4))
    # one at a time is needed, and a second one starts if the first is not idle yet
    assert len(names) <= 2 and not {thread.name for thread in threading.enumerate()} & names


def test_work_is_shared_with_the_calling_thread_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "workers", lambda: 2)
    both, done = threading.Barrier(2), list[tuple[int, bool]]()

    def work(item: int) -> None:
        if item < 2:
            both.wait(10)  # two threads have an item each
        done.append((item, threading.current_thread() is threading.main_thread()))

    parallel.each(work, range(100))
    assert sorted(item for item, _ in done) == list(range(100)) and {mine for _, mine in done} == {True, False}


def test_threads_that_took_nothing_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "workers", lambda: 2)
    release = threading.Event()
    with parallel.same_threads():
        parallel._kept.pool.submit(release.wait)
        parallel._kept.pool.submit(release.wait)  # both of the pool's threads are busy
        done = list[int]()
        parallel.each(done.append, range(10))
        release.set()
    assert done == list(range(10))


@pytest.mark.skipif(not native.available(), reason="numpy's passes also read ahead, with other threads")
def test_decoding_starts_its_threads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    class Counted(ThreadPoolExecutor):
        def __init__(self, most: int) -> None:
            pools.append(most)
            super().__init__(most)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Counted)
    monkeypatch.setattr(parallel, "workers", lambda: 2)
    monkeypatch.setattr(parallel, "CHUNK", 4)
    lines = synth.bulk(64, 4)
    capture = Capture(synth.EPOCH, (synth.device(lines, tick_ns=32),), (synth.module(("load",)),))
    assert len(decode(capture).warps) == 64
    assert pools.count(2) == 1


@pytest.mark.parametrize("groups", [1, 130, 2 * CHUNK])
def test_the_least_of_each_group_is_that_of_one_loop(groups: int) -> None:
    random = np.random.default_rng(groups)
    index, values = random.integers(0, groups, 5 * CHUNK + 7), random.integers(-(1 << 62), 1 << 62, 5 * CHUNK + 7)
    index[index == groups - 1] = 0  # one group stays empty
    expected = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(expected, index, values)
    assert (least(groups, index, values) == expected).all()


def test_nothing_has_no_least() -> None:
    nothing = np.zeros(0, np.int64)
    assert least(2, nothing, nothing).tolist() == [np.iinfo(np.int64).max] * 2 and not len(least(0, nothing, nothing))
