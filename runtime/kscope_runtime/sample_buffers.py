"""Buffers for CUPTI's samples, and the modules that CUPTI has reported."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from kscope.errors import DriverError
from kscope.instrument import loaded_code

from .cupti import Data, PcData

PCS = 1 << 13
"""Most instructions that one read returns."""
MOST_CUBIN_BYTES = 1 << 30
"""Bytes of modules that are kept to read their code; later ones are not."""
_PC_DATA = np.dtype(
    [("size", "<u8"), ("cubin", "<u8"), ("pc", "<u8"), ("index", "<u4"), ("pad", "<u4"), ("name", "<u8"),
     ("reasons", "<u8"), ("reason", "<u8"), ("correlation", "<u4"), ("end", "<u4")]
)  # fmt: skip
"""dtype of cupti.PcData."""
_REASON = np.dtype([("index", "<u4"), ("samples", "<u4")])


@dataclass
class Modules:
    """The cubins that CUPTI has reported, by numbers that are smaller than its checksums.

    Attributes:
        cubins: their bytes; empty for those beyond the limit.
        refused: reason why the library reports none; empty if it does.
    """

    cubins: dict[int, bytes] = field(default_factory=dict)
    refused: str = ""
    _bytes: int = 0
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def seen(self, cubin: bytes) -> int:
        """The number of a cubin: the same for equal ones."""
        with self._lock:
            number = self._numbers.get(cubin, len(self.cubins) + 1)
            if number not in self.cubins:
                keeps = self._bytes + len(cubin) <= MOST_CUBIN_BYTES
                self.cubins[number] = cubin if keeps else b""
                self._bytes += len(cubin) if keeps else 0
                if keeps:
                    self._numbers[cubin] = number
            return number

    def code(
        self, functions: Iterable[tuple[str, int]], checksum: Callable[[bytes], int]
    ) -> dict[tuple[str, int], bytes]:
        """The cubins of functions' modules, without unknown ones.

        A module that was loaded before the session has CUPTI's number, and was reported in an earlier session or
        between sessions, or a frontend has kept it.

        Args:
            functions: their names, and the numbers of their modules.
            checksum: the number of a module that CUPTI has not reported: modules with equal code share it.
        """
        functions = set(functions)
        found = {one: self.cubins[one[1]] for one in functions if self.cubins.get(one[1])}
        missing = {one: one[0].encode() + b"\0" for one in functions if one[1] not in self.cubins}
        for cubin in chain(reversed(list(self.cubins.values())), loaded_code.kept_cubins()):
            if not missing:
                break
            if named := [one for one, name in missing.items() if name in cubin]:
                number = -1
                with suppress(DriverError):  # the library cannot read it
                    number = checksum(cubin)
                for one in named:
                    if one[1] == number:
                        found[one] = cubin
                        del missing[one]
        return found

    def why_unknown(self, number: int) -> str:
        """Reason why a module's code is not kept."""
        if self.refused:
            return f"the library does not show modules: {self.refused}"
        if number in self.cubins:
            return f"the modules of this process exceed {MOST_CUBIN_BYTES >> 20} MiB"
        return (
            "its module was loaded before sampling began, and the library did not show it; begin the first session "
            "with stalls=True, or kscope run --stalls, before the kernel is first launched"
        )


def keep_forever(kept: object) -> None:
    """Never free an object, not even when the interpreter ends: C code keeps its address."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


class Buffer:
    """Memory for CUPTI's samples: a Data, its instructions, and the reasons of each.

    Args:
        reasons: number of reasons.
    """

    def __init__(self, reasons: int) -> None:
        self._reasons = np.zeros((PCS, max(1, reasons)), _REASON)
        self._pcs = np.zeros(PCS, _PC_DATA)
        self._pcs["size"] = ctypes.sizeof(PcData)
        self._pcs["reason"] = self._reasons.ctypes.data + np.arange(PCS) * self._reasons.strides[0]
        self.data = Data(ctypes.sizeof(Data), PCS, pc_data=self._pcs.ctypes.data)

    def taken(self) -> tuple[np.ndarray, np.ndarray]:
        """(instructions, reasons) that CUPTI wrote: copies, (n,) of _PC_DATA and (n, reasons) of _REASON with unused
        ones 0.
        """
        count = min(int(self.data.pcs), len(self._pcs))
        pcs, reasons = self._pcs[:count].copy(), self._reasons[:count].copy()
        unused = np.arange(reasons.shape[1]) >= pcs["reasons"][:, None]
        reasons["samples"][unused] = 0
        return pcs, reasons
