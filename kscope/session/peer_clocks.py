"""Compares the timers of the GPUs of a host: the host's first rank with each of the others, one after the other, at
both ends of the script and every few seconds while it runs.

    first rank                                other rank
    clears its word, sends slot and rounds -> clears its word, launches ks_ping_reply
    launches ks_ping_send                  <- is ready
    waits for its kernel, and keeps both   <- waits for its kernel, sends its readings

Two processes meet at a local socket, which carries the descriptors of their GPUs' memory.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DriverError
from ..util.arrays import Int64

if TYPE_CHECKING:
    from ..instrument.peer_side import PeerSide

INTERVAL_S = 5.0
"""Seconds between comparisons while the script runs."""
MOST_COMPARISONS = 1024
"""Comparisons of two ranks that are kept; beyond, every second one is dropped, and the interval doubles."""
_PATIENCE_S = 20.0
_COMMAND = struct.Struct("<IIQ")


@dataclass(frozen=True)
class Effort:
    """Effort of a comparison.

    Attributes:
        rounds: signals there and back.
        kept: rounds that are kept for each of the two inequalities: the tightest.
        patience: most cycles for which a kernel waits for the other one.
    """

    rounds: int
    kept: int
    patience: int


THOROUGH = Effort(4000, 16, 1 << 30)
"""At both ends: about 10 ms, and at most half a second."""
QUICK = Effort(400, 4, 1 << 26)
"""While the script runs: about a millisecond in one thread, and at most 40 ms if the other GPU has no room for its
thread.
"""


@dataclass(eq=False)
class _Link:
    """Another rank.

    Attributes:
        gpu: the UUID of its GPU.
        theirs: the address of its memory here.
        slot: the word of this side's memory that the other rank writes.
        comparisons: readings of each comparison.
    """

    socket: socket.socket
    gpu: str
    theirs: int
    slot: int
    comparisons: list[dict[str, list[list[int]]]] = field(default_factory=list)


class Leader:
    """The first rank of a host.

    Args:
        name: of the socket.
        others: number of other ranks.
        side: this GPU.

    Raises:
        OSError: some rank did not arrive, or left.
        DriverError: a call failed.
    """

    def __init__(self, name: str, others: int, side: PeerSide) -> None:
        self._side, self._links = side, list[_Link]()
        self._found = list[_Link]()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.troubles = list[str]()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
                server.bind(f"\0{name}")
                server.listen(others)
                server.settimeout(_PATIENCE_S)
                for slot in range(others):
                    made = server.accept()[0]
                    made.settimeout(_PATIENCE_S)
                    self._links.append(_Link(made, *_exchanged(made, side), slot))
            self._found = list(self._links)
        except BaseException:
            self.close()
            raise

    @property
    def found(self) -> list[dict[str, Any]]:
        """For each comparison the other GPU's UUID, and pairs of readings, the earlier one first: [mine, its] and
        [its, mine]."""
        return [{"gpu": link.gpu, **one} for link in self._found for one in link.comparisons]

    def compare(self, effort: Effort = THOROUGH) -> None:
        """Compare with each other rank. After a failure, a rank is compared no more, see troubles: a late signal must
        not be mistaken for one of the next comparison.
        """
        for link in list(self._links):
            try:
                found = self._compared(link, effort)
                if found["mine_first"]:
                    link.comparisons.append(found)
            except (OSError, DriverError) as error:
                if link in self._links:  # else close() was faster
                    self.troubles.append(str(error))
                    self._links.remove(link)
                    _shut(link.socket)

    def start(self, interval: float = INTERVAL_S) -> None:
        """Compare every `interval` seconds from now on, in a thread."""
        self._end.clear()
        self._thread = threading.Thread(target=self._repeat, args=(interval,), daemon=True, name="kscope-clocks")
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. A comparison that waits for a busy GPU is abandoned."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive():
                self.troubles.append("the GPU did not run the last comparison")
                self.close()
            self._thread = None

    def close(self) -> None:
        """Leave the other ranks."""
        self._end.set()
        links, self._links = self._links, []
        for link in links:
            _shut(link.socket)

    def _repeat(self, interval: float) -> None:
        while not self._end.wait(interval):
            self.compare(QUICK)
            if max(len(link.comparisons) for link in self._found) > MOST_COMPARISONS:
                interval *= 2
                for link in self._found:
                    link.comparisons[1:] = link.comparisons[2::2]  # the first one stays: the fit begins there

    def _compared(self, link: _Link, effort: Effort) -> dict[str, list[list[int]]]:
        side = self._side
        side.clear(link.slot)
        link.socket.sendall(_COMMAND.pack(link.slot, effort.rounds, effort.patience))
        _exactly(link.socket, 1)
        side.start(link.theirs, 0, link.slot, True, effort.rounds, effort.patience)
        mine = side.readings()
        its = np.frombuffer(_exactly(link.socket, 8 * int.from_bytes(_exactly(link.socket, 8), "little")), "<i8")
        return tightest(mine, its, effort.kept)


class Follower:
    """Another rank of the host. A thread answers rank 0 until it disconnects. See Leader for arguments and errors."""

    def __init__(self, name: str, side: PeerSide) -> None:
        self._side = side
        self.troubles = list[str]()
        end = time.monotonic() + _PATIENCE_S
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._link.settimeout(_PATIENCE_S)
            while True:
                try:
                    self._link.connect(f"\0{name}")
                    break
                except ConnectionRefusedError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.01)
            _, self._theirs = _exchanged(self._link, side)
        except BaseException:
            self._link.close()
            raise
        self._link.settimeout(None)  # the next comparison comes at any time
        self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="kscope-clocks")
        self._thread.start()

    def close(self) -> None:
        """Leave the first rank. A comparison that waits for a busy GPU is left to its thread."""
        self._closed = True
        _shut(self._link)
        self._thread.join(_PATIENCE_S)

    def _serve(self) -> None:
        try:
            while True:
                slot, rounds, patience = _COMMAND.unpack(_exactly(self._link, _COMMAND.size))
                self._side.clear(0)
                self._side.start(self._theirs, slot, 0, False, rounds, patience)
                self._link.sendall(b"+")
                data = np.ascontiguousarray(self._side.readings()[:, 0], "<i8").tobytes()
                self._link.sendall((len(data) // 8).to_bytes(8, "little") + data)
        except OSError:
            pass  # the first rank has left, or this one does
        except DriverError as error:
            self.troubles += [] if self._closed else [str(error)]
        finally:
            _shut(self._link)


def tightest(mine: Int64, its: Int64, kept: int = THOROUGH.kept) -> dict[str, list[list[int]]]:
    """The rounds with the tightest bounds.

    Args:
        mine: (n, 2) before and after each round.
        its: (m,) in between; rounds that only one side has are left out.
        kept: number of rounds for each inequality.
    """
    count = min(len(mine), len(its))
    sent, answered, its = mine[:count, 0], mine[:count, 1], its[:count]
    first, second = np.argsort(its - sent)[:kept], np.argsort(answered - its)[:kept]
    return {
        "mine_first": [[int(sent[at]), int(its[at])] for at in first],
        "its_first": [[int(its[at]), int(answered[at])] for at in second],
    }


def _exchanged(link: socket.socket, side: PeerSide) -> tuple[str, int]:
    """The other side's UUID, and the address of its memory."""
    mine = side.uuid.encode()
    socket.send_fds(link, [len(mine).to_bytes(1, "little")], [side.file])
    link.sendall(mine)
    size, files, _, _ = socket.recv_fds(link, 1, 1)
    if len(files) != 1:
        raise OSError("the other rank has left")
    try:
        return _exactly(link, size[0]).decode(), side.map(files[0])
    finally:
        os.close(files[0])


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise OSError("the other rank has left")
        data += more
    return data


def _shut(link: socket.socket) -> None:
    """Shut the socket down, even if a forked child of this process has it, too."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
