"""The README's code runs, its commands exist, and its links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from host_tests import of_the_host

import kscope
from kscope import cli
from kscope.analysis import checks
from kscope.analysis.expressions import Quantity, evaluate
from kscope.export import FORMATS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]
BLOCKS = re.findall(r"<!-- runs(?:: (\w+))? -->\n```python\n(.*?)```", README, re.S)


def _parameters() -> list[object]:
    marks = {"gpu": pytest.mark.gpu}
    return [
        pytest.param(code, id=f"block {n}", marks=[marks[where]] if where else [])
        for n, (where, code) in enumerate(BLOCKS)
    ]


@pytest.mark.parametrize("code", _parameters())
def test_every_python_block_of_the_readme_runs_unchanged(tmp_path: Path, code: str) -> None:
    (tmp_path / "block.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "load" in done.stdout
    assert list(tmp_path.glob("*.kscope"))


@of_the_host
def test_every_python_block_of_the_readme_has_a_target() -> None:
    assert len(BLOCKS) == README.count("```python")


@of_the_host
def test_every_make_command_on_the_page_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert {"demo", "test"} <= named <= targets


@of_the_host
def test_the_lines_of_kscope_can_be_parsed() -> None:
    shown = [block for page in PAGES for block in re.findall(r"```(?:ba)?sh\n(.*?)```", page.read_text(), re.S)]
    lines = [line.partition(" #")[0] for block in shown for line in block.splitlines() if line.startswith("kscope ")]
    assert len(lines) >= 4
    parser = cli.parser()
    for line in lines:
        assert callable(parser.parse_args(shlex.split(line)[1:]).command)


@of_the_host
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_of_the_docs_use_existing_names(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block.replace("(...):", "(): ")))):
        if isinstance(node, ast.Attribute) and _is_kscope(node.value):
            assert hasattr(kscope, node.attr), f"kscope.{node.attr}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kscope":
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, one.name) or find_spec(f"{node.module}.{one.name}") for one in node.names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_kscope(node.func.value):
            known = inspect.signature(getattr(kscope, node.func.attr)).parameters
            unknown = [word.arg for word in node.keywords if word.arg is not None and word.arg not in known]
            assert not unknown, f"kscope.{node.func.attr}({unknown})"


def _is_kscope(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "kscope"


@of_the_host
def test_the_readmes_costs_are_those_of_the_page_about_cost() -> None:
    page = (ROOT / "docs" / "cost.md").read_text().replace("*", "")
    known = {tuple(cells[:3]) for line in page.splitlines() if len(cells := _cells(line)) > 3}
    rows = [cells for line in README.partition("## What it costs")[2].splitlines() if len(cells := _cells(line)) == 3]
    rows = [(name, off, on) for name, off, on in rows if on.endswith("%")]
    assert len(rows) == 5
    for name, off, on in rows:
        assert any(one[0].startswith(name.partition(",")[0]) and one[1:] == (off, on) for one in known), name


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


SHOWN = {"trace": kscope.load(next((ROOT / "docs/tutorial").glob("*.kscope"))), "prof": kscope.profile()}
"""Meanings of these names on every page."""


@of_the_host
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_the_docs_call_on_a_trace_or_a_session_exists(page: Path) -> None:
    text = page.read_text()
    code = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M) + re.findall(r"`([^`\n]+)`", text)
    for name, member in re.findall(r"(?<![\w./\"])(trace|prof)\.(\w+)", "\n".join(code)):
        assert member in dir(SHOWN[name]) or f".{member}" in FORMATS, f"{name}.{member}"


@of_the_host
def test_conditions_in_the_docs_use_fields_that_exist() -> None:
    lines = [line for page in PAGES for line in page.read_text().splitlines() if "kscope assert " in line]
    conditions = [text for line in lines for text in re.findall(r'"([^"]+)"', line) if re.search("[<=>]", text)]
    assert len(conditions) > 8
    times, numbers = {*checks.TIMES, *checks.KERNEL, "time"}, {*checks.REGION, *checks.COUNTS, "problems"}

    def value(name: tuple[str, ...]) -> Quantity:
        assert name[-1] in times | numbers, name
        return Quantity(1.0, time=name[-1] in times)

    for text in conditions:
        evaluate(text, value)


@of_the_host
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    for name, heading in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text()):
        target = page if not name else page.parent / name
        known = [re.sub(r"[^\w -]", "", one.lower()) for one in re.findall(r"^#+ (.*)$", target.read_text(), re.M)]
        assert heading in [one.strip().replace(" ", "-") for one in known], f"{name}#{heading}"


@of_the_host
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
