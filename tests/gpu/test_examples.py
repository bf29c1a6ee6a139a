"""Recordings of the examples: languages agree, tasks keep their order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import kscope
from kscope.trace import Trace

from .checks import ROOT, doubts, run
from .test_sanitizer import clean, sanitizer, under

__all__ = ["sanitizer"]  # a fixture

EXAMPLES = ROOT / "examples"
OF_CUDA = ("cuda_library", "cuda_tma", "cupy_softmax", "cupy_gemm", "cupy_pipeline")
SLACK_NS = 1000
"""SMs are aligned within some hundred ns: far less than a task takes."""


def recorded(tmp_path: Path, example: str, file: str, *arguments: str) -> tuple[Trace, str]:
    """An example's trace and output."""
    done = run([sys.executable, str(EXAMPLES / f"{example}.py"), *arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return kscope.load(tmp_path / file), done.stdout


def test_every_installed_language_records_the_same_regions(tmp_path: Path, table: Callable[[str, str], None]) -> None:
    trace, out = recorded(tmp_path, "same_kernel_everywhere", "everywhere.kscope")
    assert not doubts(trace)
    names = trace.region_names()
    found = [
        (launch.grid, {str(names[region]) for region in np.unique(trace.region[trace.launch == at]).tolist()})
        for at, launch in enumerate(trace.launches)
    ]
    softmax, gemm = ((4096, 1, 1), {"maximum", "sum", "write"}), ((16, 16, 1), {"load", "multiply", "store"})
    half = len(found) // 2
    assert found == [softmax] * half + [gemm] * half
    counts = np.bincount(trace.launch).tolist()
    assert counts == [4096 * 8 * 3] * half + [256 * 8 * (1 + 2 * 64)] * half
    assert half >= 2, out  # Triton and Gluon at least
    for language in ("triton", "gluon"):
        assert f"{language}: " not in out
    assert "AssertionError" not in out  # the omitted languages did not compute wrong results
    for line in next(part for part in out.split("\n\n") if "softmax   " in part).splitlines():
        table(line[:14], line[14:])


@pytest.mark.parametrize("arguments", [(), ("--causal",)], ids=["full", "causal"])
def test_attention_runs_forward_and_backward(
    tmp_path: Path, table: Callable[[str, str], None], arguments: tuple[str, ...]
) -> None:
    trace, _ = recorded(tmp_path, "triton_attention_backward", "backward.kscope", *arguments)
    assert not doubts(trace)
    assert [launch.kernel for launch in trace.launches] == [
        "attention", "attention_delta", "attention_dkdv", "attention_dq",
    ]  # fmt: skip
    for row in trace.summary().regions:
        if row.kernel == "attention_dkdv":
            table(f"attention backward, {' '.join(arguments) or 'full'}: {row.region}", f"{row.share:.1%} of dk, dv")


def test_a_task_of_the_megakernel_begins_when_those_it_waits_for_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, _ = recorded(tmp_path, "triton_megakernel", "megakernel.kscope")
    assert not doubts(trace)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = import_module("triton_megakernel")
    tasks = example.task_list(example.ROWS)
    work = trace.filter(region=("normalize", "multiply", "add"))
    task = work.value.astype(int)
    start, end = np.zeros(len(tasks)), np.zeros(len(tasks))
    start[task], end[task] = work.start_ns, work.start_ns + work.dur_ns
    kinds, rows, _ = np.array(tasks).T
    for earlier, later in (
        (example.NORMALIZE.value, example.MULTIPLY.value),
        (example.MULTIPLY.value, example.ADD.value),
    ):
        ended = np.array([end[(kinds == earlier) & (rows == row)].max() for row in range(rows.max() + 1)])
        begun = start[kinds == later] - ended[rows[kinds == later]]
        assert begun.min() > -SLACK_NS


def test_a_tma_wait_does_not_end_before_its_request(tmp_path: Path) -> None:
    import torch

    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("bulk copies need sm_90")
    trace, _ = recorded(tmp_path, "cuda_tma", "tma.kscope")
    assert not doubts(trace)
    requested, waited = trace.filter(region="room"), trace.filter(region="wait")
    assert set(requested.warp.tolist()) == {8}
    assert set(waited.warp.tolist()) == set(range(8))
    issued = np.full(int(requested.value.max()) + 1, np.inf)
    issued[requested.value.astype(int)] = requested.start_ns + requested.dur_ns
    assert (waited.start_ns + waited.dur_ns - issued[waited.value.astype(int)]).min() > -SLACK_NS


def test_memcheck_finds_nothing_in_the_examples_of_cuda(sanitizer: str, tmp_path: Path) -> None:
    """Run every example in its own process, concurrently; each checks its result and its number of records."""
    import torch

    pytest.importorskip("cupy")
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("bulk copies need sm_90")

    def process(example: str) -> CompletedProcess[str]:
        folder = tmp_path / example
        folder.mkdir()
        alone = "--target-processes", "application-only"  # not the compilers that some of them start
        command = [*under(sanitizer, "memcheck"), *alone, sys.executable, str(EXAMPLES / f"{example}.py")]
        return run(command, cwd=folder, timeout=400)

    with ThreadPoolExecutor(len(OF_CUDA)) as pool:
        for example, done in zip(OF_CUDA, pool.map(process, OF_CUDA), strict=True):
            assert clean(done, "memcheck"), "\n".join([example, done.stdout[-6000:], done.stderr[-3000:]])
            assert list((tmp_path / example).glob("*.kscope")), example
