"""Two processes with a GPU each that compare timers again and again, for tests/gpu/test_two_gpus_ranks.py.

    python -m gpu.clocks_process NAME RANK TURNS SECONDS FILE

Rank 0 writes (comparisons, rounds, 3) int64 to FILE: its reading before, the other one's, its reading after.
"""

from __future__ import annotations

import socket
import sys
import time

import numpy as np

from kscope.session.peer_clocks import THOROUGH, _exactly, _exchanged
from kscope_runtime.peer_pings import PeerPings

ROUNDS = THOROUGH.rounds


def main(name: str, rank: int, comparisons: int, seconds: float, file: str) -> None:
    side = PeerPings(rank)
    link = _link(name, rank)
    _, theirs = _exchanged(link, side)
    found = np.zeros((comparisons, ROUNDS, 3), np.int64)
    for number in range(comparisons):
        side.clear(0)
        if rank:
            side.start(theirs, 0, 0, False, ROUNDS, THOROUGH.patience)
        link.sendall(b"+")
        assert link.recv(1) == b"+"
        if not rank:
            side.start(theirs, 0, 0, True, ROUNDS, THOROUGH.patience)
        readings = side.readings()
        assert len(readings) == ROUNDS, f"{len(readings)} of {ROUNDS} rounds"
        if rank:
            link.sendall(np.ascontiguousarray(readings[:, 0]).tobytes())
        else:
            its = np.frombuffer(_exactly(link, 8 * ROUNDS), np.int64)
            found[number] = np.stack([readings[:, 0], its, readings[:, 1]], axis=1)
        time.sleep(seconds / comparisons)
    if rank == 0:
        np.save(file, found)


def _link(name: str, rank: int) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if rank == 0:
        link.bind(f"\0{name}")
        link.listen(1)
        return link.accept()[0]
    for _ in range(600):
        try:
            link.connect(f"\0{name}")
            return link
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("rank 0 does not listen")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
