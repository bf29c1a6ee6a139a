"""Pairs by order beside pairs by %gridid, which CUPTI's activity records carry and Kineto's files do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kscope

from .checks import doubts, run

Table = Callable[[str, str], None]
LAUNCHES = 12_000

pytest.importorskip("triton")


def test_of_ten_thousand_launches_none_is_paired_wrongly(tmp_path: Path, table: Table) -> None:
    done = run([sys.executable, "-m", "gpu.activity", str(tmp_path), str(LAUNCHES)], timeout=200)
    assert done.returncode == 0, done.stderr
    trace = kscope.load(tmp_path / "run.kscope")
    assert not doubts(trace)
    exact, guessed = (kscope.merge(trace, tmp_path / f"{name}.json") for name in ("exact", "withheld"))
    mine = [launch.grid_id for launch in trace.launches]
    theirs = exact.kernels.grid_id[exact.pairs.kernel].tolist()
    assert mine == theirs and len(mine) >= 10_000
    assert (guessed.kernels.grid_id == -1).all()
    wrong = int((guessed.pairs.kernel != exact.pairs.kernel).sum())
    left, enqueued = guessed.pairs.unsure, guessed.pairs.by_order_of_enqueue
    counts = f"{len(mine):,}, {wrong} wrongly, {left} left out, {enqueued} by order of enqueue"
    table("launches paired by order, beside %gridid", f"{counts}; {guessed.bounds[0]}")
    assert wrong == 0 and guessed.pairs.unsure == 0
