"""Device tests: skipped without a GPU; their measurements are printed as a table at the end. make gpu (python3 -m
pytest tests/gpu)"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

ROW = "measured"
ALONE = {
    "test_accuracy.py": "compares clocks and times",
    "test_activity_join.py": "CUPTI serves one process",
    "test_core_dumps.py::test_warps_of_all_sms_are_dumped": "fills every SM, which the driver stops for its dump",
    "test_launch_stacks.py": "compares times",
    "test_perturb.py": "compares times",
    "test_stalls.py": "CUPTI serves one process",
    "test_stalls_loaded_before.py": "CUPTI serves one process",
    "test_stalls_seeded.py": "CUPTI serves one process",
    "test_stalls_shares.py": "CUPTI serves one process",
    "test_torch_merge.py": "CUPTI serves one process",
    "test_triton.py::test_launches_of_a_compiled_function_wait_for_room_and_are_counted": "waits for the GPU",
    "test_torture.py::test_a_gpu_that_is_nearly_full_records_less_and_counts_the_rest": "fills the device memory",
    "test_volume.py": "times what it writes",
}
"""Files and tests that need a GPU to themselves, and why: `make gpu` runs them after the others."""
ALL_GPUS = {
    "test_two_gpus.py::test_a_stream_that_waits_for_one_of_the_other_gpu_is_seen_to_wait": "compares clocks",
    "test_two_gpus_ranks.py": "compares clocks",
}
"""Those that need all GPUs to themselves: `make gpu` runs them last."""


def _rotate_gpus() -> None:
    """Let the workers that run side by side use different GPUs first. Before CUDA is used, which reads the order."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or find_spec("torch") is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return
    import torch

    count, first = torch.cuda.device_count(), int(worker.removeprefix("gw"))
    if count > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str((first + at) % count) for at in range(count))


_rotate_gpus()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    reason = f"needs {' and '.join(missing)}" if missing else "" if _gpu() else "needs an NVIDIA GPU: make gpu"
    for item in items:
        if "tests/gpu" in str(item.path):
            item.add_marker(pytest.mark.gpu)
            test = item.nodeid.partition("[")[0].removeprefix("tests/gpu/")
            names = {test, item.path.name}
            if names & ALONE.keys():
                item.add_marker(pytest.mark.alone)
            if names & ALL_GPUS.keys():
                item.add_marker(pytest.mark.all_gpus)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def _gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found if hasattr(report, "when")]
    rows = [row for report in reports if report.when == "call" for name, row in report.user_properties if name == ROW]
    if not rows:
        return
    width = max(len(what) for what, _ in rows)
    terminalreporter.section("measured on this device")
    for what, found in rows:
        terminalreporter.write_line(f"{what:<{width}}  {found}")


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Add a line to the table at the end. It is passed in the test's report, because xdist's workers print nothing."""
    return lambda what, found: request.node.user_properties.append((ROW, (what, found)))


@pytest.fixture
def two_gpus() -> None:
    """Skips on machines with fewer GPUs."""
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.fixture(autouse=True)
def _plain() -> Iterator[None]:
    """No test leaves the process prepared."""
    yield
    import kscope

    kscope.disable()
