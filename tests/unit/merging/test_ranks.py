"""`kscope ranks`: arrivals at collectives, from jobs with known truth and drifting clocks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
from jobs import Job
from replay import replay

from kscope.cli import main
from kscope.errors import FormatError, UsageError
from kscope.merging.ranks import gpus
from kscope.merging.ranks.clocks import align
from kscope.merging.ranks.collectives import COLLECTIVES, collective, common
from kscope.merging.ranks.gpus import RankGpu
from kscope.merging.ranks.skew import BETWEEN, RankReport, report
from kscope.merging.ranks.timeline import merge_ranks
from kscope.trace import decode


def gpus_of(job: Job) -> list[RankGpu]:
    found = []
    for rank in range(job.ranks):
        capture = job.capture(rank)
        found += gpus.of_trace(capture, decode(capture), f"step.{rank}.kscope")
    return found


def outside(job: Job, found: list[RankGpu]) -> float:
    """How far the true arrivals are outside of the intervals, on the first rank's clock, ns."""
    launches = common(found, collective())
    worst = -np.inf
    zero = launches[0]
    for rank, (gpu, mine, clock) in enumerate(zip(found, launches, align(found, launches), strict=True)):
        placed = clock.place(gpu.first[mine])
        for step in range(job.steps):
            truth = job.timer(0, job.arrive[rank, step]) - job.timer(0, job.arrive[0, step])
            seen = int(placed.time[step]) - int(found[0].first[zero[step]])
            slack = placed.half[step] + gpu.error[mine[step]] + found[0].error[zero[step]] + 2
            worst = max(worst, abs(seen - truth) - slack)
    return worst


@pytest.mark.parametrize("hosts", [1, 8])
def test_the_truth_of_64_ranks_with_drifting_clocks_is_inside(hosts: int) -> None:
    job = Job(64, hosts=hosts)
    found = gpus_of(job)
    assert outside(job, found) <= 0
    answer = report(found)
    assert answer.bound_ns < 12_000  # a collective's transfer, or the host's bracket
    for step, one in enumerate(answer.arrivals):
        true = job.arrive[:, step]
        assert abs(one.skew_ns - (true.max() - true.min())) <= one.bound_ns
        if one.sure:
            assert one.last == int(true.argmax())


def late(**more: object) -> tuple[Job, RankReport]:
    job = Job(8, hosts=2, **more)  # type: ignore[arg-type]  # the fields of Job
    return job, report(gpus_of(job))


def test_a_delay_of_50_us_in_a_region_of_one_rank_is_named() -> None:
    _, answer = late(late={(5, step): 50_000 for step in range(5, 15)})
    assert [one.last for one in answer.arrivals[5:15]] == [5] * 10
    assert all(one.sure for one in answer.arrivals[5:15])
    causes = [one.cause for one in answer.arrivals[5:15]]
    assert {(one.kernel, one.region) for one in causes if one is not None} == {("compute", "dot")}
    assert all(one is not None and 40_000 < one.more_ns < 60_000 for one in causes)
    worst = answer.stragglers[0]
    assert (worst.rank, worst.cause) == (5, "compute: dot")
    assert 10 <= worst.last <= 20
    assert worst.low_ns < 25_000 < worst.high_ns


def test_of_two_ranks_each_step_names_the_one_that_came_last_and_its_whole_delay(tmp_path: Path) -> None:
    steps = range(1, 200, 2)
    job = Job(2, steps=200, late={(1, step): 50_000 for step in steps}, pause={(0, 77): 120_000})
    job.save_compared(tmp_path)
    answer = report(gpus.read_all(gpus.captures(tmp_path)))
    close = np.ptp(job.arrive, axis=0) < 1_000
    named = planted.causes(answer.arrivals, np.where(close, -1, job.arrive.argmax(axis=0)).tolist(), 1, steps)
    assert {(one.kernel, one.region) for one in named} == {("compute", "dot")}
    assert len(named) == 99
    assert 45_000 < np.median([one.more_ns for one in named]) < 55_000
    other = answer.arrivals[77]
    assert (other.last, other.cause is not None and other.cause.kernel) == (0, BETWEEN)
    first, second = answer.stragglers
    assert (first.rank, first.last >= 99, second.rank) == (1, True, 0)
    assert 20_000 < first.late_ns < 30_000


def test_a_delay_outside_of_kernels_is_named_as_such() -> None:
    _, answer = late(pause={(2, 9): 80_000})
    cause = answer.arrivals[9].cause
    assert answer.arrivals[9].last == 2
    assert cause is not None
    assert cause.kernel == BETWEEN
    assert 70_000 < cause.more_ns < 90_000


def test_wait_ends_with_the_last_arrival_and_transfer_begins_there() -> None:
    job, answer = late(late={(5, 3): 100_000})
    one = answer.arrivals[3]
    assert abs(one.wait_ns - (job.arrive[:, 3].max() - job.arrive[:, 3]).mean()) <= 2 * one.bound_ns
    assert abs(one.transfer_ns - (job.leave[:, 3].max() - job.arrive[:, 3].max())) <= 2 * one.bound_ns


def test_a_host_clock_that_contradicts_the_collectives_is_dropped_and_reported() -> None:
    job = Job(4)
    found = gpus_of(job)
    set_later = np.array(found[2].syncs)
    set_later[:, [0, 2]] += 300_000
    found[2] = replace(found[2], syncs=set_later)
    assert outside(job, found) <= 0
    assert "ranks 2: their host has the name of rank 0's" in report(found).problems[0]


def test_ranks_that_recorded_different_launches_are_refused() -> None:
    found = gpus_of(Job(3))
    short = gpus_of(Job(3, steps=19))
    with pytest.raises(UsageError, match=r"rank 0 recorded 20 launches of collectives and rank 1 19 launches: all"):
        report([found[0], short[1], found[2]])
    with pytest.raises(UsageError, match=r"no collective kernel was recorded, only compute, my_all_reduce"):
        report(found, ["nothing*"])
    with pytest.raises(UsageError, match=r"1 GPU recorded"):
        report(found[:1])


def test_kernels_of_collectives_are_known_by_their_names_or_by_yours() -> None:
    assert collective()("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert not collective()("matmul")
    assert collective(["exchange_*"])("exchange_halo")
    assert not collective(["exchange_*"])("my_all_reduce")
    assert all(one == one.lower() for one in COLLECTIVES)


def test_the_command_reads_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Job(20, hosts=2, late={(11, step): 60_000 for step in range(20)}).save(tmp_path)
    assert main(["ranks", str(tmp_path), "--top", "2"]) == 0
    printed = capsys.readouterr().out
    assert "20 GPUs, 20 launches of collectives; clocks within \N{PLUS-MINUS SIGN}" in printed
    assert "my_all_reduce" in printed
    assert "rank 11" in printed.partition("latest")[2].splitlines()[1]
    assert "more than the median rank in dot of compute" in " ".join(printed.split())
    assert main(["ranks", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "kscope.ranks"
    assert answer["stragglers"][0]["rank"] == 11
    assert answer["arrivals"][5]["cause"]["region"] == "dot"


def test_folders_without_captures_of_one_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(tmp_path)]) == 2
    assert "record one per rank" in capsys.readouterr().err
    assert main(["ranks", str(tmp_path / "none")]) == 2
    Job(2).save(tmp_path)
    (tmp_path / "again").mkdir()
    Job(2).save(tmp_path / "again")
    assert main(["ranks", str(tmp_path)]) == 2
    assert "are both of rank 0" in capsys.readouterr().err


def test_ranks_are_merged_into_one_timeline_where_they_truly_were(tmp_path: Path) -> None:
    job = Job(6, hosts=2)
    job.save(tmp_path)
    merged = merge_ranks(gpus.captures(tmp_path))
    trace = merged.trace
    assert [one.name for one in trace.recorded.gpus] == [f"rank {rank}, synthetic" for rank in range(6)]
    assert len(trace.launches) == 6 * 40
    first, error = np.full((2, len(trace.launches)), np.inf)
    np.minimum.at(first, trace.warps.launch, trace.warps.start_ns)
    error[trace.warps.launch] = trace.warps.ends_error_ns
    assert (np.diff(first) >= 0).all()
    zero = first[[one.device == 0 and one.kernel == "my_all_reduce" for one in trace.launches]][0]
    for rank in range(6):
        mine = np.array([one.device == rank and one.kernel == "my_all_reduce" for one in trace.launches])
        truth = np.array([job.timer(0, true) - job.timer(0, job.arrive[0, 0]) for true in job.arrive[rank]])
        assert (np.abs(first[mine] - zero - truth) <= error[mine] + 70).all()
    assert merged.bounds[0] == 0
    assert max(merged.bounds) < 12_000
    assert trace.summary("device").regions  # every analysis works


def test_the_command_merges_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Job(6, hosts=2).save(tmp_path)
    out = tmp_path / "m.pftrace"
    assert main(["merge", str(tmp_path), "-o", str(out), "--ranks", "1-3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("records of 3 GPUs")
    assert [line.partition(":")[0] for line in printed[1:]] == ["rank 2", "rank 3"]
    groups = {one.track[0] for one in replay(out).launches}
    assert groups == {f"GPU {rank} \N{MIDDLE DOT} rank {rank}, synthetic" for rank in (1, 2, 3)}
    assert main(["merge", str(tmp_path), "-o", str(out), "--launch", "5"]) == 0
    assert len(replay(out).launches) == 6
    assert main(["merge", str(tmp_path), "-o", str(out), "--ranks", "4-7"]) == 2
    assert "no capture of rank 6-7" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "step.0.kscope"), "-o", str(out)]) == 2
    assert "expected --torch TRACE or --nsys REPORT" in capsys.readouterr().err


@pytest.mark.parametrize("hosts", [1, 4])
def test_ranks_that_compared_their_clocks_are_known_within_their_signals_time(tmp_path: Path, hosts: int) -> None:
    job = Job(16, hosts=hosts, transfer=60_000)  # collectives that prove little
    job.save_compared(tmp_path)
    found = gpus.read_all(gpus.captures(tmp_path))
    assert outside(job, found) <= 0
    launches = common(found, collective())
    bounds = [clock.place(one.first).half.max() for clock, one in zip(align(found, launches), found, strict=True)]
    same_host = [bound for rank, bound in enumerate(bounds) if job.host_of[rank] == 0]
    assert max(same_host) < 720  # half of the fastest there and back, the timers' steps, and rounding
    (tmp_path / "plain").mkdir()
    job.save(tmp_path / "plain")
    without = gpus.read_all(gpus.captures(tmp_path / "plain"))
    alone = [clock.place(one.first).half.max() for clock, one in zip(align(without, launches), without, strict=True)]
    assert all(bound <= other for bound, other in zip(bounds, alone, strict=True))
    assert max(alone[1:]) > 9_000


def test_the_steps_of_timers_are_part_of_the_bound_of_signals(tmp_path: Path) -> None:
    job = Job(6, way=(0, 2))  # nothing else keeps the truth inside
    job.save_compared(tmp_path)
    found = gpus.read_all(gpus.captures(tmp_path))
    for rank, (clock, gpu) in enumerate(zip(align(found, [np.zeros(0, np.int64)] * 6), found, strict=True)):
        moments = np.linspace(0, float(job.leave.max()), 50).tolist()
        mine, first = (np.array([job.timer(one, true) for true in moments]) for one in (rank, 0))
        placed = clock.place(mine + gpu.shift)
        assert (np.abs(placed.time - first - found[0].shift) <= placed.half + 1).all()
        assert placed.half.max() < 60


def test_ranks_on_different_hosts_without_collectives_are_compared_through_rank_0(tmp_path: Path) -> None:
    job = Job(4, hosts=2)
    job.save_compared(tmp_path)
    found = gpus.read_all(gpus.captures(tmp_path))
    nothing = [np.zeros(0, np.int64)] * 4
    for rank, (clock, gpu) in enumerate(zip(align(found, nothing), found, strict=True)):
        placed = clock.place(gpu.first)
        truth = np.array([job.timer(0, job.begin[rank, 0])]) + found[0].shift
        assert abs(placed.time[0] - truth[0]) <= placed.half[0] + gpu.error[0] + 2
        assert placed.half[0] < (1_000 if rank < 2 else 150_000)


def test_a_clock_file_of_another_gpu_proves_nothing_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    job = Job(2)
    job.save_compared(tmp_path)
    file = tmp_path / "rank=0000" / "clock.json"
    wrong = json.loads(file.read_text()) | {"gpu": "GPU-of-another-script"}
    file.write_text(json.dumps(wrong))
    found = gpus.read_all(gpus.captures(tmp_path))
    assert align(found, common(found, collective()))[1].place(found[1].first).half.max() > 2_000
    for text in ("{", "[]", json.dumps(wrong | {"version": 2}), json.dumps(wrong | {"rank_0_clock": [[1, 2]]})):
        file.write_text(text)
        with pytest.raises(FormatError, match="remove it to compare ranks without it"):
            gpus.read_all(gpus.captures(tmp_path))


def offsets_of(job: Job, error: int) -> dict[str, list[list[int]]]:
    """Offsets of each host's clock that PTP measures ten times a second, wrong by up to `error` ns."""
    rng = np.random.default_rng(3)
    return {
        f"node{host}": [
            [
                job.unix(job.host_of.index(host), true),
                int(job.host_offset[host]) + int(rng.integers(-error, error + 1)),
                error,
            ]
            for true in np.arange(0, job.leave.max() + 1e8, 1e8).tolist()
        ]
        for host in range(job.hosts)
    }


def test_hosts_whose_offsets_were_measured_are_on_one_axis_without_collectives(tmp_path: Path) -> None:
    job = Job(4, hosts=2)
    job.save(tmp_path)
    (tmp_path / "offsets.json").write_text(json.dumps(offsets_of(job, 400)))
    found = gpus.read_all(gpus.captures(tmp_path))
    nothing = [np.zeros(0, np.int64)] * 4
    for rank, (clock, gpu) in enumerate(zip(align(found, nothing), found, strict=True)):
        placed = clock.place(gpu.first)
        launches = np.stack([job.begin[rank], job.arrive[rank]], axis=1).ravel()
        truth = np.array([job.timer(0, one) for one in launches.tolist()]) + found[0].shift
        assert (np.abs(placed.time - truth) <= placed.half + gpu.error + 2).all()
        assert placed.half.max() < 50_000  # half of both hosts' brackets of their GPUs, and their offsets' errors


def test_offsets_of_another_form_are_refused(tmp_path: Path) -> None:
    Job(1).save(tmp_path)
    for text in ("{", "[]", '{"node0": [[1, 2]]}', '{"node0": [[1, 2, -3]]}', '{"node0": "x"}'):
        (tmp_path / "offsets.json").write_text(text)
        with pytest.raises(FormatError, match=r"offsets.json: .*; expected .*hostname.*all integers"):
            gpus.read_all(gpus.captures(tmp_path))
    (tmp_path / "offsets.json").write_text('{"another": []}')
    assert len(gpus.read_all(gpus.captures(tmp_path))[0].offsets) == 0
