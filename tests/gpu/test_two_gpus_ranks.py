"""Two processes with a GPU each that meet in a barrier through peer memory: `kscope ranks` finds the late one.

make gpu PYTEST_ARGS='-k two_gpus_ranks'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kscope.merging import seats
from kscope.merging.joined import merge_ranks
from kscope.merging.skew import report

from .checks import run

Table = Callable[[str, str], None]

pytestmark = pytest.mark.usefixtures("two_gpus")


def test_a_delay_of_50_us_on_one_rank_is_named_with_its_region(tmp_path: Path, table: Table) -> None:
    done = run([sys.executable, "-m", "gpu.ranks_process", str(tmp_path)], timeout=200)
    assert done.returncode == 0, done.stderr
    files = seats.captures(tmp_path)
    found = report(seats.seats(files), ["peer_barrier"])
    delayed = found.arrivals[1::2]
    assert {one.last for one in delayed} == {1}
    assert all(one.sure for one in delayed)
    causes = [one.cause for one in delayed if one.cause is not None]
    assert {(one.kernel, one.region) for one in causes} == {("compute", "delayed")}
    median = float(np.median([one.more_ns for one in causes]))
    assert 40_000 < median < 60_000
    table("two ranks, bound of the clocks", f"\N{PLUS-MINUS SIGN}{found.bound_ns:,.0f} ns")
    table("two ranks, a planted 50 us", f"{median:,.0f} ns more in the region, skew {delayed[0].skew_ns:,.0f} ns")
    merged = merge_ranks(files, globs=["peer_barrier"])
    assert len(merged.trace.launches) == 2 * len(found.arrivals) * 2
