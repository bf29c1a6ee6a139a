"""`kscope run --ranks FOLDER`: ranks begin together, compare clocks at both ends, and keep their files apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kscope.capture.capture import load_capture
from kscope.errors import UsageError
from kscope.merging.ranks.clock_files import compared
from kscope.session import peer_clocks
from kscope.session.launcher import Place
from kscope.session.rendezvous import FILE, Rendezvous

SCRIPT = """
import os, sys, time
import kscope, kscope_sim
rank = int(os.environ["RANK"])
print("began", rank, time.time_ns(), flush=True)
def kernel(warp):
    with kscope.region("work"):
        warp.work(1000)
kscope_sim.launch(kernel, grid=1, block=32)
if rank == int(sys.argv[1]):
    raise SystemExit(3)
"""


def started(folder: Path, rank: int, world: int, fails: int = -1) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "kscope", "run", "--ranks", "run", "train.py", str(fails)]
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def test_ranks_begin_together_and_write_apart(tmp_path: Path) -> None:
    first = [started(tmp_path, rank, 3) for rank in (2, 0)]
    time.sleep(1.0)
    late = started(tmp_path, 1, 3)
    after = time.time_ns()
    done = [(one.communicate(timeout=60), one.returncode) for one in (*first, late)]
    assert [code for _, code in done] == [0, 0, 0], done
    began = {int(out.split()[1]): int(out.split()[2]) for (out, _), _ in done}
    assert min(began.values()) > after  # nobody began before the last one was there
    for rank in range(3):
        own = tmp_path / "run" / f"rank={rank:04}"
        assert sorted(one.name for one in own.iterdir() if one.name[0] != ".") == ["clock.json", "train.kscope"]
        assert load_capture(own / "train.kscope").host["rank"] == rank
        found = compared(own / "train.kscope")
        assert len(found.rank_0_clock) == 8 and found.peers == ()
        before, there, then = found.rank_0_clock.T
        assert (before <= there).all() and (there <= then).all()
    assert not (tmp_path / "run" / FILE).exists()


def test_a_rank_that_fails_leaves_the_others_with_what_they_recorded(tmp_path: Path) -> None:
    running = [started(tmp_path, rank, 2, fails=1) for rank in range(2)]
    done = [(one.communicate(timeout=60), one.returncode) for one in running]
    assert [code for _, code in done] == [0, 3], done
    assert "a rank of the job has left" in done[0][0][1] and "clocks were not compared at the end" in done[0][0][1]
    assert (tmp_path / "run" / "rank=0000" / "train.kscope").exists()
    assert len(compared(tmp_path / "run" / "rank=0000" / "train.kscope").rank_0_clock) == 4


def test_a_folder_with_a_recording_and_an_output_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "rank=0000").mkdir(parents=True)
    (tmp_path / "run" / "rank=0000" / "x.kscope").touch()
    one = started(tmp_path, 0, 2)
    assert "has a recording (x.kscope); give another folder" in one.communicate(timeout=60)[1]
    assert one.returncode == 2


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
        thread.join(30)
    return found


def test_everybody_gets_everybody_s_value_in_every_turn(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"addresses": ["127.0.0.1"], "port": 9, "nonce": "of an earlier run"}))

    def rank(number: int) -> list[Any]:
        rendezvous = Rendezvous(tmp_path, Place(number, 4), 20)
        got = [rendezvous.gather([number, turn]) for turn in range(20)]
        rendezvous.leave()
        return got

    found = together(*(lambda number=number: rank(number) for number in range(4)))
    assert found == [[[[rank, turn] for rank in range(4)] for turn in range(20)]] * 4


def test_a_missing_rank_is_an_error_that_says_so(tmp_path: Path) -> None:
    rendezvous = Rendezvous(tmp_path, Place(0, 2), 0.3)
    with pytest.raises(UsageError, match=r"did not arrive within 0 s"):
        rendezvous.gather()
    rendezvous.leave()
    with pytest.raises(UsageError, match="rank 1 of 2 found no rank 0"):
        Rendezvous(tmp_path, Place(1, 2), 0.3)


class Side:
    """A GPU whose signals take 600 to 700 ns, and whose timer is ahead by `ahead` ns."""

    def __init__(self, ahead: int, met: threading.Barrier) -> None:
        self.uuid, self._ahead, self._met = f"GPU-{ahead}", ahead, met
        self._page, self._other = os.pipe()
        self.cleared = 0

    @property
    def file(self) -> int:
        return self._page

    def ready(self) -> None:
        self.cleared += 1

    def ping(self, file: int, asks: bool) -> npt.NDArray[np.int64]:
        assert os.fstat(file) and self.cleared
        self._met.wait(10)
        rng = np.random.default_rng(5)  # both sides draw the same truth
        begin = np.arange(200) * 2_000 + rng.integers(0, 100, 200)
        there, back = rng.integers(600, 700, (2, 200))
        pair = (begin, begin + there + back) if asks else (begin + there, begin + there)
        return np.stack(pair, axis=1) + self._ahead


def test_the_first_gpu_of_a_host_is_compared_with_each_other_one() -> None:
    turns = [threading.Barrier(2), threading.Barrier(2)]
    leader = Side(0, turns[0])
    sides = [Side(1_000_000, turns[0]), Side(-5_000, turns[0])]
    name = f"kscope-test-{os.getpid()}"
    found, *others = together(
        lambda: peer_clocks.lead(name, 2, leader), *(lambda one=one: peer_clocks.follow(name, one) for one in sides)
    )
    assert others == [None, None]
    by_gpu = {one["gpu"]: one for one in found}
    for side in sides:
        one = by_gpu[side.uuid]
        ahead = int(side.uuid.removeprefix("GPU-"))
        assert len(one["mine_first"]) == len(one["its_first"]) == peer_clocks.KEPT
        least = max(mine - its for mine, its in one["mine_first"])
        most = min(mine - its for its, mine in one["its_first"])
        assert least <= -ahead <= most and most - least < 1_300


def test_rounds_that_only_one_side_has_are_left_out() -> None:
    mine = np.array([[0, 1300], [2000, 3300]])
    found = peer_clocks.tightest(mine, np.array([600, 2700, 9000]))
    assert found == {"mine_first": [[0, 600], [2000, 2700]], "its_first": [[2700, 3300], [600, 1300]]}
