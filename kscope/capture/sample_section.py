"""Stores samples as bytes in a capture: the functions and names as JSON, then the counts, then the times. Every number
is checked.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any, NoReturn

import numpy as np
import orjson

from ..errors import FormatError
from ..util.json_values import dump_json
from .samples import NO_PLACE, ROW, WINDOW, CodeRegion, CodeWork, Place, Rows, SampledFunction, Samples

_SIZE = 8
_COUNTS = ("dropped", "full", "elsewhere", "left_out")
_MOST = 1 << 32


def to_bytes(samples: Samples) -> bytes:
    """The samples as one section."""
    head = dump_json(
        {
            "period": samples.period,
            "reasons": samples.reasons,
            "sources": samples.sources,
            "functions": [_function_to_dict(function) for function in samples.functions],
            "windows": len(samples.windows),
            **{name: getattr(samples, name) for name in _COUNTS},
        }
    )
    tables = [np.ascontiguousarray(one).tobytes() for one in (samples.rows, samples.windows)]
    return b"".join([len(head).to_bytes(_SIZE, "little"), head, *tables])


def from_bytes(data: bytes) -> Samples:
    """Inverse of to_bytes(). Raises FormatError."""
    size = int.from_bytes(data[:_SIZE], "little")
    body = data[_SIZE + size :]
    try:
        head = orjson.loads(data[_SIZE : _SIZE + size])
    except orjson.JSONDecodeError as error:
        raise FormatError(f"the samples have no valid head ({error}): copy the file again, or record again") from None
    if not isinstance(head, dict):
        _refuse("the head", head)
    times = WINDOW.itemsize * _number(head.get("windows", 0), "windows", 0, _MOST)
    if len(data) < _SIZE + size + times or (len(body) - times) % ROW.itemsize:
        raise FormatError("the samples are damaged: copy the file again, or record again")
    rows, windows = np.frombuffer(body[: len(body) - times], ROW), np.frombuffer(body[len(body) - times :], WINDOW)
    functions = tuple(_function(one) for one in _list(head.get("functions"), "functions"))
    reasons = tuple(_text(one, "a reason") for one in _list(head.get("reasons"), "reasons"))
    if len(rows) and (rows["function"].max() >= len(functions) or rows["reason"].max() >= len(reasons)):
        _refuse("a count", "of a function or reason that is not there")
    if len(rows) and int(rows["count"].max()) >= 1 << 62:
        _refuse("a count", int(rows["count"].max()))
    _check(windows, len(functions))
    counts = {name: _number(head.get(name), name, 0, 1 << 62) for name in _COUNTS}
    sources = head.get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(text, str) for text in sources.values()):
        _refuse("a source file", sources)
    period = _number(head.get("period"), "period", 1, _MOST)
    return Samples(period, reasons, functions, rows, sources=sources, windows=windows, **counts)


def _check(windows: Rows, functions: int) -> None:
    begin, end = windows["begin"], windows["end"]
    if len(windows) and not (begin.min() >= 0 and (begin < end).all() and (np.diff(begin) >= 0).all()):
        _refuse("a time", "that is out of order")
    if len(windows) and (windows["function"].max() >= functions or int(windows["count"].max()) >= 1 << 62):
        _refuse("a time", "of a function that is not there, or of too many samples")


def _function_to_dict(function: SampledFunction) -> dict[str, Any]:
    """The fields that differ from their defaults; regions as lists."""
    found = {one.name: getattr(function, one.name) for one in fields(function)}
    found["regions"] = [_region_to_list(one) for one in function.regions]
    return {name: value for name, value in found.items() if value not in ((), [], None, "")}


def _function(found: object) -> SampledFunction:
    if not isinstance(found, dict):
        _refuse("a function", found)
    get: dict[str, Any] = {"regions": [], "unresolved": [], "why_unknown": "", "stacks": [[]], "kernel": None, **found}
    lists = {
        name: _list(get.get(name, []), name)
        for name in ("at", "text", "live", "place", "places", "opened", "stacks", "ranged")
    }
    places = tuple(tuple(_place(one) for one in _list(chain, "a place")) for chain in lists["places"])
    regions = tuple(_region(one) for one in _list(get["regions"], "regions"))
    stacks = tuple(
        tuple(_number(one, "an open region", 0, len(regions) - 1) for one in _list(stack, "open regions"))
        for stack in lists["stacks"]
    )
    at = tuple(_number(one, "an offset", 0, _MOST) for one in lists["at"])
    each = ("text", "place", "opened", *(name for name in ("live", "ranged") if lists[name]))
    if any(len(lists[name]) != len(at) for name in each) or list(at) != sorted(set(at)):
        _refuse("a function's instructions", get.get("name"))
    kernel = get["kernel"]
    return SampledFunction(
        name=_text(get.get("name"), "a function's name"),
        kernel=None if kernel is None else _number(kernel, "a kernel's id", 0, (1 << 64) - 1),
        at=at,
        text=tuple(_text(one, "an instruction") for one in lists["text"]),
        live=tuple(_number(one, "a number of registers", 0, _MOST) for one in lists["live"]),
        place=tuple(_number(one, "a place", NO_PLACE, len(places) - 1) for one in lists["place"]),
        places=places,
        opened=tuple(_number(one, "an instruction's regions", 0, len(stacks) - 1) for one in lists["opened"]),
        stacks=stacks,
        ranged=tuple(_number(one, "an instruction's regions", 0, len(stacks) - 1) for one in lists["ranged"]),
        regions=regions,
        unresolved=tuple(_text(one, "a region") for one in _list(get["unresolved"], "unresolved")),
        why_unknown=_text(get["why_unknown"], "why_unknown"),
    )


def _region_to_list(region: CodeRegion) -> list[Any]:
    return [region.name, region.file, region.first, region.last, *(astuple(region.work) if region.work else ())]


def _region(found: object) -> CodeRegion:
    match found:
        case [str(name), str(file), int(first), int(last)]:
            return CodeRegion(name, file, first, last)
        case [str(name), str(file), int(first), int(last), moved, shared, flops, bool(matrix), bool(most), str(why)]:
            moved, shared, flops = (_number(one, "a region's work", 0, 1 << 62) for one in (moved, shared, flops))
            return CodeRegion(name, file, first, last, CodeWork(moved, shared, flops, matrix, most, why))
        case _:
            pass
    return _refuse("a region", found)


def _place(found: object) -> Place:
    match found:
        case [str(file), int(line)]:
            return file, line
        case _:
            pass
    return _refuse("a place", found)


def _list(found: object, what: str) -> list[Any]:
    return found if isinstance(found, list) else _refuse(what, found)


def _text(found: object, what: str) -> str:
    return found if isinstance(found, str) else _refuse(what, found)


def _number(found: object, what: str, least: int, most: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        _refuse(what, found)
    return found


def _refuse(what: str, found: object) -> NoReturn:
    raise FormatError(f"invalid samples: {what} is {str(found)[:60]}; record again")
