"""The lines of docs/howto/ranks-data.md, run as they are: every engine adds up records of ranks as `kscope query` does.

KSCOPE_ENGINES is the interpreter of a venv with kscope, duckdb, dask, ray and pyspark, which `make test-engines` makes.
Spark also needs java.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from jobs import Job

from kscope.cli import main

ENGINES = os.environ.get("KSCOPE_ENGINES")
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "ranks-data.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0].strip().split("\n\n")
NAMES = [re.findall(r"duckdb|dask|ray|spark", one)[0] for one in SNIPPETS]
pytestmark = pytest.mark.skipif(not ENGINES, reason="no engines: make test-engines")
RUN = """
import ast, json, sys
*before, last = ast.parse(sys.argv[1]).body
names = {}
exec(compile(ast.Module(before, []), "page", "exec"), names)
found = eval(compile(ast.Expression(last.value), "page", "eval"), names)
if hasattr(found, "fetchall"):
    found = found.fetchall()
elif hasattr(found, "items"):
    found = found.items()
rows = [one.values() if isinstance(one, dict) else one for one in found]
print("sums", json.dumps({int(rank): float(ns) for rank, ns in rows}))
"""


def test_the_page_has_a_snippet_for_each_engine() -> None:
    assert NAMES == ["duckdb", "dask", "ray", "spark"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The folder of a job, beside whose Parquet files are captures and clock files, and ns of all records by rank."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("job") / "run"
    Job(3, steps=4, late={(1, 2): 50_000}).save_compared(folder)
    assert main(["merge", str(folder), "-o", str(folder)]) == 0
    assert ENGINES is not None
    sums = "SELECT rank, sum(dur_ns) AS ns FROM records GROUP BY rank"
    command = [ENGINES, "-m", "kscope", "query", str(folder), sums, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return folder, {str(int(row["rank"])): row["ns"] for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=NAMES)
def test_every_engine_adds_up_as_kscope_query_does(snippet: str, dataset: tuple[Path, dict[str, float]]) -> None:
    if "spark" in snippet and shutil.which("java") is None:
        pytest.skip("no java")
    folder, expected = dataset
    assert ENGINES is not None
    command = [ENGINES, "-c", RUN, snippet]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [one for one in done.stdout.splitlines() if one.startswith("sums ")]
    assert json.loads(line.removeprefix("sums ")) == pytest.approx(expected)
    assert len(expected) == 3


def test_the_pages_sql_runs(dataset: tuple[Path, dict[str, float]]) -> None:
    folder, expected = dataset
    [sql] = re.findall(r'^kscope query run/ "(SELECT rank.*)"$', PAGE, re.M)
    assert ENGINES is not None
    command = [ENGINES, "-m", "kscope", "query", "run/", sql, "--json"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert {row["region"] for row in rows} == {"load", "dot", "exchange"}
    assert sum(list(row.values())[2] for row in rows) == pytest.approx(sum(expected.values()))
