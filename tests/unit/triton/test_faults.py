"""Errors and warnings for kernels that cannot be recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.nvidia import compiler as nvidia

import kscope
from kscope import PairingError, UnsupportedError, UsageError
from kscope.capture import metadata
from kscope.capture.model import RoleMeta
from kscope.instrument.recording import Recording


@triton.jit(noinline=True)
def apart(out, n):
    with kscope.region("work"):
        tl.store(out, n)


@triton.jit
def calls_apart(out, n):
    apart(out, n)


def test_a_noinline_function_is_refused_by_name(compiler):
    with pytest.raises(UnsupportedError, match=r"apart.*noinline"):
        compiler(calls_apart, out="*i32", n="i32")


@triton.jit(noinline=True)
def apart_and_plain(out, n):
    tl.store(out, n)


@triton.jit
def calls_within_a_region(out, n):
    with kscope.region("call"):
        apart_and_plain(out, n)


def test_a_region_around_a_call_is_recorded(compiler):
    kernel = compiler(calls_within_a_region, out="*i32", n="i32")
    assert "call" in kernel.metadata.kscope


@triton.jit
def one_sided(out, n):
    kscope.region("half").enter()
    if n > 3:
        kscope.region("half").exit()
    tl.store(out, n)


def test_an_explicit_enter_without_exit_is_refused(compiler):
    with pytest.raises(PairingError, match=r"kernel one_sided: region 'half' .*test_faults.py:\d+"):
        compiler(one_sided, out="*i32", n="i32")


@triton.jit
def never_runs(out, n):
    if n < n:
        with kscope.region("impossible"):
            tl.store(out, n)
    with kscope.region("possible"):
        tl.store(out + 1, n)


def test_a_region_that_the_compiler_removed_is_named(compiler):
    with pytest.warns(UserWarning, match="kernel never_runs: the Triton compiler removed every mark of 'impossible'"):
        kernel = compiler(never_runs, out="*i32", n="i32")
    (problem,) = metadata.from_json(kernel.metadata.kscope.encode()).problems
    assert problem.kind == "removed"


@triton.jit
def automatic(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    x = tl.make_tensor_descriptor(a, (M, K), (K, 1), (BM, BK))
    y = tl.make_tensor_descriptor(b, (N, K), (K, 1), (BN, BK))
    z = tl.make_tensor_descriptor(c, (M, N), (N, 1), (BM, BN))
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, warp_specialize=True):
        with kscope.region("load"):
            p = x.load((tl.program_id(0) * BM, k * BK))
            q = y.load((tl.program_id(1) * BN, k * BK))
        with kscope.region("dot"):
            total = tl.dot(p, q.T, total)
    z.store((tl.program_id(0) * BM, tl.program_id(1) * BN), total.to(tl.float16))


def test_regions_deleted_by_automatic_warp_specialization_are_restored(compiler):
    types = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32") | {"BM": 128, "BN": 128, "BK": 64}
    with pytest.warns(UserWarning, match="removed every mark of 'dot', 'load'; kscope restored them"):
        kernel = compiler(automatic, 90, {"num_warps": 4}, **types)
    about = metadata.from_json(kernel.metadata.kscope.encode())
    assert [region.name for region in about.regions] == ["dot", "load"]
    assert [problem.kind for problem in about.problems] == ["moved"]
    assert "kernel automatic: the Triton compiler removed every mark" in about.problems[0].text
    assert about.kernels[0].roles == (RoleMeta("load", (0, 1, 2, 3)), RoleMeta("mma", tuple(range(4, 12))))


@pytest.mark.filterwarnings("ignore:kscope.*(registers spill|restored them)")
def test_automatic_warp_specialization_on_blackwell_records(compiler):
    types = dict.fromkeys("abc", "*fp16") | dict.fromkeys("MNK", "i32") | {"BM": 128, "BN": 64, "BK": 64}
    kernel = compiler(automatic, 100, {"num_warps": 4}, **types)
    about = metadata.from_json(kernel.metadata.kscope.encode())
    assert {region.name for region in about.regions} == {"dot", "load"}
    assert ("moved" in {problem.kind for problem in about.problems}) == (triton.__version__ < "3.7")
    roles = {role.name: role.warps for role in about.kernels[0].roles}
    assert roles.keys() == {"default", "mma", "load"}
    assert roles["default"] == (0, 1, 2, 3)


HOOKS = {
    "add_stages_inspection_hook": type(knobs.runtime),
    "kernel_load_end_hook": type(knobs.runtime),
    "launch_enter_hook": type(knobs.runtime),
    "instrumentation_mode": type(knobs.compilation),
    "get_ptxas": nvidia,
    "sm_arch_from_capability": nvidia,
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_missing_hook_point_is_named_with_the_version(frontend, monkeypatch, name):
    monkeypatch.delattr(HOOKS[name], name)
    for knob in (knobs.runtime, knobs.compilation):
        monkeypatch.delitem(vars(knob), name, raising=False)
    with pytest.raises(UnsupportedError, match=rf"triton {triton.__version__} .*{name}"):
        frontend.enable(Recording())


def test_nothing_is_installed_when_a_hook_point_is_missing(frontend, monkeypatch):
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", None)
    hook = knobs.runtime.add_stages_inspection_hook
    with pytest.raises(UnsupportedError):
        frontend.enable(Recording())
    assert knobs.runtime.add_stages_inspection_hook is hook


@pytest.mark.skipif(triton.__version__ >= "3.7", reason="from 3.7 on kscope does not use instrumentation_mode")
def test_another_instrumentation_at_the_same_time_is_refused(frontend, monkeypatch):
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "consan")
    with pytest.raises(UsageError, match="instrumentation_mode='consan'"):
        frontend.enable(Recording())


def test_the_frontend_is_loaded_only_where_triton_is_used():
    import subprocess

    code = "import sys, kscope; assert not {'triton', 'kscope_triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


CALLS = {
    "enable": "kscope.enable()",
    "profile": "kscope.profile().__enter__()",
    "doctor": "from kscope.cli.doctor_checks import examine; print(*examine(), sep='\\n')",
}


@pytest.mark.parametrize("call", CALLS)
def test_an_unsupported_triton_is_reported_by_version(tmp_path: Path, call: str) -> None:
    """An old Triton without knobs: only its version may be read."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '3.5.1'")
    done = subprocess.run(
        [sys.executable, "-c", f"import triton, kscope\n{CALLS[call]}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (call == "doctor")
    message = (done.stdout + done.stderr).strip().splitlines()
    line = next(line for line in reversed(message) if "triton" in line)
    assert "triton 3.5.1 is installed; kscope needs 3.6 or later: pip install -U" in line
    assert call == "doctor" or "UnsupportedError" in line


LOAD = kscope.scope("load")


@triton.jit
def scope_without_call(out, n):
    with LOAD:
        tl.store(out, n)


def test_a_with_on_a_scope_that_is_not_called_is_refused_with_its_line(compiler):
    line = scope_without_call.fn.__code__.co_firstlineno + 2
    with pytest.raises(UsageError, match=rf"test_faults\.py:{line}: with LOAD: .* takes only calls; `with LOAD\(\):`"):
        compiler(scope_without_call, out="*i32", n="i32")
