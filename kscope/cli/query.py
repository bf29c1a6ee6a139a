"""`kscope query`: SQL over the records of a capture, or of all ranks of a job.

kscope query run.kscope "SELECT region, count(*), avg(dur_ns) FROM records GROUP BY region"
kscope query run/ "SELECT rank, max(dur_ns) FROM records WHERE region = 'wait' GROUP BY rank"
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..export.columnar import table
from ..tracedata.data import COLUMNS
from ..util.json_values import single_line
from ..util.packages import needed
from ..util.terminal import cut, grid, terminal_width
from ..util.text import counted
from .common import filters, json_output
from .common.command_parser import Command

_TOP = 50
"""Rows of the table without --top."""
_LONGEST = 2000


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "query", query,
        description=f"The table is `records`, with the columns {', '.join(COLUMNS)}; of a job also `rank`. "
        "DuckDB runs the query.",
    )  # fmt: skip
    about = "a .kscope file, - for stdin; or a folder that kscope run --ranks or kscope merge RUN/ -o FOLDER/ wrote"
    parser.add_argument("capture", metavar="CAPTURE", type=Path, help=about)
    parser.add_argument("sql", metavar="SQL", help="such as 'SELECT region, sum(dur_ns) FROM records GROUP BY region'")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the result as JSON, see docs/commands.md")
    form.add_argument("--csv", action="store_true", help="all rows as CSV")
    json_output.add(parser, top=f"the first N rows (table: {_TOP}, JSON: {json_output.MOST}, CSV: all)", json=False)
    filters.add_opening(parser)


def query(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    duckdb = needed("duckdb", "kscope query needs DuckDB", "query")
    with _records(duckdb, options) as connection:
        try:
            found = connection.execute(options.sql)
            names = [column[0] for column in found.description or ()]
            rows = found.fetchall() if names else []
        except duckdb.Error as error:
            raise UsageError(f"{cut(options.sql, 200)}: {cut(str(error), _LONGEST)}") from error
    if options.csv:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([names, *(rows if options.top is None else rows[: options.top])])
        print(out.getvalue(), end="")
    elif options.json:
        data = {"columns": names, "rows": [dict(zip(names, row, strict=True)) for row in rows]}
        print(json_output.answer(options, data))
    else:
        print("\n".join(_table(names, rows, options.top or _TOP)))
    return 0


@contextmanager
def _records(duckdb: Any, options: argparse.Namespace) -> Generator[Any]:
    """A connection that has the records."""
    with closing(duckdb.connect()) as connection:
        if options.capture.is_dir():
            files = [str(file) for file in _dataset(options.capture)]
            read = connection.read_parquet(files, hive_partitioning=True, union_by_name=True)
            connection.register("records", read.project("* REPLACE (CAST(rank AS BIGINT) AS rank)"))
        else:
            connection.register("records", table(filters.open_trace(options.capture, options)))
        yield connection


def _dataset(folder: Path) -> list[Path]:
    from ..merging.ranks.dataset import partitions  # not needed for a capture

    found = partitions(folder)
    if not found:
        raise UsageError(
            f"{folder}: no dataset (rank=*/*.parquet); write one of its captures: kscope merge {folder} -o {folder}"
        )
    return found


def _table(names: list[str], rows: list[tuple[Any, ...]], top: int) -> list[str]:
    """Lines of a table: text to the left, as in the first column, and numbers to the right."""
    if not names:
        return []
    shown = [[_text(value) for value in row] for row in rows[:top]]
    columns = dict[str, list[str]]()
    for at, name in enumerate(names[1:], 1):
        columns[f"{name} " * (name in columns) or name] = [row[at] for row in shown]
    lines = grid(names[0], [row[0] for row in shown], columns, terminal_width())
    left = len(rows) - len(shown)
    return [*lines, f"  and {counted(left, 'row')} more: --top N"] if left else lines


def _text(value: Any) -> str:
    """A value; floats with six digits."""
    if value is None:
        return "-"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return cut(single_line(str(value)), _LONGEST)
