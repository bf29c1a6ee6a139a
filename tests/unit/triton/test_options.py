"""Every option of a recording, compiled and assembled for every architecture."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

import kscope
from kscope.capture import metadata
from kscope.instrument.recording import Recording
from kscope.lowering import register_budget
from kscope.machine_code import elf
from kscope_triton import assembler


@triton.jit
def kernel(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, n, BLOCK):
        with kscope.region("load", value=i):
            x = tl.load(a + i + at)
        with kscope.region("lanes", strategy=kscope.AllThreads()):
            total += x
        kscope.counter("i", i)
    tl.store(out + at, total)


RECORDINGS = {
    "defaults": Recording(),
    "one thread per block": Recording(strategy=kscope.Lane0Warp0()),
    "named warps": Recording(strategy=kscope.TargetWarp(0, 3)),
    "every thread": Recording(strategy=kscope.AllThreads()),
    "oldest records": Recording(fill="stop", records=16),
    "globaltimer": Recording(clock="globaltimer"),
    "in place": Recording(pending=0),
}


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recording_assembles(frontend, plain_compiler, name, arch):
    recording = RECORDINGS[name]
    frontend.enable(recording)
    compiled = plain_compiler(kernel, arch, a="*fp32", out="*fp32", n="i32", BLOCK=128)
    about = metadata.from_json(compiled.metadata.kscope.encode())
    assert (about.frontend, about.clock, about.fill) == ("triton", recording.clock, recording.fill)
    assert about.strategy == recording.strategy.spec
    assert [(region.name, region.type) for region in about.regions] == [("i", "i32"), ("lanes", None), ("load", "i32")]
    assert {problem.kind for problem in about.problems} <= {"occupancy"}
    assert compiled.asm["cubin"]


def test_kernels_are_lowered_with_the_options_active_when_compilation_starts(frontend, plain_compiler):
    kinds = {}
    for records in (16, 64):
        frontend.enable(Recording(records=records))
        compiled = plain_compiler(kernel, a="*fp32", out="*fp32", n="i32", BLOCK=128)
        (about,) = metadata.from_json(compiled.metadata.kscope.encode()).kernels
        kinds[records] = about.log2_records
    assert kinds == {16: 4, 64: 6}


@pytest.fixture
def _one_parse_at_a_time(monkeypatch):
    """CPython 3.11 counts how deep all threads' syntax trees are in one place: ast.parse raises a SystemError
    ("recursion depth mismatch") where a collection of garbage in its middle hands over to a thread that parses too."""
    parse, turn = ast.parse, threading.Lock()

    def alone(*source, **options):
        with turn:
            return parse(*source, **options)

    monkeypatch.setattr(ast, "parse", alone)


@pytest.mark.usefixtures("_one_parse_at_a_time")
def test_threads_may_compile_at_the_same_time(frontend, plain_compiler, module):
    frontend.enable(Recording())
    kernels = [
        module(f"""
            @triton.jit
            def kernel{i}(out, n):
                with kscope.region("region {i}"):
                    tl.store(out, n)
        """)
        for i in range(4)
    ]
    found: dict[int, list[str]] = {}

    def work(i: int) -> None:
        compiled = plain_compiler(getattr(kernels[i], f"kernel{i}"), out="*i32", n="i32")
        found[i] = [region.name for region in metadata.from_json(compiled.metadata.kscope.encode()).regions]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: [f"region {i}"] for i in range(4)}


PREPARED = """
{imports}
import importlib.util
spec = importlib.util.spec_from_file_location("kernels", {path!r})
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
compiled = triton.compile(ASTSource(kernels.kernel, {{"out": "*i32"}}, {{}}), target=GPUTarget("cuda", 90, 32))
print(hasattr(compiled.metadata, "kscope"))
"""


@pytest.mark.parametrize("imports", ["import kscope, triton", "import triton, kscope"])
@pytest.mark.parametrize("expected", ["0", "1"])
def test_kscope_in_the_environment_prepares(module, imports, expected):
    made = module("""
        @triton.jit
        def kernel(out):
            with kscope.region("store"):
                tl.store(out, 1)
    """)
    environment = {**os.environ, "KSCOPE": expected, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = PREPARED.format(imports=imports, path=made.__file__)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"{expected == '1'}\n", done.stderr


def test_kernels_for_amd_gpus_compile_plain(frontend):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    frontend.enable(Recording())
    source = ASTSource(kernel, {"a": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx942", 64))
    assert "kscope" not in compiled.asm["amdgcn"]
    assert not hasattr(compiled.metadata, "kscope")


@triton.jit
def scaled(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for i in range(0, n, BLOCK):
        with kscope.region("scale"):
            tl.store(out + i + at, tl.load(a + i + at) * 2)


@pytest.fixture
def assemblies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """Command and text of every assembly, by Triton or by kscope."""
    found: list[tuple[list[str], str]] = []
    run = subprocess.run

    def noting(command: list[str], *args: Any, **options: Any) -> Any:
        found.extend((command, Path(word).read_text()) for word in map(str, command) if word.endswith(".ptx"))
        return run(command, *args, **options)

    monkeypatch.setattr(subprocess, "run", noting)
    register_budget._assemble.cache_clear()
    return found


def test_no_text_is_assembled_twice(compiler: Any, assemblies: list[tuple[list[str], str]]) -> None:
    kernel = compiler(scaled, a="*fp32", out="*fp32", n="i32", BLOCK=1024, options={"num_warps": 32})
    code = [re.sub(r".*kscope_meta.*", "", text) for _, text in assemblies]
    assert len(set(code)) == len(code)
    assert re.sub(r".*kscope_meta.*", "", kernel.asm["ptx"]) in code


def test_kscopes_cubin_is_that_of_tritons_assembler(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = compiler(scaled, a="*fp32", out="*fp32", n="i32", BLOCK=1024, options={"num_warps": 32})
    monkeypatch.setattr(assembler, "cubin", lambda *_: None)
    monkeypatch.setattr(triton.knobs.compilation, "always_compile", True)
    tritons = compiler(scaled, a="*fp32", out="*fp32", n="i32", BLOCK=1024, options={"num_warps": 32})
    assert mine.asm["ptx"] == tritons.asm["ptx"]
    expected = {one.name: one.content for one in elf.read(tritons.asm["cubin"]).sections}
    assert expected.keys() >= {".text.scaled", ".nv.global.init"}
    for one in elf.read(mine.asm["cubin"]).sections:  # the text was assembled with other metadata
        assert one.content == expected[one.name] or one.name == ".nv_debug_ptx_txt", one.name


def test_tritons_own_assembly_options_are_kept(
    compiler: Any, assemblies: list[tuple[list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.nvidia, "disable_ptxas_opt", True)
    compiler(scaled, a="*fp32", out="*fp32", n="i32", BLOCK=1024, options={"num_warps": 32})
    command, _ = assemblies[-1]
    assert command[command.index("--opt-level") :][:2] == ["--opt-level", "0"]
