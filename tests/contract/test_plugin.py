"""A third-party frontend: installed as a package, found through its entry point. test_contract.py checks its records
like those of every frontend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from contract import plugged
from contract.frontend_toylang import KERNELS, toylang

import kscope
from kscope.errors import UnsupportedError
from kscope.instrument import registry
from kscope.instrument.recording import Recording

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the plugin."""
    if find_spec("setuptools") is None or int(metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or later")
    at = tmp_path_factory.mktemp("plugin")
    shutil.copytree(plugged.PLUGIN, at / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(at / "site"), str(at / "source")], check=True, capture_output=True)
    return at / "site"


def python(site: Path, *arguments: str) -> str:
    """The output of a new process in which kscope and the plugin are importable."""
    paths = os.pathsep.join(map(str, (site, ROOT, ROOT / "frontends", ROOT / "runtime")))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_doctor_shows_plugins(site: Path) -> None:
    rows = [line for line in python(site, "-m", "kscope", "doctor").splitlines() if "toylang" in line]
    assert len(rows) == 1
    assert "kscope-toylang 1.0, all hook points found" in rows[0]


def test_an_imported_plugin_joins_sessions(site: Path) -> None:
    script = """
import kscope
import toylang

@toylang.kernel
def fill(k, out, n):
    with kscope.region("fill"):
        k.store(out, 0, n)

never = fill.ptx(90)
kscope.enable()
before = fill.ptx(90)
import kscope_toylang
prepared = fill.ptx(90)
kscope.disable()
print(before == never, "kscope_ctl" in prepared, fill.ptx(90) == never)
"""
    assert python(site, "-c", script) == "True True True\n"


def test_the_contract_suite_runs_for_external_frontends(tmp_path: Path) -> None:
    (tmp_path / "contract").mkdir()
    shutil.copy(ROOT / "tests" / "contract" / "frontend_toylang.py", tmp_path / "contract" / "frontend_stranger.py")
    pytest_of_it = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/contract/test_contract.py"]
    done = subprocess.run(
        [*pytest_of_it, "-m", "not gpu", "-k", "stranger and two_kernels"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_plugins_are_found_only_through_their_entry_point() -> None:
    assert registry.table()["toylang"].target == "kscope_toylang:ToylangFrontend"
    assert "toylang" not in registry.TABLE
    sources = [path for room in ("kscope", "frontends", "runtime") for path in (ROOT / room).rglob("*.py")]
    assert len(sources) > 100
    assert [path.name for path in sources if "toylang" in path.read_text()] == []


def test_disabled_marks_leave_the_kernel_text_unchanged() -> None:
    def annotated(k: toylang.Tracer, out: str, n: toylang.Value) -> None:
        with kscope.region("fill", value=n) as region:
            k.store(out, 0, n)
            region.pin(n)
        kscope.instant("done")

    def bare(k: toylang.Tracer, out: str, n: toylang.Value) -> None:
        k.store(out, 0, n)

    bare.__name__ = annotated.__name__
    kernel, frontend = toylang.kernel(annotated), registry.frontend("toylang")
    texts = [kernel.ptx(90)]
    for records in (16, 32, 16):
        frontend.enable(Recording(records=records))
        texts.append(kernel.ptx(90))
    frontend.disable()
    never, small, large, again = texts
    assert kernel.ptx(90) == never == toylang.kernel(bare).ptx(90)
    assert len({never, small, large}) == 3
    assert again == small


def test_no_hook_is_left_behind() -> None:
    lists = [getattr(toylang.hooks, name) for name in ("PASSES", "KEYS", "LOADED", "LAUNCHING")]
    before, frontend = [list(hooks) for hooks in lists], registry.frontend("toylang")
    frontend.enable(Recording())
    frontend.enable(Recording(records=64))
    assert [len(hooks) for hooks in lists] == [1, 1, 1, 1]
    frontend.disable()
    frontend.disable()
    assert lists == before == [[], [], [], []]


def test_a_hook_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(toylang.hooks, "LOADED")
    with pytest.raises(UnsupportedError, match=r"no hooks\.LOADED"):
        registry.frontend("toylang").enable(Recording())


def test_the_runtime_is_notified_of_modules_and_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []

    class Backend:
        def module_loaded(self, module: int) -> None:
            heard.append(module)

        def pace(self, kernel: object = None) -> None:
            heard.append("launch")

    monkeypatch.setitem(registry._backends, "cuda", Backend())
    monkeypatch.setattr("toylang.launching._call", lambda name, *arguments: {"cuModuleLoadData": 77}.get(name, 90))
    monkeypatch.setattr("toylang.launching._capability", lambda: (0, 90))
    frontend = registry.frontend("toylang")
    frontend.enable(Recording())
    try:
        for _ in range(2):
            KERNELS["straight"][(1, 1, 1), (32, 1, 1), 0](0, 1)
    finally:
        frontend.disable()
    assert heard == [77, "launch", "launch"]
