"""A module's metadata as JSON: in its symbol kscope_meta and in capture files.

{"frontend": "triton", "clock": "cycles", "fill": "ring", "strategy": "elected",
 "kernels": [["matmul", 1234, 8]],            name, id, log2(records)
                                              and, if the compiler partitions its warps, or its symbol is not its
                                              name: [["load", [4]], ...], symbol
 "regions": [["load", "i32", "a.py:7"]],      name, type of its value or null, where or null
                                              and, if they differ from null, "source" and null: kernel's index,
                                              origin, asynchronous instruction at whose issue it ends
 "problems": [["pairing", "a sentence", 1]],  kind, text, count
                                              and, if one of them is known: kernel, region, device
 "variables": true,                           only if it uses variables in global or constant memory
 "placement": "schedule",                     only if its machine code was recorded
 "layouts": [[[id, start, end], ...], ...]}   only if it writes rows of several records: theirs; with short clocks,
                                              behind end: the value's constant part, 1 if the row has the rest
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NoReturn, get_args

from ..errors import FormatError, UsageError
from ..marks.names import ValueType
from ..util.json_values import dump_json
from .layout import MAX_LOG2_RECORDS, MIN_LOG2_RECORDS
from .model import KernelMeta, ModuleMeta, Problem, RegionMeta, RoleMeta, RowLayout
from .wire import CLOCK_WORDS, SHORTS

MAX_BYTES = 64 << 20
"""The most bytes of a module's metadata; more is refused before it is parsed."""

_CLOCKS, _FILLS, _TYPES = ("cycles", "globaltimer"), ("ring", "stop"), (None, *get_args(ValueType))
_EARLIER = {"block": "lane0-warp0", "warp": "elected", "warp:any": "elected-any", "lanes": "all"}
"""Specs as earlier captures spell them; those of named warps have + between the numbers."""
_ORIGINS = ("source", "auto", "lines")
_U64 = (1 << 64) - 1


def to_dict(meta: ModuleMeta) -> dict[str, Any]:
    """The metadata as plain lists and dicts, ready for JSON."""
    return {
        "frontend": meta.frontend,
        "clock": meta.clock,
        "fill": meta.fill,
        "strategy": meta.strategy,
        "kernels": [_kernel_to_list(kernel) for kernel in meta.kernels],
        "regions": [_shortest(region, 3) for region in meta.regions],
        "problems": problems_to_list(meta.problems),
        **({"variables": True} if meta.variables else {}),
        **({"placement": meta.placement} if meta.placement != "fence" else {}),
        **({"layouts": list(map(_layout_to_list, meta.layouts))} if meta.layouts else {}),
    }


def from_dict(data: object) -> ModuleMeta:
    """Inverse of to_dict(); every field is checked. Raises FormatError that names the field."""
    found = _fields(data, {"frontend", "clock", "fill", "strategy", "kernels", "regions", "problems"})
    strategy = current_spec(_text("strategy", found["strategy"]))
    _check_strategy(strategy)
    kernels = tuple(_kernel(row) for row in _rows("kernels", found["kernels"], 3, 4, 5))
    return ModuleMeta(
        frontend=_text("frontend", found["frontend"]),
        kernels=kernels,
        regions=tuple(_region(row, len(kernels)) for row in _rows("regions", found["regions"], 3, 4, 5, 6)),
        clock=_one_of("clock", found["clock"], _CLOCKS),
        fill=_one_of("fill", found["fill"], _FILLS),
        strategy=strategy,
        problems=problems_from_list(found["problems"]),
        variables=_bool("variables", found.get("variables", False)),
        placement=_one_of("placement", found.get("placement", "fence"), ("fence", "schedule")),
        layouts=tuple(map(_layout, _rows("layouts", found.get("layouts", []), 2, 3))),
    )


def current_spec(strategy: str) -> str:
    """A strategy's spec; earlier captures spell it differently."""
    return _EARLIER.get(strategy, strategy.replace("+", ","))


def to_json(meta: ModuleMeta) -> bytes:
    """The metadata as UTF-8 JSON without a NUL; equal metadata gives equal bytes."""
    return dump_json(to_dict(meta))


def from_json(data: bytes) -> ModuleMeta:
    """Inverse of to_json(); bytes after the first NUL are not read. Raises FormatError."""
    if len(data) > MAX_BYTES:
        raise FormatError(f"module metadata: {len(data)} bytes, expected at most {MAX_BYTES}")
    import orjson  # not loaded by kscope watch: loading it takes longer than the answer

    try:
        found = orjson.loads(data.partition(b"\0")[0])
    except orjson.JSONDecodeError as error:
        raise FormatError(f"module metadata is not JSON ({error}); was the module built by kscope?") from None
    return from_dict(found)


def problems_to_list(problems: tuple[Problem, ...]) -> list[list[Any]]:
    """[[kind, text, count], ...], and [kind, text, count, kernel, region, device] if one of these is known."""
    return [_shortest(problem, 3) for problem in problems]


def problems_from_list(data: object) -> tuple[Problem, ...]:
    """Inverse of problems_to_list(). Raises FormatError."""
    return tuple(_problem(*row) for row in _rows("problems", data, 3, 4, 5, 6))


def _problem(
    kind: object, text: object, count: object, kernel: object = None, region: object = None, device: object = None
) -> Problem:
    return Problem(
        _text("kind", kind),
        _text("text", text),
        _number("count", count, 0, _U64),
        None if kernel is None else _text("problem's kernel", kernel),
        None if region is None else _text("problem's region", region),
        None if device is None else _number("problem's device", device, 0, _U64),
    )


def _shortest(row: Problem | RegionMeta, least: int) -> list[Any]:
    """The fields of a row, without those at its end that have their defaults; at least the first `least`."""
    values, defaults = list(vars(row).values()), [one.default for one in fields(row)]
    while len(values) > least and values[-1] == defaults[len(values) - 1]:
        values.pop()
    return values


def _kernel_to_list(kernel: KernelMeta) -> list[Any]:
    roles = [[role.name, list(role.warps)] for role in kernel.roles]
    more = [roles, kernel.symbol] if kernel.symbol else [roles] if roles else []
    return [kernel.name, kernel.id, kernel.log2_records, *more]


def _kernel(row: list[Any]) -> KernelMeta:
    name, number, log2, *rest = row
    roles = tuple(_role(*one) for one in _rows("kernel's roles", rest[0], 2)) if rest else ()
    numbers = [warp for role in roles for warp in role.warps]
    if len(numbers) > len(set(numbers)):
        _refuse("kernel's roles", rest[0], "no warp twice")
    return KernelMeta(
        _text("kernel's name", name),
        _number("kernel's id", number, 0, _U64),
        _number("kernel's log2_records", log2, MIN_LOG2_RECORDS, MAX_LOG2_RECORDS),
        roles,
        _text("kernel's symbol", rest[1]) if len(rest) > 1 else "",
    )


def _check_strategy(strategy: str) -> None:
    if strategy == ModuleMeta.strategy:  # the default
        return
    from ..marks.strategies import parse_strategy  # kscope watch mostly does without it

    try:
        parse_strategy(strategy)
    except UsageError as error:
        raise FormatError(f"module metadata: {error}") from None


def _role(name: object, warps: object) -> RoleMeta:
    from ..marks.strategies import MAX_WARPS  # as above

    if not _text("role's name", name) or not isinstance(warps, list):
        _refuse("a kernel's role", [name, warps], "a name and a list of warps")
    return RoleMeta(str(name), tuple(_number("role's warp", warp, 0, MAX_WARPS - 1) for warp in warps))


def _region(row: list[Any], kernels: int) -> RegionMeta:
    name, kind, where, *rest = row
    kernel, origin = rest[0] if rest else None, rest[1] if len(rest) > 1 else "source"
    issued = rest[2] if len(rest) > 2 else None
    if kernel is not None or len(rest) == 1:
        kernel = _number("region's kernel", kernel, 0, kernels - 1)
    if not _text("region's name", name):
        raise FormatError("module metadata: a region's name is empty")
    checked = None if kind is None else _one_of("region's type", kind, _TYPES)
    place = None if where is None else _text("region's where", where)
    issued = None if issued is None else _text("region's asynchronous instruction", issued)
    return RegionMeta(name, checked, place, kernel, _one_of("region's origin", origin, _ORIGINS), issued)


def _layout_to_list(about: RowLayout) -> list[list[int]]:
    values = about.values or ((),) * len(about.records)
    return [[*record, *map(int, value)] for record, value in zip(about.records, values, strict=True)]


def _layout(row: list[Any]) -> RowLayout:
    parts = _rows("a layout", row, 3, 5)
    short = len(parts[0]) == 5
    if any(len(part) != len(parts[0]) for part in parts) or len(parts) > (2 if short else 3):
        _refuse("a layout", row, "records of one form")
    last = (SHORTS if short else len(CLOCK_WORDS)) - 1
    records = tuple(
        (
            _number("a layout's record", number, 1, (1 << 32) - 1),
            _number("a layout's start", start, 0, last),
            _number("a layout's end", end, 0, last),
        )
        for number, start, end, *_ in parts
    )
    values = tuple(
        (_number("a layout's value", value[0], 0, (1 << 32) - 1), bool(_number("a layout's rest", value[1], 0, 1)))
        for _, _, _, *value in parts
        if value
    )
    if short and max(end for _, _, end in records) + sum(rest for _, rest in values) > SHORTS:
        _refuse("a layout", row, f"{SHORTS} shorts at most")
    return RowLayout(records, values)


def _refuse(what: str, value: object, expected: str) -> NoReturn:
    raise FormatError(f"module metadata: {what} is {repr(value)[:80]}, expected {expected}")


def _fields(data: object, names: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict) or not names <= data.keys():
        _refuse("the whole", data, f"an object with {', '.join(sorted(names))}")
    return data


def _rows(what: str, data: object, *widths: int) -> list[list[Any]]:
    if not isinstance(data, list):
        _refuse(what, data, "a list")
    for row in data:
        if not isinstance(row, list) or len(row) not in widths:
            _refuse(f"an entry of {what}", row, f"a list of {' or '.join(map(str, widths))}")
    return data


def _text(what: str, value: object) -> str:
    return value if isinstance(value, str) else _refuse(what, value, "a string")


def _number(what: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(what, value, f"a number from {least} to {most}")
    return value


def _bool(what: str, value: object) -> bool:
    return value if isinstance(value, bool) else _refuse(what, value, "true or false")


def _one_of(what: str, value: object, known: tuple[str | None, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        _refuse(what, value, f"one of {', '.join(word for word in known if word)}")
    return value
