"""The `.kscope` file: a self-contained capture, safe to open from an untrusted source.

"kscope capture 1\\n"    version of this container; slabs carry layout.HEADER_WORD's
u64 size, u32 crc32      of the head, little-endian
head                     UTF-8 JSON: session, modules, and per device [lines, [[stored, crc32, packed], ...]]
chunks                   the devices' lines, device after device, CHUNK lines each (the last has fewer):
                         zlib of the lines' sixteen word planes (packed = 1), or the lines as they are (0);
                         bytes after the zlib data of a chunk are ignored
sections                 optional data, by name, zlib: [[name, stored, crc32, unpacked], ...]
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from ..errors import FormatError, UsageError
from ..util import bounded_reading
from ..util.atomic_files import replacing, writable
from ..util.json_values import dump_json
from ..util.parallel import map_ahead
from ..util.progress import no_progress
from . import device_heads, metadata, sections
from .capture_data import CaptureData, LaunchCount, LaunchLine
from .head_values import list_of, number
from .layout import LINE

VERSION = 1
MAGIC = b"kscope capture "
FIRST_LINE = MAGIC + b"%d\n" % VERSION
CHUNK = 1 << 14
"""Lines per chunk: 1 MiB."""
MAX_RATIO, FREE_BYTES = 64, 256 << 20
"""A file may unpack to 64 times its size, or to 256 MiB. Writers stay below: they pad the chunks of a nearly empty pool
with zeros.
"""
FREE_HEAD_BYTES, HEAD_SHARE = 16 << 20, 64
"""A head may have 16 MiB, or 1/64 of the memory budget: as Python objects it may be 30 times as large."""

_HEAD_BYTES = 12
_SPOOLED = 256 << 20
"""Bytes of chunks that are kept in memory while a file is written; more go to a temporary file beside it."""
_LEVEL = 1
_EARLIER = {"blocks": "block", "warps": "warp", "sms": "sm", "kernels": "kernel", "regions": "mark"}
"""Names of options in earlier captures."""
_Lines = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class _Chunk:
    lines: int
    stored: int
    crc: int
    packed: bool


def write(capture: CaptureData, path: str | os.PathLike[str]) -> None:
    """Write a capture as in Capture.save()."""
    path = writable(path)
    if path.exists() and not path.is_file():
        raise UsageError(f"{str(path)!r} is not a regular file: give another name")
    with replacing(path) as file, tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(path.parent)) as spool:
        _write(capture, file, spool)
        file.flush()
        os.fsync(file.fileno())


def read(
    path: str | os.PathLike[str], *, max_bytes: int | None = None, step: Callable[[int], object] | None = None
) -> CaptureData:
    """Read a capture as in load_capture(). Every number is checked: sizes must add up to the file's size before
    anything is allocated, and no chunk is unpacked beyond its declared size.
    """
    name = os.fspath(path)
    with open(path, "rb", opener=_nonblocking) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise FormatError(f"{name}: not a regular file; expected a capture written by kscope")
        try:
            return _read(file, info.st_size, max_bytes, step or no_progress)
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from None


def _nonblocking(path: str, flags: int) -> int:
    """Open without waiting for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _write(capture: CaptureData, file: BinaryIO, spool: IO[bytes]) -> None:
    """Write the file. spool: holds the chunks until their sizes, which the head contains, are known."""
    devices = [np.ascontiguousarray(device.lines, "<u4").reshape(-1, 16) for device in capture.devices]
    most = MAX_RATIO if sum(lines.nbytes for lines in devices) > FREE_BYTES else None
    chunks: list[list[list[int]]] = [[] for _ in devices]
    for lines, rows in zip(devices, chunks, strict=True):
        for data, packed in _packed(lines, most):
            spool.write(data)
            rows.append([len(data), zlib.crc32(data), int(packed)])
    heads = [
        {
            **device_heads.to_dict(device),
            "lines": len(lines),
            "chunks": rows,
        }
        for device, lines, rows in zip(capture.devices, devices, chunks, strict=True)
    ]
    extra = sections.pack(capture)
    head = dump_json(
        {
            "epoch": capture.epoch,
            "options": capture.options,
            "host": capture.host,
            "launches": [[kernel, *vars(count).values()] for kernel, count in capture.launches.items()],
            "tuning_launches": capture.tuning_launches,
            "lines": capture.lines,
            "launched_at": [[kernel, *lines] for kernel, lines in capture.launched_at.items()],
            "problems": metadata.problems_to_list(capture.problems),
            "modules": [metadata.to_dict(module) for module in capture.modules],
            "devices": heads,
            **sections.head_entry(extra),
        }
    )
    file.write(FIRST_LINE + len(head).to_bytes(8, "little") + zlib.crc32(head).to_bytes(4, "little"))
    file.write(head)
    spool.seek(0)
    shutil.copyfileobj(spool, file, CHUNK * LINE)
    file.writelines(section.data for section in extra)


def _packed(lines: _Lines, most: int | None) -> Iterator[tuple[bytes, bool]]:
    """(bytes, packed) of each chunk, compressed at most `most` times."""

    def pack(start: int) -> tuple[bytes, bool]:
        chunk = lines[start : start + CHUNK]
        data = zlib.compress(np.ascontiguousarray(chunk.T).tobytes(), _LEVEL)
        data = data if most is None else data.ljust(-(-chunk.nbytes // most), b"\0")
        return (data, True) if len(data) < chunk.nbytes else (chunk.tobytes(), False)

    yield from map_ahead(pack, range(0, len(lines), CHUNK))


def _read(file: BinaryIO, size: int, max_bytes: int | None, step: Callable[[int], object]) -> CaptureData:
    _check_first_line(file.read(len(FIRST_LINE)))
    numbers = file.read(_HEAD_BYTES)
    length = int.from_bytes(numbers[:8], "little")
    start = len(FIRST_LINE) + _HEAD_BYTES
    if len(numbers) < _HEAD_BYTES or length > size - start:
        raise FormatError("truncated within its head: copy it again, or record again")
    if length > FREE_HEAD_BYTES and length > (most := _most_head(max_bytes)):
        raise FormatError(f"the head has {length:,} bytes, expected at most {most:,}: {_trusted(length)}")
    data = file.read(length)
    if zlib.crc32(data) != int.from_bytes(numbers[8:], "little"):
        raise FormatError("the head is damaged (wrong checksum): copy it again, or record again")
    head = _object(_parsed(data), "the head")
    devices = [_object(device, "a device") for device in list_of(head, "devices")]
    plans = [_chunks(device) for device in devices]
    extra = sections.entries_of_head(head)
    stored = sum(chunk.stored for plan in plans for chunk in plan) + sum(one.stored for one in extra)
    if stored != size - start - length:
        state = "truncated" if stored > size - start - length else "longer than its header declares"
        expected = f"{size:,} bytes, expected {start + length + stored:,}"
        raise FormatError(f"{state} ({expected}): copy it again, or record again")
    bytes_needed = sum(chunk.lines for plan in plans for chunk in plan) * LINE + sum(one.size for one in extra)
    small = bytes_needed <= FREE_BYTES and max_bytes is None
    if not small and bytes_needed > (allowed := _most_bytes(size, max_bytes)):
        raise FormatError(
            f"unpacks from {size:,} to {bytes_needed:,} bytes, expected at most {allowed:,}: {_trusted(bytes_needed)}"
        )
    found = tuple(
        device_heads.from_dict(device, _lines(file, plan, step)) for device, plan in zip(devices, plans, strict=True)
    )
    lines, launched_at = _lines_of_launches(head)
    return CaptureData(
        lines=lines,
        launched_at=launched_at,
        epoch=number(head, "epoch", 0, 0xFFFFFFFF),
        devices=found,
        modules=tuple(metadata.from_dict(module) for module in list_of(head, "modules")),
        options=_options(_object(head.get("options"), "options")),
        problems=metadata.problems_from_list(head.get("problems")),
        host=_object(head.get("host"), "host"),
        launches=dict(_launches(row) for row in list_of({"launches": [], **head}, "launches")),
        tuning_launches=number({"tuning_launches": 0, **head}, "tuning_launches", 0, 1 << 62),
        **sections.unpack(extra, file),
    )


def _most_head(max_bytes: int | None) -> int:
    """The largest head that is read. Reading the machine's memory size takes as long as reading a small capture."""
    return max(FREE_HEAD_BYTES, bounded_reading.memory_budget() // HEAD_SHARE, max_bytes or 0)


def _most_bytes(size: int, max_bytes: int | None) -> int:
    """The most bytes that a file of that size may unpack to: a share of the memory as well, because a sparse file's
    size is free.
    """
    if max_bytes is not None:
        return max_bytes
    return max(FREE_BYTES, min(MAX_RATIO * size, bounded_reading.memory_budget()))


def _options(found: dict[str, Any]) -> dict[str, Any]:
    """The options under their current names."""
    named = {_EARLIER.get(name, name): value for name, value in found.items()}
    strategy = named.get("strategy")
    return {**named, "strategy": metadata.current_spec(strategy)} if isinstance(strategy, str) else named


def _trusted(size: int) -> str:
    return f"if you trust the file, pass --max-bytes {size}, or load it with max_bytes={size}"


def _check_first_line(found: bytes) -> None:
    if found == FIRST_LINE:
        return
    version = found.removeprefix(MAGIC).rstrip(b"\n")
    if found.startswith(MAGIC) and version.isdigit():
        raise FormatError(
            f"a capture of version {version.decode()}; this kscope reads version {VERSION}: update kscope"
        )
    if FIRST_LINE.startswith(found):
        raise FormatError("truncated or empty: copy it again, or record again")
    remedy = "record one with kscope run SCRIPT or kscope.profile('run.kscope')"
    raise FormatError(f"not a kscope capture (begins with {found[:8]!r}); {remedy}")


def _chunks(device: dict[str, Any]) -> list[_Chunk]:
    """The chunks of a device, with valid sizes."""
    lines, rows = number(device, "lines", 0, 1 << 50), list_of(device, "chunks")
    if -(-lines // CHUNK) != len(rows):
        raise FormatError(f"invalid head: {lines:,} lines in {len(rows):,} chunks")
    chunks = []
    for index, row in enumerate(rows):
        match row:
            case [int(stored), int(crc), 0 | 1 as packed] if stored > 0:
                count = min(CHUNK, lines - index * CHUNK)
                if stored > count * LINE or (not packed and stored != count * LINE):
                    raise FormatError(f"invalid head: chunk {index} has {stored} bytes for {count} lines")
                chunks.append(_Chunk(count, stored, crc, bool(packed)))
            case _:
                raise FormatError(f"invalid head: chunk {index} is {str(row)[:60]}")
    return chunks


def _lines(file: BinaryIO, chunks: list[_Chunk], step: Callable[[int], object]) -> _Lines:
    """The lines of one device, read from the file's current position."""
    lines = np.empty((sum(chunk.lines for chunk in chunks), 16), np.uint32)

    def unpack(at: int, chunk: _Chunk, data: bytes) -> None:
        if len(data) != chunk.stored or zlib.crc32(data) != chunk.crc:
            raise FormatError("the data is damaged (wrong checksum): copy it again, or record again")
        into = lines[at : at + chunk.lines]
        if chunk.packed:
            unpacked = sections.inflated(data, into.nbytes, "the data is", "a chunk has the wrong size")
            into[...] = np.frombuffer(unpacked, "<u4").reshape(16, -1).T
        else:
            into[...] = np.frombuffer(data, "<u4").reshape(-1, 16)

    def stored() -> Iterator[tuple[int, _Chunk, bytes]]:
        at = 0
        for chunk in chunks:
            yield at, chunk, file.read(chunk.stored)
            at += chunk.lines

    for chunk, _ in zip(chunks, map_ahead(lambda item: unpack(*item), stored()), strict=True):
        step(chunk.stored)
    return lines


def _launches(row: object) -> tuple[int, LaunchCount]:
    """A kernel's id and the number of its launches."""
    match row:
        case [int(kernel), *counts] if 0 <= kernel < 1 << 64 and len(counts) == len(fields(LaunchCount)):
            names = [one.name for one in fields(LaunchCount)]
            found = dict(zip(names, counts, strict=True))
            return kernel, LaunchCount(**{name: number(found, name, 0, 1 << 62) for name in names})
        case _:
            raise FormatError(f"invalid head: a kernel's launches are {str(row)[:60]}")


def _lines_of_launches(head: dict[str, Any]) -> tuple[tuple[LaunchLine, ...], dict[int, tuple[int, ...]]]:
    """Lines of Python, and the index of each launch's line, by kernel id; earlier captures have none."""
    lines, launched = list[LaunchLine](), dict[int, tuple[int, ...]]()
    for row in list_of({"lines": [], **head}, "lines"):
        match row:
            case [str(file), int(line), str(function)]:
                lines.append((file, line, function))
            case _:
                raise FormatError(f"invalid head: a line of Python is {str(row)[:60]}")
    for row in list_of({"launched_at": [], **head}, "launched_at"):
        match row:
            case [int(kernel), *at] if all(type(one) is int and 0 <= one < len(lines) for one in at):
                launched[kernel] = tuple(at)
            case _:
                raise FormatError(f"invalid head: the lines of a kernel's launches are {str(row)[:60]}")
    return tuple(lines), launched


def _parsed(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"the head is not JSON ({error}): copy it again, or record again") from None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"invalid head: {what} is {str(value)[:60]}, expected an object")
    return value
