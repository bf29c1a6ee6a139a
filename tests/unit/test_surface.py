"""The public surface of `import kscope`, its import cost, and the installed files."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kscope
from kscope.instrument.options import COMPILED, OPTIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
DSLS = ("triton", "torch", "cutlass", "numba", "cupy", "cuda")
PATHS = [str(ROOT / folder) for folder in (".", "frontends", "runtime")]


def _python(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter that sees the checkout."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _declared() -> set[str]:
    """The names visible to type checkers: __init__.py's imports from kscope's modules."""
    body = ast.parse(Path(kscope.__file__).read_text()).body
    imports = [one for node in body if isinstance(node, ast.If) for one in node.body if isinstance(one, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}


def test_dunder_all_matches_the_declared_names() -> None:
    assert set(kscope.__all__) == _declared() | {"__version__"}
    assert kscope.__all__ == sorted(kscope.__all__)


@pytest.mark.parametrize("name", kscope.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(kscope, name) is not None
    assert name in dir(kscope)


def test_profile_and_enable_take_the_options_of_the_table() -> None:
    taken = {name: list(inspect.signature(getattr(kscope, name)).parameters) for name in ("profile", "enable")}
    assert set(taken["profile"]) == {option.name for option in OPTIONS} | {"path", "then", "export", "torch", "enabled"}
    assert set(taken["enable"]) == set(COMPILED)


def test_the_sessions_page_lists_every_option_and_marks_compiled_ones() -> None:
    section = (ROOT / "docs" / "sessions.md").read_text().partition("## Options\n")[2].partition("\n## ")[0]
    sentence, *table = section.partition("|")[0], *(row for row in section.splitlines() if row.startswith("| `"))
    documented = [name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert set(documented) == set(inspect.signature(kscope.profile).parameters) - {"path"}
    assert re.findall(r"`(\w+)`", sentence.partition(" are compiled in")[0]) == list(COMPILED)


def test_public_things_are_documented() -> None:
    public = [getattr(kscope, name) for name in kscope.__all__ if name != "__version__"]
    assert [thing for thing in public if not (thing.__doc__ or "").strip()] == []


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'regoin'.*\bregion\b"):
        _ = kscope.regoin  # type: ignore[attr-defined]  # the point of the test


def test_importing_kscope_imports_no_dsl_and_no_driver() -> None:
    use = "import json, sys, kscope; [getattr(kscope, name) for name in kscope.__all__]"
    loaded = set(json.loads(_python(f"{use}; print(json.dumps([*sys.modules]))")))
    assert not loaded & {*DSLS, "kscope_runtime", "kscope_triton", "kscope_sim", "pandas", "pyarrow"}


def test_importing_kscope_imports_neither_numpy_nor_its_own_rooms() -> None:
    loaded = _python("import sys, kscope; print(*sorted(sys.modules))").split()
    assert [name for name in loaded if name.startswith(("kscope", "numpy"))] == ["kscope", "kscope._version"]


def test_all_names_of_kscope_take_few_modules_and_no_slow_ones() -> None:
    code = (
        "import json, sys, numpy; before = {*sys.modules}; import kscope; [getattr(kscope, n) for n in kscope.__all__];"
        "print(json.dumps([*sys.modules.keys() - before]))"
    )
    loaded = set(json.loads(_python(code)))
    assert len(loaded) < 200
    assert not loaded & {"asyncio", "ctypes", "email", "http", "multiprocessing", "sqlite3", "ssl", "unittest", "xml"}


def test_a_command_line_imports_only_its_command() -> None:
    code = "import sys; from kscope.cli import main; main(['include']); print('numpy' in sys.modules)"
    assert _python(code).split()[-1] == "False"


def test_kscope_in_the_environment_prepares_at_import() -> None:
    code = "import sys, kscope; print('kscope.session.states' in sys.modules)"
    assert _python(code, KSCOPE="1") == "True"
    assert _python(code, KSCOPE="0") == "False"


def test_the_console_script_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["kscope"].partition(":")
    assert callable(getattr(__import__(module, fromlist=[function]), function))


def test_only_packages_of_kscope_are_installed() -> None:
    setuptools = pytest.importorskip("setuptools")
    for folder, names in {
        ".": {"kscope"},
        "frontends": {"kscope_cuda", "kscope_cute", "kscope_numba", "kscope_sim", "kscope_triton"},
        "runtime": {"kscope_runtime"},
    }.items():
        packages = setuptools.find_packages(str(ROOT / folder), include=["kscope*"])
        assert {package.split(".")[0] for package in packages} == names


def test_every_folder_of_code_is_a_package_and_holds_nothing_stray() -> None:
    for folder in ("kscope", "frontends", "runtime"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path):
                name = path.relative_to(ROOT / folder).as_posix()
                header = name == "kscope_cuda/include/kscope.cuh"
                compiled = name.startswith("native/") and path.suffix in (".c", ".h", ".so")
                page = name.startswith("report/page/") and path.suffix in (".html", ".css", ".js")
                forms = name in ("sass/encoding/forms_sm80.json", "sass/encoding/forms_sm90.json")
                assert header or page or compiled or forms or path.name == "py.typed" or path.suffix == ".py", path
                assert header or page or path.name == "py.typed" or (path.parent / "__init__.py").exists(), path


def test_every_registered_frontend_ships_its_extra_and_types() -> None:
    from kscope.instrument.registry import TABLE

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {entry.extra for entry in TABLE.values() if entry.extra} <= extras.keys()
    for package in {entry.target.split(":")[0].split(".")[0] for entry in TABLE.values()}:
        assert (ROOT / "frontends" / package / "py.typed").exists(), package
