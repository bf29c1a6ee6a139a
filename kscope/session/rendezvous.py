"""Connects the ranks of a job: rank 0 listens, writes its address into the job's folder, and every rank connects. A
rank sends lines: `?` is answered at once with rank 0's clock, a JSON value with the list of all ranks' values once
every rank has sent one.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..util.atomic_files import replacing
from .launcher import Place

FILE = "meeting.json"
TIMEOUT_S = 60.0
"""Timeout of ranks at the beginning."""
LATER_S = 600.0
"""Timeout afterwards, while some still run or save. Ranks that have ended are noticed at once."""
_LEAVING_S = 10.0
"""Time for which rank 0 stays for ranks that read their last answer."""
_POLL_S = 0.05
_READINGS = 32
_BROKEN = "!"


class Rendezvous:
    """This process's connection.

    Args:
        folder: the job's, the same one on all ranks.
        here: this process's place.
        timeout: seconds.

    Raises:
        UsageError: some rank did not arrive in time.
    """

    def __init__(self, folder: Path, here: Place, timeout: float = TIMEOUT_S) -> None:
        self._file = folder / FILE
        self._hub = _Hub(self._file, here.world, timeout) if here.rank == 0 else None
        self._timeout, self._met = timeout, False
        self.nonce, self._socket = _connected(self._file, here, timeout)
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def gather(self, value: Any = None) -> list[Any]:
        """Every rank's value, by rank; returns once all ranks have sent theirs.

        Raises:
            UsageError: a rank has left, or did not arrive in time.
        """
        found = [json.loads(one) for one in json.loads(self._answer(json.dumps(json.dumps(value))))]
        if not self._met:
            self._met, self._timeout = True, max(self._timeout, LATER_S)
            self._socket.settimeout(self._timeout)
        return found

    @property
    def address(self) -> str:
        """Rank 0's address, as this rank reaches it."""
        return str(self._socket.getpeername()[0])

    def readings(self) -> list[tuple[int, int, int]]:
        """This host's clock, rank 0's, and this one's again, UNIX ns: the narrowest of a few."""
        found = []
        for _ in range(_READINGS):
            before = time.time_ns()
            there = int(self._answer("?"))
            found.append((before, there, time.time_ns()))
        return sorted(found, key=lambda one: one[2] - one[0])[:4]

    def leave(self) -> None:
        """Disconnect: ranks that wait fail at once."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()
        if self._hub is not None:
            self._hub.close()

    def _answer(self, line: str) -> str:
        try:
            self._socket.sendall(f"{line}\n".encode())
            answer = self._lines.readline().strip()
        except (OSError, ValueError):
            answer = _BROKEN
        if answer in ("", _BROKEN):
            raise UsageError(f"--ranks: a rank of the job has left, or did not arrive within {self._timeout:.0f} s")
        return answer


def _connected(file: Path, here: Place, timeout: float) -> tuple[str, socket.socket]:
    """The job's nonce, and a socket on which rank 0 has accepted it. The file of an earlier run has another nonce."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(file.read_text())
            for address in found["addresses"]:
                with suppress(OSError):
                    made = socket.create_connection((address, found["port"]), timeout=timeout)
                    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    made.sendall(f"{here.rank} {found['nonce']}\n".encode())
                    if made.recv(1) == b"+":
                        return str(found["nonce"]), made
                    made.close()
        time.sleep(_POLL_S)
    raise UsageError(
        f"--ranks: rank {here.rank} of {here.world} found no rank 0 by {file} within {timeout:.0f} s; the folder must "
        "be the same one on all ranks"
    )


class _Hub:
    """Rank 0's side: a thread per rank."""

    def __init__(self, file: Path, world: int, timeout: float) -> None:
        self._world, self._nonce, self._file = world, secrets.token_hex(8), file
        self._round, self._values, self._broken = 0, dict[int, str](), False
        self._results: dict[int, str] = {}
        self._changed = threading.Condition()
        self._timeout, self._connected = timeout, 0
        self._server = socket.create_server(("", 0), backlog=world)
        own = os.environ.get("MASTER_ADDR", "")
        addresses = [one for one in (own, socket.gethostname(), "127.0.0.1") if one]
        where = {"addresses": addresses, "port": self._server.getsockname()[1], "nonce": self._nonce}
        with replacing(file) as out:
            out.write(json.dumps(where).encode())
        threading.Thread(target=self._accept, daemon=True, name="kscope-rendezvous").start()

    def close(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._connected, _LEAVING_S)
        self._server.close()
        with suppress(OSError):
            self._file.unlink()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(made,), daemon=True, name="kscope-rendezvous").start()

    def _serve(self, made: socket.socket) -> None:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with made, made.makefile("r", encoding="utf-8") as lines:
            rank, _, nonce = lines.readline().strip().partition(" ")
            if nonce != self._nonce or not rank.isdecimal():
                return
            with self._changed:
                self._connected += 1
            with suppress(OSError, ValueError):
                made.sendall(b"+")
                for line in lines:
                    text = line.strip()
                    answer = str(time.time_ns()) if text == "?" else self._gathered(int(rank), json.loads(text))
                    made.sendall(f"{answer}\n".encode())
            with self._changed:
                self._broken, self._connected = True, self._connected - 1
                self._changed.notify_all()

    def _gathered(self, rank: int, value: str) -> str:
        with self._changed:
            number, wait = self._round, max(self._timeout, LATER_S) if self._round else self._timeout
            self._values[rank] = value
            if len(self._values) == self._world:
                self._results[number] = json.dumps([self._values[one] for one in range(self._world)])
                self._results.pop(number - 1, None)
                self._round, self._values = number + 1, {}
                self._changed.notify_all()
            done = self._changed.wait_for(lambda: number in self._results or self._broken, wait)
            return self._results[number] if done and number in self._results else _BROKEN
