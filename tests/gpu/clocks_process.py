"""Two processes with a GPU each that compare timers again and again, for tests/gpu/test_two_gpus_ranks.py.

    python -m gpu.clocks_process NAME RANK TURNS SECONDS FILE

Rank 0 writes (turns, rounds, 3) int64 to FILE: its reading before, the other one's, its reading after.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import numpy as np

from kscope.session.peer_clocks import _exchanged, _received
from kscope_runtime.peer_pings import ROUNDS, PeerPings


def main(name: str, rank: int, turns: int, seconds: float, file: str) -> None:
    side = PeerPings(rank)
    link = _link(name, rank)
    _, other = _exchanged(link, side)
    found = np.zeros((turns, ROUNDS, 3), np.int64)
    for turn in range(turns):
        side.ready()
        link.sendall(b"+")
        assert link.recv(1) == b"+"
        readings = side.ping(os.dup(other), asks=rank == 0)
        assert len(readings) == ROUNDS, f"{len(readings)} of {ROUNDS} rounds"
        if rank:
            data = np.ascontiguousarray(readings[:, 0]).tobytes()
            link.sendall(len(data).to_bytes(8, "little") + data)
        else:
            found[turn] = np.stack([readings[:, 0], np.frombuffer(_received(link), np.int64), readings[:, 1]], axis=1)
        time.sleep(seconds / turns)
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
