"""`kscope run --ranks FOLDER`: the ranks of a job begin together, and compare their clocks at both ends.

FOLDER/rank=0007/NAME.kscope    what the rank recorded
FOLDER/rank=0007/clock.json     the comparisons that it made
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import DriverError, KscopeError, MissingError, UnsupportedError, UsageError
from ..instrument import registry
from ..instrument.backend import PeerSide
from ..merging.ranks.clock_files import FILE, SCHEMA
from ..util.atomic_files import replacing
from ..util.portable import dump_json
from . import peer_clocks
from .launcher import place
from .rendezvous import Rendezvous

_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def folder_of(folder: Path, rank: int) -> Path:
    """Where a rank's files are: a hive partition, of which DuckDB and others read `rank`."""
    return folder / f"rank={rank:04}"


def check(folder: Path) -> Path:
    """This rank's folder, made if it is missing.

    Raises:
        UsageError: it has a recording, or cannot be made.
    """
    own = folder_of(folder, place().rank)
    try:
        own.mkdir(parents=True, exist_ok=True)
        kept = [one.name for one in own.iterdir() if not one.name.startswith(".")]
    except OSError as error:
        raise UsageError(f"--ranks {folder}: {error.strerror}") from None
    if kept:
        raise UsageError(f"--ranks {folder}: {own} has a recording ({kept[0]}); give another folder, or remove it")
    return own


class Job:
    """This rank in the job.

    Args:
        folder: the job's.
        note: prints a line.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self._folder, self._note, self._here = folder, note, place()
        self._meeting: Rendezvous | None = None
        self._readings, self._peers = list[tuple[int, int, int]](), list[dict[str, Any]]()
        self._hosts = list[str]()
        self._side: PeerSide | None = None

    def run(self, execute: Callable[[], object]) -> None:
        """Run the script between two comparisons, while the session records.

        Raises:
            UsageError: a rank did not arrive before the script was to begin.
        """
        self._meeting = Rendezvous(self._folder, self._here)
        try:
            self._hosts = self._meeting.gather(_host())
            self._compare(self._meeting, "begin")
            self._meeting.gather()  # all ranks record, and begin
            try:
                execute()
            except SystemExit as ended:
                if ended.code in (None, 0):
                    self._end(self._meeting)
                raise
            self._end(self._meeting)
        finally:
            self._meeting.leave()

    def _end(self, rendezvous: Rendezvous) -> None:
        """After a script that ended normally."""
        try:
            rendezvous.gather()
            self._compare(rendezvous, "end")
            rendezvous.gather()
        except UsageError as error:  # of a rank that failed: what this one recorded is kept
            self._note(f"{error}: clocks were not compared at the end")
        self._save()

    def _compare(self, rendezvous: Rendezvous, when: str) -> None:
        self._readings += rendezvous.readings()
        members = peer_clocks.ranks_on_host(self._hosts, self._here.rank)
        side = self._gpu(members)
        can = side is not None and side.file >= 0
        able = rendezvous.gather(can)
        with_gpu = [one for one in members if able[one]]
        if side is None or not can or len(with_gpu) < 2:
            return
        name = f"kscope-{rendezvous.nonce}-{with_gpu[0]}-{when}"
        try:
            if self._here.rank == with_gpu[0]:
                self._peers += peer_clocks.lead(name, len(with_gpu) - 1, side)
            else:
                peer_clocks.follow(name, side)
        except (OSError, DriverError) as error:
            self._note(f"rank {self._here.rank}: GPUs were not compared at the {when}: {error}")

    def _gpu(self, members: list[int]) -> PeerSide | None:
        if self._side is None:
            local = next((os.environ[one] for one in _LOCAL if os.environ.get(one, "").isdecimal()), None)
            ordinal = members.index(self._here.rank) if local is None else int(local)
            with suppress(MissingError, UnsupportedError, DriverError):
                self._side = registry.backend("cuda").peer_side(ordinal)
        return self._side

    def _save(self) -> None:
        found = {
            "schema": SCHEMA, "version": 1, "rank": self._here.rank, "host": self._hosts[self._here.rank],
            "gpu": None if self._side is None else self._side.uuid, "rank_0_clock": self._readings,
            "peers": self._peers,
        }  # fmt: skip
        try:
            with replacing(folder_of(self._folder, self._here.rank) / FILE) as file:
                file.write(dump_json(found))
        except (OSError, KscopeError) as error:
            self._note(f"{FILE} was not written: {error}")


def _host() -> str:
    """Identifies this machine, and this start of it."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{os.uname().nodename} {boot}".strip()
