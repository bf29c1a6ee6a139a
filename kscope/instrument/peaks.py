"""The peak rates of a GPU, measured by `kscope doctor --peaks FILE`: the reference of rates."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import orjson

from ..errors import FormatError
from ..util.json_values import dump_json

_SCHEMA = "kscope.peaks"


@dataclass(frozen=True)
class Peaks:
    """Measured peaks of a GPU.

    Attributes:
        gpu: its name.
        sms: its SMs.
        bandwidth: bytes per ns (GB/s) read from memory.
        fma: floating-point operations per ns (GFLOP/s) of 32-bit multiply-adds.
        matrix: the same for 16-bit matrix instructions with 32-bit sums; 0 if they were not measured.
    """

    gpu: str
    sms: int
    bandwidth: float
    fma: float
    matrix: float = 0.0

    def __str__(self) -> str:
        matrix = f", {self.matrix / 1e3:,.0f} TFLOP/s by 16-bit matrix instructions" if self.matrix else ""
        return f"{self.bandwidth:,.0f} GB/s read from memory, {self.fma / 1e3:,.1f} TFLOP/s by 32-bit FMA{matrix}"

    def to_json(self) -> bytes:
        """The peaks as a file."""
        return dump_json({"schema": _SCHEMA, **asdict(self)}, indent=True)

    @staticmethod
    def from_json(data: bytes, name: str) -> Peaks:
        """Inverse of to_json().

        Args:
            data: the file's bytes.
            name: of the file, for messages.

        Raises:
            FormatError: it is no such file.
        """
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
            raise FormatError(f"{name}: not what kscope doctor --peaks writes")
        try:
            amounts = {one.name: float(found[one.name]) for one in fields(Peaks) if one.name not in ("gpu", "sms")}
            peaks = Peaks(str(found["gpu"]), int(found["sms"]), **amounts)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{name}: damaged ({error}); measure again with kscope doctor --peaks") from None
        if not (peaks.sms > 0 and peaks.bandwidth > 0 and peaks.fma > 0 and peaks.matrix >= 0):
            raise FormatError(f"{name}: a peak is not positive; measure again with kscope doctor --peaks")
        return peaks
