"""The doctor's measurement: its text lowers, assembles, and differs by the marks alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kscope.instrument.recording import Recording
from kscope.lowering import plan
from kscope_runtime import probe

BODIES = [0, 1, 64]


def _text(fmas: int) -> str:
    return probe.HEAD + probe.loop("ks_plain", fmas, marked=False) + probe.loop("ks_marked", fmas, marked=True)


@pytest.mark.parametrize("fmas", BODIES)
def test_only_the_marked_loop_records(fmas: int) -> None:
    lowered = plan.lower(_text(fmas), Recording(records=256), frontend="probe")
    assert lowered.problems == ()
    assert [kernel.name for kernel in lowered.meta.kernels] == ["ks_marked"]
    assert [region.name for region in lowered.meta.regions] == ["probe"]


@pytest.mark.parametrize("fmas", BODIES)
def test_the_probes_work_is_between_its_marks(fmas: int) -> None:
    text = probe.loop("k", fmas, marked=True)
    between = text.partition("enter probe")[2].partition("//kscope exit")[0]
    assert between.count("fma.rn.f32") == fmas == text.count("fma.rn.f32")


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("fmas", BODIES)
def test_the_probe_kernel_assembles_without_spills(tmp_path: Path, fmas: int, arch: int) -> None:
    backends = pytest.importorskip("triton.backends.nvidia")
    ptxas = Path(backends.__path__[0]) / "bin" / ("ptxas-blackwell" if arch >= 100 else "ptxas")
    if not ptxas.exists():
        ptxas = ptxas.with_name("ptxas")
    (tmp_path / "probe.ptx").write_text(plan.lower(_text(fmas), Recording(records=256), frontend="probe").text)
    command = [ptxas, f"-arch=sm_{arch}", "-v", "-o", tmp_path / "probe.cubin", tmp_path / "probe.ptx"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("0 bytes spill stores, 0 bytes spill loads") == 2


def test_a_cost_is_a_difference_in_cycles_and_time() -> None:
    assert str(probe.Cost(40.4, 20.2) - probe.Cost(8.4, 4.2)) == "32 cycles (16.0 ns)"
