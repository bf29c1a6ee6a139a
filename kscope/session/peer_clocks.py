"""The GPUs of a host compare their timers: the host's first rank with each of the others, one after the other.

The two processes meet at a local socket, which carries the descriptors of their GPUs' memory.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..util.arrays import Int64

if TYPE_CHECKING:
    from ..instrument.backend import PeerSide

KEPT = 16
"""Rounds of a comparison that are kept for each of its two inequalities: the tightest."""
_PATIENCE_S = 20.0


def lead(name: str, others: int, side: PeerSide) -> list[dict[str, Any]]:
    """Compare this GPU's timer with those of the other ranks on this host, as the first of them.

    Args:
        name: of the socket.
        others: how many.
        side: this GPU.

    Returns:
        For each other GPU its UUID, and pairs of readings, the earlier one first: [mine, its], [its, mine].

    Raises:
        OSError: some rank did not arrive, or left.
    """
    found = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0{name}")
        server.listen(others)
        server.settimeout(_PATIENCE_S)
        for _ in range(others):
            with server.accept()[0] as link:
                link.settimeout(_PATIENCE_S)
                uuid, file = _exchanged(link, side)
                mine = side.ping(file, asks=True)
                os.close(file)
                its = np.frombuffer(_received(link), "<i8")
                found.append({"gpu": uuid, **tightest(mine, its)})
    return found


def follow(name: str, side: PeerSide) -> None:
    """The other side of lead(), with the same arguments and errors."""
    end = time.monotonic() + _PATIENCE_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_PATIENCE_S)
        while True:
            try:
                link.connect(f"\0{name}")
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        _, file = _exchanged(link, side)
        readings = side.ping(file, asks=False)
        os.close(file)
        data = np.ascontiguousarray(readings[:, 0], "<i8").tobytes()
        link.sendall(len(data).to_bytes(8, "little") + data)
        link.recv(1)  # the other side closes when it has read


def tightest(mine: Int64, its: Int64) -> dict[str, list[list[int]]]:
    """The rounds with the tightest bounds.

    Args:
        mine: (n, 2) before and after each round.
        its: (m,) in between; rounds that only one side has are left out.
    """
    count = min(len(mine), len(its))
    asked, answered, its = mine[:count, 0], mine[:count, 1], its[:count]
    first, second = np.argsort(its - asked)[:KEPT], np.argsort(answered - its)[:KEPT]
    return {
        "mine_first": [[int(asked[at]), int(its[at])] for at in first],
        "its_first": [[int(its[at]), int(answered[at])] for at in second],
    }


def _exchanged(link: socket.socket, side: PeerSide) -> tuple[str, int]:
    """The other side's UUID and descriptor; both have cleared their memory then."""
    side.ready()
    socket.send_fds(link, [json.dumps(side.uuid).encode()], [side.file])
    data, files, _, _ = socket.recv_fds(link, 4096, 1)
    if len(files) != 1:
        raise OSError("the other rank has left")
    return str(json.loads(data)), files[0]


def _received(link: socket.socket) -> bytes:
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        more = link.recv(1 << 16)
        if not more:
            raise OSError("the other rank has left")
        data += more
    return data[8:]


def ranks_on_host(hosts: Sequence[str], rank: int) -> list[int]:
    """The ranks on the host of a rank, ascending."""
    return [one for one, host in enumerate(hosts) if host == hosts[rank]]
