"""The dump of torch's flight recorder after a collective has timed out: `kscope run` adds where the warps were.

torch writes one file per rank; kscope writes a second one beside it, which torch's analyzer does not read as a dump.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...session.launcher import place
from ...util.atomic_files import replacing

VARIABLES = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
"""Environment variables with the prefix of the dumps' names; the rank follows it."""
_DEFAULT = ".cache/torch/comm_lib_trace_rank_"


class TorchDumps:
    """Watches for the dump of this rank.

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
        """True if torch has written the dump since the last call, or since the program began."""
        before, self._seen = self._seen, self._written()
        return self._seen > before

    def _written(self) -> int:
        """UNIX time of the dump in ns; 0 if it does not exist."""
        try:
            return self._dump.stat().st_mtime_ns
        except OSError:
            return 0

    def add(self, lines: list[str]) -> Path:
        """Write lines to the file beside it; returns its path. Raises OSError."""
        with replacing(self._beside) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
        return self._beside
