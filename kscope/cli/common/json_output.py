"""`--json`: a command's result for programs, with its schema, facts about the recording, and lists of bounded
length.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...util import json_values
from ...util.text import is_number

if TYPE_CHECKING:
    from ...trace import Trace

VERSION = 1
"""Version of the schemas: increased when a field is renamed, removed or changes its meaning."""
MOST = 100
"""Members of each list without --top."""


def add(parser: Any, *, top: str = f"the first N of each list of --json ({MOST})", json: bool = True) -> None:
    """Add --json and --top to a parser or a group; `json` is False if the command has its own --json."""
    if json:
        parser.add_argument("--json", action="store_true", help="the result as JSON, see docs/commands.md")
    parser.add_argument("--top", metavar="N", type=_count, help=top)


def answer(options: argparse.Namespace, data: Mapping[str, Any], *traces: Trace, indent: bool = True) -> str:
    """The text of an answer.

    Args:
        options: the namespace with `parser` and `top`.
        data: the answer; lists of rows anywhere in it are cut to their first `top`, lists of values to 100 or `top`,
            whichever is more. Its `left_out`, counts by list, is kept.
        *traces: source of the answer; one for `recorded`, two for a list of both, none for no such field.
        indent: on several lines.

    Returns:
        JSON; NaN is null.
    """
    most = options.top or MOST
    left_out = dict(data.get("left_out", {}))
    found: dict[str, Any] = {"schema": f"kscope.{options.parser.prog.split()[-1]}", "version": VERSION}
    if traces:
        from ...tracedata.info import info  # loads numpy, which kscope watch does not need

        facts = [info(trace).to_dict() for trace in traces]
        found["recorded"] = facts[0] if len(facts) == 1 else facts
    found |= _cut({name: value for name, value in data.items() if name != "left_out"}, "", most, left_out)
    found["left_out"] = left_out
    return json_values.dump_json(found, indent=indent).decode()


def show(
    options: argparse.Namespace, data: Callable[[], Mapping[str, Any]], text: Callable[[], object], *traces: Trace
) -> None:
    """Print a result: with --json the answer with `data`, else `text`."""
    print(answer(options, data(), *traces) if options.json else text())


def _cut(value: Any, name: str, most: int, left_out: dict[str, int]) -> Any:
    """The value with at most `most` members in every list; adds the others to the counts, by their lists' names."""
    if isinstance(value, Mapping):
        return {key: _cut(one, f"{name}.{key}".lstrip("."), most, left_out) for key, one in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if not isinstance(value, (list, tuple)):
        import numpy as np

        if not isinstance(value, np.ndarray):
            return value
        value = value.tolist()
    rows = any(isinstance(one, (Mapping, list, tuple)) for one in value)
    limit = most if rows else max(most, MOST)
    if len(value) > limit:
        left_out[name] = left_out.get(name, 0) + len(value) - limit
    return [_cut(one, name, most, left_out) for one in value[:limit]]


def _count(text: str) -> int:
    if not is_number(text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of rows")
    return int(text)
