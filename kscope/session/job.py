"""`kscope run --ranks FOLDER`: the ranks of a job begin together, and compare their clocks at both ends, GPUs of one
host also every few seconds in between.

FOLDER/rank=0007/NAME.kscope     what the rank recorded
FOLDER/rank=0007/clock.json      the comparisons that it made
FOLDER/rank=0007/NAME.parquet    its records on the first rank's clock, see job_files.py
FOLDER/sketches.jsonl            with --sketch: the durations of all ranks
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import DriverError, KscopeError, MissingError, UnsupportedError, UsageError
from ..instrument import registry
from ..instrument.peer_side import PeerSide
from ..merging.ranks.clock_files import FILE, SCHEMA
from ..util.atomic_files import replacing
from ..util.json_values import dump_json
from ..util.processes import boot
from .launcher import place
from .peer_clocks import Follower, Leader
from .rendezvous import Rendezvous

_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


def folder_of(folder: Path, rank: int) -> Path:
    """The folder of a rank's files: a hive partition, from which DuckDB and others read `rank`."""
    return folder / f"rank={rank:04}"


def check(folder: Path) -> Path:
    """This rank's folder, created if it is missing.

    Raises:
        UsageError: it has a recording, or cannot be created.
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

    Attributes:
        folder, note: these.
        here: this process's place.
        together: all ranks have ended their scripts normally.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.folder, self.note, self.here = folder, note, place()
        self.together = True
        self._process = os.getpid()
        self._meeting: Rendezvous | None = None
        self._readings = list[tuple[int, int, int]]()
        self._hosts = list[str]()
        self._side: PeerSide | None = None
        self._clocks: Leader | Follower | None = None

    @property
    def meeting(self) -> Rendezvous:
        """All ranks, after run()."""
        assert self._meeting is not None
        return self._meeting

    @property
    def host(self) -> str:
        """Identifies this rank's machine."""
        return self._hosts[self.here.rank]

    @property
    def leads(self) -> bool:
        """True if this rank compared its GPU's timer with those of others."""
        return isinstance(self._clocks, Leader) and bool(self._clocks.found)

    def run(self, execute: Callable[[], object]) -> None:
        """Run the script between two comparisons, while the session records. The ranks stay together until close().

        Raises:
            UsageError: a rank did not arrive before the script was to begin.
        """
        self._meeting = Rendezvous(self.folder, self.here)
        self._hosts = self._meeting.gather(_host())
        self._begin(self._meeting)
        self._meeting.gather()  # all ranks record, and begin
        try:
            execute()
        except SystemExit as ended:
            if ended.code in (None, 0):
                self._end(self._meeting)
            raise
        self._end(self._meeting)

    def close(self) -> None:
        """Leave the other ranks: those that wait for this one fail at once."""
        if os.getpid() != self._process:
            return  # a forked child has the connections of its parent
        if self._clocks is not None:
            self._clocks.close()
        if self._meeting is not None:
            self._meeting.leave()

    def _end(self, meeting: Rendezvous) -> None:
        """After a script that ended normally."""
        if os.getpid() != self._process:
            return
        try:
            meeting.gather()
            self._readings += meeting.readings()
            if isinstance(self._clocks, Leader):
                self._clocks.stop()
                self._clocks.compare()
            meeting.gather()
        except UsageError as error:  # another rank failed: what this one recorded is kept
            self.together = False
            self.note(f"{error}: clocks were not compared at the end")
        if self._clocks is not None:
            self._clocks.close()
            for trouble in self._clocks.troubles[:1]:
                self.note(f"rank {self.here.rank}: GPU clock comparison stopped early: {trouble}")
        self._save()

    def _begin(self, meeting: Rendezvous) -> None:
        self._readings += meeting.readings()
        members = [one for one, host in enumerate(self._hosts) if host == self.host]
        self._side = side = self._gpu(members)
        can = side is not None and side.file >= 0
        able = meeting.gather(can)
        with_gpu = [one for one in members if able[one]]
        if side is None or not can or len(with_gpu) < 2:
            return
        name = f"kscope-{meeting.nonce}-{with_gpu[0]}"
        try:
            if self.here.rank == with_gpu[0]:
                self._clocks = leader = Leader(name, len(with_gpu) - 1, side)
                leader.compare()
                leader.start()
            else:
                self._clocks = Follower(name, side)
        except (OSError, DriverError) as error:
            self.note(f"rank {self.here.rank}: GPUs were not compared: {error}")

    def _gpu(self, members: list[int]) -> PeerSide | None:
        local = next((os.environ[one] for one in _LOCAL if os.environ.get(one, "").isdecimal()), None)
        ordinal = members.index(self.here.rank) if local is None else int(local)
        with suppress(MissingError, UnsupportedError, DriverError):
            return registry.backend("cuda").peer_side(ordinal)
        return None

    def _save(self) -> None:
        peers = self._clocks.found if isinstance(self._clocks, Leader) else []
        found = {
            "schema": SCHEMA, "version": 1, "rank": self.here.rank, "host": self.host,
            "gpu": None if self._side is None else self._side.uuid, "rank_0_clock": self._readings, "peers": peers,
        }  # fmt: skip
        try:
            with replacing(folder_of(self.folder, self.here.rank) / FILE) as file:
                file.write(dump_json(found))
        except (OSError, KscopeError) as error:
            self.note(f"{FILE} was not written: {error}")


def _host() -> str:
    """Identifies this machine, and this start of it."""
    return f"{os.uname().nodename} {boot()}".strip()
