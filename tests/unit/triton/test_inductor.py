"""torch.compile: copied kernels resolve kscope's names, and Inductor's own launch paths are closed while recording."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import triton
import triton.language as tl

import kscope
import triton_kscope
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope_triton import load as loading
from triton_kscope import counter, instant, region

sys.path.append(str(Path(__file__).parent))

from fake_gpu import active  # it is in this folder


@triton.jit
def doubled(x):
    with region("double"):
        y = x * 2
    return y


@triton.jit
def kernel(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    with region("load", value=n):
        x = tl.load(a + at)
    instant("loaded")
    counter("n", n)
    tl.store(out + at, doubled(x))


EXPECTED = [
    "enter load i32", "exit load", "instant loaded", "counter n i32", "enter double", "exit double",
]  # fmt: skip


def test_aliased_functions_emit_the_same_marks(compiler):
    compiler(kernel, a="*fp32", out="*fp32", n="i32", BLOCK=128)
    assert compiler.marks() == EXPECTED


@pytest.mark.parametrize("word", ["instant", "counter", "region"])
def test_aliased_functions_have_the_same_signatures(word):
    assert inspect.signature(getattr(triton_kscope, word)) == inspect.signature(getattr(kscope, word))


helpers = ModuleType("helpers")
helpers.put, helpers.helpers = doubled, helpers  # type: ignore[attr-defined]  # as if imported; it names itself


@triton.jit
def elsewhere(out, x):
    helpers.put(out, x)


@triton.jit
def nowhere(out, x):
    tl.store(out, tl.math.exp(x))


def test_marks_are_found_through_aliases_and_imported_helpers():
    """Decides which kernels launched without marks are reported."""
    found = {one.fn.__name__: loading.has_marks(one) for one in (kernel, doubled, elsewhere, nowhere)}
    assert found == {"kernel": True, "doubled": True, "elsewhere": True, "nowhere": False}


def test_kernels_copied_by_inductor_resolve_kscope_names(compiler, tmp_path):
    wrapper = pytest.importorskip("torch._inductor.codegen.wrapper")
    copied = wrapper.user_defined_triton_kernel_transitive_closure_source_code(kernel)
    path = tmp_path / "copied.py"
    path.write_text(f"import triton\nimport triton.language as tl\n@triton.jit\n{copied}")
    names = {"__name__": "copied", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    compiler(names["kernel"], a="*fp32", out="*fp32", n="i32", BLOCK=128)
    assert compiler.marks() == EXPECTED


CONFIGURE = """
import kscope_triton, sys
from kscope.instrument.selection.auto import Selection
from kscope.instrument.recording import Recording
frontend = kscope_triton.TritonFrontend()
{steps}
"""


def configured(steps: str) -> list[str]:
    """Run steps in a new process; their output by lines."""
    import_path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONFIGURE.format(steps=steps)],
        env={**os.environ, "PYTHONPATH": import_path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


SHOW = "print(config.use_static_cuda_launcher, config.compile_threads == 1)"


@pytest.mark.parametrize("imported", ["before", "while enabled"])
def test_inductor_compiles_in_process_and_launches_through_triton_while_enabled(imported):
    pytest.importorskip("torch")
    load = "from torch._inductor import config\nplain = config.compile_threads\nconfig.compile_threads = 4"
    steps = {
        "before": [load, "frontend.enable(Recording())", SHOW, "frontend.disable()", SHOW],
        "while enabled": ["frontend.enable(Recording())", "from torch._inductor import config", SHOW,
                          "frontend.disable()", SHOW],
    }  # fmt: skip
    enabled, disabled = configured("\n".join(steps[imported]))[:2]
    assert enabled == "False True"
    assert disabled.split()[0] == "True"


def test_a_thread_that_starts_while_enabled_has_the_settings():
    """In torch 2.13 an attribute of the config is that of the thread that sets it."""
    pytest.importorskip("torch")
    show = f"thread = threading.Thread(target=lambda: {SHOW})\nthread.start()\nthread.join()"
    load = "import threading\nfrom torch._inductor import config\nplain = config.compile_threads"
    steps = [load, show, "frontend.enable(Recording())", show, "frontend.disable()", show]
    before, enabled, after = configured("\n".join(steps))[:3]
    assert (before.split()[0], enabled, after) == ("True", "False True", before)


NAMES = {
    "one name": ("use_static_cuda_launcher", "compile_threads"),
    "an alias": ("use_static_cuda_launcher", "use_static_triton_launcher", "compile_threads"),
    "the other name": ("use_static_triton_launcher", "compile_threads"),
    "none": ("compile_threads",),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_settings_apply_under_every_alias_without_changing_the_environment(frontend, monkeypatch, names):
    config = SimpleNamespace(**{name: 4 if name == "compile_threads" else True for name in names})
    environment = dict(os.environ)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    before = dict(vars(config))
    frontend.enable(Recording())
    frontend.enable(Recording(records=64))
    assert vars(config) == {name: 1 if name == "compile_threads" else False for name in names}
    assert dict(os.environ) == environment
    frontend.disable()
    assert vars(config) == before


def test_kernels_that_inductor_keeps_go_when_other_options_are_recorded(frontend, monkeypatch):
    cleared: list[str] = []
    kept = SimpleNamespace(CompiledTritonKernels=SimpleNamespace(cache_clear=lambda: cleared.append("kernels")))
    monkeypatch.setitem(sys.modules, "torch._inductor.async_compile", kept)
    frontend.enable(Recording())
    for selection, forgets in ((Selection(), False), (Selection(("wait",)), True), (Selection(("wait",)), False)):
        cleared.clear()
        frontend.enable(Recording(selection=selection))
        assert bool(cleared) == forgets


def test_torch_analyzes_a_kernel_without_its_marks(frontend, monkeypatch):
    """At a mark it would stop, take all arguments as written, and keep the function out of CUDA graphs."""
    torch = pytest.importorskip("torch")
    analysis = pytest.importorskip("torch._higher_order_ops.triton_kernel_wrap")
    given = {"a": torch.zeros(128), "out": torch.zeros(128), "n": 128, "BLOCK": 128}
    frontend.enable(Recording())
    for _ in active(monkeypatch):
        traced, names = analysis.generate_ttir(kernel, given, {})
        assert "tt.store" in str(traced) and "inline_asm" not in str(traced)
        assert names[:2] == ["a", "out"]
