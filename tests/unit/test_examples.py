"""Every example runs as it stands: on the GPU where there is one; without, it simulates or compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]


NEEDS = {"cute": "cutlass", "triton": "triton", "gluon": "triton", "cupy": "cupy", "numba": "numba_cuda"}
"""The package without which an example cannot start, by the first word of its name."""


def _parameters() -> list[object]:
    needs = {path: NEEDS.get(path.stem.partition("_")[0], "kscope") for path in EXAMPLES}
    missing = {package: find_spec(package) is None for package in needs.values()}
    return [
        pytest.param(path, id=path.stem, marks=pytest.mark.skipif(missing[package], reason=f"needs {package}"))
        for path, package in needs.items()
    ]


@pytest.mark.parametrize("example", _parameters())
def test_an_example_runs(tmp_path: Path, example: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_an_example_says_how_it_is_run() -> None:
    for example in EXAMPLES:
        assert f"python examples/{example.name}" in example.read_text()
