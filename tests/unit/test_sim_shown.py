"""The examples of the simulator work: its page, and the demo's kernel."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import kscope
from kscope.instrument import registry
from kscope.instrument.backend import Backend
from kscope_sim import demo

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_code_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    names: dict[str, object] = {}
    exec(compile(found[1], str(PAGE), "exec"), names)
    assert len(kscope.load_capture("run.kscope").devices[0].lines)


def test_the_simulator_page_shows_every_public_method_of_warp() -> None:
    from kscope_sim import Warp

    page = PAGE.read_text()
    words = [name for name in vars(Warp) if not name.startswith("_") and name not in ("run", "begin", "mark", "read")]
    assert [name for name in words if f"warp.{name}" not in page] == []


def test_the_demo_shows_two_waves_and_one_slow_block() -> None:
    assert demo.obstacle() == ""
    with kscope.profile() as prof:
        demo.run()
    trace = prof.trace
    regions = {"load", "mma", "mainloop", "epilogue", "wait for tile", "wait for room"}
    assert set(trace.region_names()[trace.region]) == regions
    assert trace.problems == ()
    assert len(trace.warps) == demo.BLOCKS * 4
    mainloop = trace.filter(region="mainloop")
    longest = int(mainloop.block[np.argmax(mainloop.dur_cycles)])
    assert longest == demo.SLOW_BLOCK
    waiting = trace.filter(region="wait for tile")
    slow = waiting.dur_cycles[waiting.block == demo.SLOW_BLOCK].mean()
    assert slow > 5 * np.median(waiting.dur_cycles[waiting.block != demo.SLOW_BLOCK])


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Triton and without a GPU."""

    def found(name: str) -> Backend:
        if name == "cuda":
            raise kscope.MissingError("no usable NVIDIA driver")
        return backend(name)

    pytest.importorskip("triton")
    backend = registry.backend
    monkeypatch.setattr(registry, "backend", found)


@pytest.mark.usefixtures("no_driver")
def test_the_simulator_records_beside_a_dsl_without_a_gpu() -> None:
    with kscope.profile() as prof:
        demo.run()
    assert len(prof.trace)
    assert prof.trace.problems == ()


@pytest.mark.usefixtures("no_driver")
def test_a_session_without_kernels_says_what_is_missing_for_the_gpu() -> None:
    with kscope.profile() as prof:
        pass
    assert [problem.text for problem in prof.capture.problems if problem.kind == "absent"] == [
        "nothing is recorded on cuda: no usable NVIDIA driver"
    ]
