"""The pool files of a session with survive=, one per device: they also name the program, its modules and launches."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from ..capture.capture import Capture
from ..capture.heads import finished
from ..capture.pools import pool_arrays, pool_folder, pool_reading
from ..capture.pools.pool_file import PoolDevice, PoolFile
from ..instrument.launch_lines import LINES
from ..instrument.recording import Recording
from ..instrument.subset import Subset
from . import torch_handler
from .host_info import facts
from .pool_choice import RATES, choice

KEPT_DEAD = 4
"""Files of dead processes that a new session leaves, the newest ones."""
FRAMES = 12


class Survival:
    """The pool files of one session.

    Args:
        recording: the options for which kernels are compiled.
        subset: which blocks, warps and SMs record.
        epoch: the session.
        started: its start, UNIX time in ns.
        options: the session's options, ready for JSON.

    Raises:
        UsageError: their folder is not private.
    """

    def __init__(self, recording: Recording, subset: Subset, epoch: int, started: int, options: dict[str, Any]) -> None:
        self._folder = pool_folder.private_folder()
        pool_folder.remove_ended(keep=KEPT_DEAD)
        self._recording, self._subset = recording, subset
        self._epoch, self._host, self._options, self._pid = epoch, facts(started), options, os.getpid()
        self._files: list[PoolFile] = []
        self._places: dict[str, str] = {}
        LINES.report(self._launched)

    def open(self, device: PoolDevice, size: int) -> PoolFile:
        """A new file for a device's pool. Raises UsageError, OSError."""
        how, why = self._place(device)
        name = f"{'sim' if device.is_simulated else 'gpu'}{device.ordinal}"
        path = self._folder / pool_folder.name_of(self._pid, self._epoch, name)
        path.unlink(missing_ok=True)  # of an earlier process with this number
        file = PoolFile(path, device, self._epoch, size, is_copy=how == "keeper")
        held = "kscope run holds the memory: the folder has too little room" if file.is_held else ""
        why = "; ".join(filter(None, [why, held]))
        self._places[name] = f"{how} ({why})" if why else how
        file.note("host", {"facts": {**self._host, **self.facts}, "options": self._options})
        self._files.append(file)
        torch_handler.register()
        return file

    @property
    def facts(self) -> dict[str, Any]:
        """The place of each device's records, and the reason, ready for JSON."""
        return {"survive": dict(self._places)}

    def _place(self, device: PoolDevice) -> tuple[str, str]:
        option = str(self._recording.survive)
        if device.is_simulated:
            return "shm", "" if option == "shm" else "simulated memory is the host's"
        if option != "auto":
            return option, ""
        found = choice(device, self._subset, self._recording.strategy)
        return found.how, f"chosen by auto: {found.why}"

    def _launched(self, kernel: int) -> None:
        """Note a launch by a frontend."""
        if os.getpid() != self._pid:  # a forked child, which records nothing
            return
        torch_handler.register()  # it may have been imported meanwhile
        stack, now = LINES.stack(FRAMES), time.time_ns()
        for file in self._files:
            file.launched(kernel, now, stack)

    def has_unfinished(self, capture: Capture) -> bool:
        """True if a warp has not finished. Learns the density of records, by which the next session chooses a place."""
        RATES.learn(capture.devices, self._epoch, self._subset)
        for path in (file.path for file in self._files if not file.is_copy):  # else it fails, if it does not finish
            if not path.exists():  # the driver did not take it
                continue
            pool = pool_reading.open_pool(path)
            at, _ = pool_reading.slabs(pool)
            if not finished(pool_arrays.units(pool)[np.asarray(at)]).all():
                return True
        return False

    def end(self, *, keep: bool) -> None:
        """End the session. Remove the files unless `keep`: a complete capture replaces them."""
        LINES.report(None)
        for file in self._files:
            if os.getpid() == self._pid:
                file.end(remove=not keep)
