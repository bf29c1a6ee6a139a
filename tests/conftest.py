"""Settings of all tests: hypothesis profiles, sampling of variations, and skipping without a GPU.

HYPOTHESIS_PROFILE is fast (the default), thorough, repeat (.ci/run: as many examples as fast, always the same),
or brief (a few of them, for tests that run again with other versions of a dependency).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import disassembled
import pytest
from hypothesis import HealthCheck, settings
from samples import SAMPLED, runs, sampled

ROOT = Path(__file__).resolve().parent.parent

for _name, _examples in (("fast", 12), ("thorough", 400)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
settings.register_profile("repeat", settings.get_profile("fast"), derandomize=True, database=None)
settings.register_profile("brief", settings.get_profile("repeat"), max_examples=8)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def has_gpu() -> bool:
    """True if the machine has an NVIDIA device. Makes no driver call, so tests may fork afterwards."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


if not has_gpu():
    # numpy starts faster in the many processes of the tests; device tests multiply large matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # CuTe reads it when the first test file imports it; without it, functions compiled for sm_90a get no engine
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

disassembled.keep()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without variations are not imported for variations."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("variation and "):
        return None
    file = collection_path.relative_to(ROOT / "tests").as_posix()
    has = sampled(file) or any(name.startswith(f"{file}::") for name in SAMPLED)
    return None if has or "variation" in collection_path.read_text() else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark variations; skip tests marked gpu on a machine without one, and name the command that runs them.

    KSCOPE_EVERY=N in the environment: of the variations of tests of which `make test` runs cases, all but each Nth are
    slow tests.
    """
    seen: dict[str, int] = {}
    variations: list[tuple[str, pytest.Item]] = []
    runs_one: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0].removeprefix("tests/")
        name = sampled(test)
        if name is not None and not (item.get_closest_marker("slow") or item.get_closest_marker("gpu")):
            if not item.get_closest_marker("variation"):
                number = seen[name] = seen.get(name, -1) + 1
                if not runs(name, number):
                    item.add_marker(pytest.mark.variation)
            if item.get_closest_marker("variation"):
                variations.append((test, item))
            else:
                runs_one.add(test)
        if item.get_closest_marker("gpu") and not has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make gpu"))
    further = [item for test, item in variations if test in runs_one]
    for number, item in enumerate(further, start=1):
        if number % int(os.environ.get("KSCOPE_EVERY", "1")):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector the collected tests and their modules: a walk over them takes a quarter of a second.

    They are not frozen where CuPy, Numba or CuTe is installed, whose kernels kscope finds among the live objects.
    """
    gc.disable()
    yield
    gc.enable()
    gc.set_threshold(10_000, 20, 20)
    if not any(map(find_spec, ("cupy", "numba", "cutlass"))):
        gc.freeze()


def pytest_unconfigure() -> None:
    """Python frees at its end what the libraries expect, or they print what leaked."""
    gc.unfreeze()


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT
