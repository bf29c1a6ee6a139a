"""Stall samples as a table with one row per instruction and reason: Parquet, Arrow, Feather and CSV."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ..capture.samples import Samples
from ..errors import UsageError
from ..util.atomic_files import replacing, writable
from ..util.json_values import clean
from .csvrows import field

FORMATS = (".parquet", ".arrow", ".feather", ".csv")
COLUMNS = ("kernel", "kernel_hash", "pc", "instruction", "region", "regions", "file", "line", "reason", "samples")
"""`regions`: those open at the instruction, outermost first, separated by /; `region` is the last."""


def beside(path: Path) -> Path:
    """The file of the samples of a trace that is written to a table: run.stalls.parquet of run.parquet."""
    return path.with_suffix(f".stalls{path.suffix}")


def columns(samples: Samples) -> dict[str, list[Any]]:
    """The columns, one entry per row of Samples.rows; None where a value is unknown."""
    found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    place = [{pc: at for at, pc in enumerate(function.at)} for function in samples.functions]
    for number, pc, reason, count in samples.rows.tolist():
        function = samples.functions[number]
        at = place[number].get(pc, -1)
        stack, chain = function.stack(at), function.chain(at)
        values = (
            clean(function.name), None if function.kernel is None else f"0x{function.kernel:x}", pc,
            clean(function.text[at]) if at >= 0 else None, clean(stack[-1]) if stack else None,
            clean("/".join(stack)) or None, clean(chain[0][0]) if chain else None, chain[0][1] if chain else None,
            clean(samples.reasons[reason]), count,
        )  # fmt: skip
        for name, value in zip(COLUMNS, values, strict=True):
            found[name].append(value)
    return found


def write(samples: Samples, path: Path) -> int:
    """Write the table in the format of the suffix.

    Args:
        samples: of a capture; also the vendor's subsets of samples that did not issue.
        path: the file.

    Returns:
        The number of rows.

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingError: pyarrow is not installed.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"-o {path}: expected a suffix of {', '.join(FORMATS)}")
    table = columns(samples)
    if path.suffix == ".csv":
        lines = [",".join(COLUMNS).encode()]
        lines += [b",".join(map(_cell, row)) for row in zip(*table.values(), strict=True)]
        data = b"\n".join([*lines, b""])
    else:
        data = _arrow(table, path.suffix)
    with replacing(writable(path)) as file:
        file.write(data)
    return len(samples.rows)


def _cell(value: str | int | None) -> bytes:
    return b"" if value is None else field(value) if isinstance(value, str) else b"%d" % value


def _arrow(table: dict[str, list[Any]], suffix: str) -> bytes:
    from .columnar import pyarrow  # loaded on first use

    arrow, buffer = pyarrow(), io.BytesIO()
    texts = [name for name in COLUMNS if name not in ("pc", "line", "samples")]
    schema = arrow.schema(
        [(name, arrow.string() if name in texts else arrow.uint64() if name == "samples" else arrow.int64())
         for name in COLUMNS]
    )  # fmt: skip
    rows = arrow.table(table, schema)
    if suffix == ".parquet":
        arrow.parquet.write_table(rows, buffer, compression="zstd")
        return buffer.getvalue()
    options = arrow.ipc.IpcWriteOptions(compression="lz4" if suffix == ".feather" else None)
    with arrow.ipc.new_file(buffer, schema, options=options) as writer:
        writer.write_table(rows)
    return buffer.getvalue()
