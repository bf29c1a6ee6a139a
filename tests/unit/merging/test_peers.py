"""Arrows between ranks: a record's value is the rank that it signals or waits for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import synth
from jobs import REDUCE, Job
from replay import replay
from synth import Rec

from kscope.capture.layout import Kind
from kscope.cli import main
from kscope.errors import UsageError
from kscope.export.timeline import Timeline, timeline
from kscope.export.view_options import view
from kscope.merging.ranks.timeline import merge_ranks


class Ring(Job):
    """In each collective a rank signals the next one, waits for the one before, and exchanges with its neighbor."""

    def _launch(self, rank: int, step: int, begin: float, end: float, kernel: int) -> list[np.ndarray]:
        if kernel != REDUCE:
            return super()._launch(rank, step, begin, end, kernel)
        times = [self.timer(rank, true) for true in (begin, end)]
        first, last = (round(true * 1.98) for true in (begin, end))
        after, before = (rank + 1) % self.ranks, (rank - 1) % self.ranks
        records = [
            Rec("signal", first + 10, first + 200, Kind.SPAN_VALUE, after),
            Rec("wait", first + 210, last - 300, Kind.SPAN_VALUE, before),
            Rec("exchange", first + 5, last - 200, Kind.SPAN_VALUE, rank ^ 1),
        ]
        return [
            synth.slab(
                records, log2=3, start=first, end=last, start_time=times[0] // 32 * 32, end_time=times[1] // 32 * 32,
                kernel=kernel, grid_id=2 * step + 2,
            )
        ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    Ring(4, steps=6).save(made)
    return made


def drawn(folder: Path, *pairs: tuple[str, str]) -> Timeline:
    return timeline(merge_ranks(sorted(folder.glob("*.kscope"))).trace, view=view(peers=pairs))


def ends(made: Timeline) -> list[tuple[int, int, str, str]]:
    """(from rank, to rank, from region, to region) of each arrow, after a look that they are of one collective."""
    trace, flows = made.trace, made.flows
    names, device = trace.region_names()[trace.region], trace.warps.device[trace.track]
    ordinal = np.zeros(len(trace.launches), np.int64)
    for rank in range(4):
        own = [at for at, one in enumerate(trace.launches) if one.kernel == "my_all_reduce"
               and int(trace.warps.device[np.flatnonzero(trace.warps.launch == at)[0]]) == rank]  # fmt: skip
        ordinal[own] = np.arange(len(own))
    step = ordinal[trace.warps.launch[trace.track]]
    assert (step[flows.source] == step[flows.target]).all() and flows.at_end.all()
    return [
        (int(device[a]), int(device[b]), str(names[a]), str(names[b]))
        for a, b in zip(flows.source.tolist(), flows.target.tolist(), strict=True)
    ]


def test_each_wait_has_an_arrow_from_its_peer_s_signal(folder: Path) -> None:
    found = ends(drawn(folder, ("signal", "wait")))
    assert len(found) == 4 * 6
    assert {(a, b) for a, b, _, _ in found} == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert {(one, other) for _, _, one, other in found} == {("signal", "wait")}


def test_of_an_exchange_the_later_one_has_the_arrow(folder: Path) -> None:
    made = drawn(folder, ("exchange", "exchange"))
    found = ends(made)
    assert len(found) == 2 * 6 and all(a == b ^ 1 for a, b, _, _ in found)
    assert (made.begin[made.flows.source] > made.begin[made.flows.target]).all()


def test_a_wait_whose_peer_did_not_record_is_counted(folder: Path) -> None:
    trace = merge_ranks(sorted(folder.glob("*.kscope")), ranks=[0, 1, 2]).trace
    made = timeline(trace, view=view(peers=[("signal", "wait")]))
    assert len(made.flows) == 2 * 6
    [problem] = [one for one in made.problems if one.kind == "unlinked"]
    assert problem.count == 6 and "6 records of 'wait' without an arrow: no 'signal' of its peer" in problem.text


def test_the_command_draws_them_across_processes(folder: Path, tmp_path: Path) -> None:
    for name in ("x.json", "x.pftrace"):
        assert main(["merge", str(folder), "-o", str(tmp_path / name), "--peer", "signal", "wait"]) == 0
    events = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    begun = {one["id"]: one["pid"] for one in events if one["ph"] == "s"}
    ended = {one["id"]: one["pid"] for one in events if one["ph"] == "f"}
    assert len(begun) == 24 and begun.keys() == ended.keys()
    assert all(begun[one] != ended[one] for one in begun)
    found = replay(tmp_path / "x.pftrace")
    assert len(found.arrows) == 24 and not found.open_arrows
    assert main(["merge", str(folder), "-o", str(tmp_path / "y.json"), "--peer", "dot", "wait"]) == 2


def test_regions_without_values_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no region 'dot' with value="):
        drawn(folder, ("dot", "wait"))
