"""The names in a module: the type of their values, their metadata, and their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..capture import layout
from ..capture.model import RegionMeta
from ..errors import UsageError
from ..marks.constants import widened
from ..marks.grammar import Mark
from ..marks.names import ValueType, format_name
from ..marks.wide_values import common, is_wide
from ..ptx import cfg
from .emitting import key_of

ANY = "any"
"""Sort of a name's values that holds for all its marks."""


def with_common_types(function: cfg.Function) -> cfg.Function:
    """The function, with constants of 64 bits where another value of the name has 64 bits."""
    wide: dict[str, ValueType] = {
        mark.name: mark.type for mark in function.marks if mark.type is not None and is_wide(mark.type)
    }
    if not wide:
        return function
    statements = (
        s if s.mark is None or s.mark.name not in wide else replace(s, mark=widened(s.mark, wide[s.mark.name]))
        for s in function.statements
    )
    return replace(function, statements=tuple(statements))


def types_of(kernel: str, marks: Sequence[tuple[Mark, str | None]]) -> dict[tuple[str, str], ValueType | None]:
    """The value type of each name and sort; the wider one, where values have 32 and 64 bits. Raises UsageError if a
    name has values of two types.
    """
    types: dict[tuple[str, str], ValueType | None] = {}
    first: dict[tuple[str, str], str] = {}
    for mark, where in marks:
        if mark.act in ("exit", "pin"):
            continue
        name, sort, _ = key_of(mark, 0)
        place = f" ({where})" if where else ""
        # marks of a name may or may not have a value, but those with one agree in its type
        for key in [(name, sort)] + ([(name, ANY)] if mark.type else []):
            before = first.setdefault(key, place)
            known = types.setdefault(key, mark.type)
            if known != mark.type and (wider := common(known, mark.type)) is not None:
                types[key] = wider
            elif known != mark.type:
                one, other = mark.type or "none", types[key] or "none"
                first_place = "" if place == before else place  # a frontend may know one place per name only
                raise UsageError(
                    f"kernel {kernel}: {format_name(name)} has a value of type {one} at one place{first_place} and"
                    f" {other} at another{before}; give it one type everywhere, or use two names"
                )
    return {(name, sort): types.get((name, ANY), kind) if kind else kind for (name, sort), kind in types.items()}


def region_rows(found: Sequence[tuple[int, RegionMeta]]) -> Iterator[RegionMeta]:
    """The metadata of a name: one row, or one per kernel if its values' types differ."""
    types = {region.type for _, region in found if region.type}
    issued = found[0][1].ends_at_issue_of if all(region.ends_at_issue_of for _, region in found) else None
    origin = next((region.origin for _, region in found if region.origin != "source"), "source")
    if len(types) > 1:
        yield from (replace(region, kernel=number, origin=origin, ends_at_issue_of=issued) for number, region in found)
    else:
        yield replace(found[0][1], type=next(iter(types), None), origin=origin, ends_at_issue_of=issued)


def check_hashes(names: Iterable[str]) -> None:
    """Raise UsageError if two names have one hash."""
    seen: dict[int, str] = {}
    for name in names:
        other = seen.setdefault(layout.name_hash(name), name)
        if other != name:
            raise UsageError(
                f"the names {format_name(other)} and {format_name(name)} have the same 28-bit hash: rename one of them"
            )
