"""`kscope run --ranks FOLDER`: ranks begin together, compare clocks at both ends, and keep their files apart."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ranked import finished, started
from waiting import PATIENCE_S, wait_until

from kscope.capture.capture import load_capture
from kscope.decoding.causal import Evidence, solve
from kscope.errors import DriverError, UsageError
from kscope.merging.ranks.clock_files import read_comparisons
from kscope.session import peer_clocks
from kscope.session.launcher import Place
from kscope.session.peer_clocks import QUICK, THOROUGH, Follower, Leader
from kscope.session.rendezvous import FILE, Rendezvous


def test_ranks_begin_together_and_write_apart(tmp_path: Path) -> None:
    first = [started(tmp_path, rank, 3) for rank in (2, 0)]
    time.sleep(1.0)
    late = started(tmp_path, 1, 3)
    after = time.time_ns()
    done = finished(*first, late)
    assert [code for _, _, code in done] == [0, 0, 0], done
    began = {int(out.split()[1]): int(out.split()[2]) for out, _, _ in done}
    assert min(began.values()) > after  # no rank began before the last one was there
    for rank in range(3):
        own = tmp_path / "run" / f"rank={rank:04}"
        assert {one.name for one in own.iterdir() if one.name[0] != "."} >= {"clock.json", "train.kscope"}
        assert load_capture(own / "train.kscope").host["rank"] == rank
        found = read_comparisons(own / "train.kscope")
        assert len(found.rank_0_clock) == 8 and found.peers == ()
        before, there, then = found.rank_0_clock.T
        assert (before <= there).all() and (there <= then).all()
    assert not (tmp_path / "run" / FILE).exists()


def test_a_rank_that_fails_leaves_the_others_with_what_they_recorded(tmp_path: Path) -> None:
    done = finished(*(started(tmp_path, rank, 2, fails=1) for rank in range(2)))
    assert [code for _, _, code in done] == [0, 3], done
    assert "a rank of the job has left" in done[0][1] and "clocks were not compared at the end" in done[0][1]
    assert "kscope merge run -o data/ writes all" in done[0][1]
    assert (tmp_path / "run" / "rank=0000" / "train.kscope").exists()
    assert len(read_comparisons(tmp_path / "run" / "rank=0000" / "train.kscope").rank_0_clock) == 4


def test_a_folder_with_a_recording_and_an_output_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "rank=0000").mkdir(parents=True)
    (tmp_path / "run" / "rank=0000" / "x.kscope").touch()
    [(_, printed, code)] = finished(started(tmp_path, 0, 2))
    assert code == 2 and "has a recording (x.kscope); give another folder" in printed


def together(*calls: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(calls)

    def run(at: int) -> None:
        try:
            found[at] = calls[at]()
        except BaseException as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return found


def test_everybody_gets_everybody_s_value_in_every_turn(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"addresses": ["127.0.0.1"], "port": 9, "nonce": "of an earlier run"}))

    def rank(number: int) -> list[Any]:
        rendezvous = Rendezvous(tmp_path, Place(number, 4), PATIENCE_S)
        got = [rendezvous.gather([number, turn]) for turn in range(20)]
        rendezvous.leave()
        return got

    found = together(*(lambda number=number: rank(number) for number in range(4)))
    assert found == [[[[rank, turn] for rank in range(4)] for turn in range(20)]] * 4


def test_a_missing_rank_is_an_error_with_that_reason(tmp_path: Path) -> None:
    rendezvous = Rendezvous(tmp_path, Place(0, 2), 0.3)
    with pytest.raises(UsageError, match=r"did not arrive within 0 s"):
        rendezvous.gather()
    rendezvous.leave()
    with pytest.raises(UsageError, match="rank 1 of 2 found no rank 0"):
        Rendezvous(tmp_path, Place(1, 2), 0.3)


class Side:
    """A GPU whose signals take 600 to 700 ns, and whose timer is ahead by `ahead` ns.

    Attributes:
        comparisons: comparisons so far.
        fails: the turn whose kernel the driver refuses.
    """

    def __init__(self, ahead: int, fails: int = -1) -> None:
        self.uuid, self._ahead, self.comparisons, self.fails = f"GPU-{ahead}", ahead, 0, fails
        self._page, self._other = os.pipe()
        self.cleared, self.started = list[int](), list[tuple[int, int, int, bool, int, int]]()

    @property
    def file(self) -> int:
        return self._page

    def map(self, file: int) -> int:
        assert os.fstat(file)
        return 0x1000

    def clear(self, slot: int) -> None:
        self.cleared.append(slot)

    def start(self, theirs: int, their_slot: int, slot: int, begins: bool, rounds: int, patience: int) -> None:
        assert self.cleared[-1] == slot
        if self.comparisons == self.fails:
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_ILLEGAL_ADDRESS", 700)
        self.started.append((theirs, their_slot, slot, begins, rounds, patience))

    def readings(self) -> npt.NDArray[np.int64]:
        _, _, _, begins, rounds, _ = self.started[-1]
        rng = np.random.default_rng(5)  # both sides draw the same truth
        begin = np.arange(rounds) * 2_000 + rng.integers(0, 100, rounds)
        there, back = rng.integers(600, 700, (2, rounds))
        pair = (begin, begin + there + back) if begins else (begin + there, begin + there)
        self.comparisons += 1
        return np.stack(pair, axis=1) + self._ahead


def meet(leader: Side, *sides: Side) -> tuple[Leader, list[Follower]]:
    """The first rank of a host and the others, connected."""
    name = f"kscope-test-{os.getpid()}-{next(NUMBERS)}"
    found, *others = together(
        lambda: Leader(name, len(sides), leader), *(lambda one=one: Follower(name, one) for one in sides)
    )
    return found, others


NUMBERS = itertools.count()


def test_the_first_gpu_of_a_host_is_compared_with_each_other_one() -> None:
    sides = [Side(1_000_000), Side(-5_000)]
    leader, followers = meet(first := Side(0), *sides)
    leader.compare()
    by_gpu = {one["gpu"]: one for one in leader.found}
    assert sorted(first.cleared) == [0, 1]  # a late signal of one is not in the word of another
    for side in sides:
        one = by_gpu[side.uuid]
        ahead = int(side.uuid.removeprefix("GPU-"))
        assert len(one["mine_first"]) == len(one["its_first"]) == THOROUGH.kept
        least = max(mine - its for mine, its in one["mine_first"])
        most = min(mine - its for its, mine in one["its_first"])
        assert least <= -ahead <= most and most - least < 1_300
    leader.close()
    for one in followers:
        one.close()
    assert not leader.troubles and not any(one.troubles for one in followers)


def test_gpus_are_compared_again_and_again_while_the_script_runs() -> None:
    leader, (follower,) = meet(Side(0), side := Side(7_000))
    leader.compare()
    leader.start(0.001)
    wait_until(lambda: side.comparisons >= 5)
    leader.stop()
    comparisons = side.comparisons
    quick = leader.found[1:]
    assert len(quick) == comparisons - 1 and {len(one["mine_first"]) for one in quick} == {QUICK.kept}
    assert {one[4:] for one in side.started[1:]} == {(QUICK.rounds, QUICK.patience)}
    leader.compare()  # at the end
    assert side.comparisons == comparisons + 1 and len(leader.found[-1]["its_first"]) == THOROUGH.kept
    leader.close()
    follower.close()
    assert threading.active_count() == 1 or not any(one.name == "kscope-clocks" for one in threading.enumerate())


def test_a_long_job_keeps_a_bounded_number_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_clocks, "MOST_COMPARISONS", 10)
    leader, (follower,) = meet(Side(0), side := Side(7_000))
    leader.compare()
    leader.start(1e-4)
    wait_until(lambda: side.comparisons >= 40)
    leader.stop()
    assert len(leader.found) <= 11
    assert len(leader.found[0]["mine_first"]) == THOROUGH.kept  # that at the beginning is among them
    leader.close()
    follower.close()


def test_a_gpu_that_fails_ends_its_comparisons_and_no_other_s() -> None:
    sides = [Side(1_000, fails=2), Side(2_000)]
    leader, followers = meet(Side(0), *sides)
    leader.start(0.001)
    wait_until(lambda: sides[1].comparisons >= 6)
    leader.stop()
    assert sides[0].comparisons == 2
    assert [one["gpu"] for one in leader.found].count("GPU-1000") == 2
    assert len(leader.troubles) == 1
    leader.close()
    for one in followers:
        one.close()
    assert {"ILLEGAL_ADDRESS" in text for one in followers for text in one.troubles} == {True}


def test_a_rank_whose_children_hold_its_sockets_leaves_nevertheless() -> None:
    leader, (follower,) = meet(Side(0), Side(7_000))
    leader.compare()
    child = os.fork()
    if not child:
        time.sleep(PATIENCE_S)
        os._exit(0)
    try:
        follower.close()
        leader.compare()
        [trouble] = leader.troubles
        assert "time" not in trouble and len(leader.found) == 1  # noticed at once
        leader.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_rounds_that_only_one_side_has_are_left_out() -> None:
    mine = np.array([[0, 1300], [2000, 3300]])
    found = peer_clocks.tightest(mine, np.array([600, 2700, 9000]))
    assert found == {"mine_first": [[0, 600], [2000, 2700]], "its_first": [[2700, 3300], [600, 1300]]}


def test_a_million_signals_that_the_fit_did_not_use_are_within_its_bound() -> None:
    """Timers that drift by 2.8 ppm and tick every 32 ns, compared at both ends and every five seconds of a minute."""
    rng, span, tick = np.random.default_rng(3), 60e9, 32

    def rounds(at: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], ...]:
        """This side's reading, the other one's, and this one's again, of signals at these times."""
        there, back = 550 + rng.exponential(80, (2, len(at)))
        moments = at, (at + there) * (1 + 2.8e-6) + 123_456_789, at + there + back
        return tuple((one // tick * tick).astype(np.int64) for one in moments)

    parts = []
    for turn in range(13):
        effort = THOROUGH if turn in (0, 12) else QUICK
        asked, its, answered = rounds(turn * span / 12 + 2_000.0 * np.arange(effort.rounds))
        kept = peer_clocks.tightest(np.stack([asked, answered], axis=1), its, effort.kept)
        mine, other = (np.array(kept[name]) for name in ("mine_first", "its_first"))
        parts.append(Evidence.clock_first(mine[:, 1], mine[:, 0], tick))
        parts.append(Evidence.reference_first(other[:, 0], other[:, 1], tick))
    clock = solve(*parts)
    asked, its, answered = rounds(rng.uniform(0, span, 1_000_000))
    found = clock.at(its)
    least, most = found.base + found.low, found.base + found.high
    assert (asked - tick - its <= most).all() and (answered + tick - its >= least).all()
    truth = -(its * 2.8e-6 + 123_456_789) / (1 + 2.8e-6)
    assert (np.abs(truth - found.middle) <= found.half + tick).all()
    assert clock.jumps == 0 and found.half.max() < 650
