"""What torch's flight recorder writes for a rank when a collective times out: `kscope run` adds where the warps were.

torch writes one file per rank, by C++ that no library can add to from Python. So kscope writes its own file beside it,
under a name that torch's analyzer does not take for a dump.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...session.launcher import place
from ...util.atomic_files import replacing

VARIABLES = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
"""The first part of the dumps' names, which the rank follows."""
_DEFAULT = ".cache/torch/comm_lib_trace_rank_"


class TorchDumps:
    """The dump of this rank, which may appear.

    Args:
        environment: of the program.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        given = next((environment[name] for name in VARIABLES if environment.get(name)), "")
        first = Path(given) if given else Path(environment.get("HOME") or "/tmp", _DEFAULT)
        rank = place(environment).rank
        self._dump = first.with_name(f"{first.name}{rank}")
        self._beside = first.with_name(f"kscope_rank_{rank}.txt")
        self._seen = self._written()

    def is_new(self) -> bool:
        """Whether torch has written the dump since this was last asked, or since the program began."""
        before, self._seen = self._seen, self._written()
        return self._seen > before

    def _written(self) -> int:
        """When, in UNIX ns; 0: there is none."""
        try:
            return self._dump.stat().st_mtime_ns
        except OSError:
            return 0

    def add(self, lines: list[str]) -> Path:
        """Write lines to the file beside it; returns its path. Raises OSError."""
        with replacing(self._beside) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
        return self._beside
