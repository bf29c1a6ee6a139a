"""CuTe DSL without a GPU: kernels are compiled for real, by its own compiler and assembler, and never launched."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")  # with a GPU, too; read on import

cutlass = pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from cutlass import cute  # noqa: E402  # after the check that it is there
from cutlass.base_dsl import compiler as cute_compiler  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402

from kscope.capture import wire  # noqa: E402
from kscope.capture.model import ModuleMeta  # noqa: E402
from kscope.instrument import registry  # noqa: E402
from kscope.instrument.recording import Recording  # noqa: E402
from kscope.machine_code import disassembly, tools  # noqa: E402
from kscope_cute import libraries  # noqa: E402

DEFAULT = Recording()
VERSION = tuple(int(part) for part in cutlass.__version__.split(".")[:2])


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate caches, and no driver check before compilations (4.4)."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    if hasattr(cute_compiler.Compiler, "_check_cuda_dependencies_once"):
        monkeypatch.setattr(cute_compiler.Compiler, "_check_cuda_dependencies_once", lambda *_: None)


@pytest.fixture
def frontend() -> Iterator[Any]:
    """The CuTe frontend, disabled again afterwards."""
    found = registry.frontend("cute")
    yield found
    found.disable()


class Gpu:
    """A fake driver and runtime: libraries are numbers, odd ones have marks."""

    def __init__(self) -> None:
        self.current = 1
        self.loaded: list[int] = []
        self.paces = 0
        self.others = False  # whether the libraries were compiled with other options
        self.metas: tuple[ModuleMeta, ...] = ()
        self.names = ["kernel_cutlass_kernel_tensorptrf32_0"]
        self.captures: dict[int, int] = {}  # of graphs, by stream

    def context(self) -> int:
        return self.current

    def has_symbol(self, library: int, name: str) -> bool:
        return library % 2 == 1 if name == wire.CTL_SYMBOL else not self.others

    def module(self, library: int) -> int:
        return library * 10 + self.current

    def kernels(self, library: int) -> list[str]:
        return self.names

    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        self.loaded.append(module)
        return self.metas

    def capture(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    def relaxed(self) -> AbstractContextManager[None]:
        return nullcontext()

    def pace(self, kernel: object = None) -> None:
        self.paces += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setitem(registry._backends, "cuda", made)
    for name in ("context", "has_symbol", "module", "kernels"):
        monkeypatch.setattr(libraries, name, getattr(made, name))
    return made


@pytest.fixture
def prepared(frontend: Any) -> Any:
    frontend.enable(Recording())
    return frontend


@dataclass(frozen=True)
class Made:
    """The result of a compilation: CuTe's object, its PTX, its binary."""

    compiled: Any
    ptx: str
    cubin: bytes

    @property
    def events(self) -> int:
        """Clock reads of marks."""
        return sum(
            "%clock64" in line for line in self.ptx.splitlines() if "mov.u64 ks_s" in line or "mov.u64 ks_e" in line
        )

    @property
    def code(self) -> list[disassembly.Instruction]:
        """The machine code of its one kernel. Skips the test where no disassembler is installed."""
        try:
            tools.find("nvdisasm")
        except ImportError:
            pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "module.cubin"
            path.write_bytes(self.cubin)
            (function,) = disassembly.functions(tools.disassembly(path))
        return list(function.instructions)


def compile(function: Any, *args: Any, arch: str = "sm_90a", options: str = "") -> Made:
    """The function, compiled as a user does."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--keep-ptx --keep-cubin --dump-dir {folder} --gpu-arch {arch} {options}"
        compiled = cute.compile(function, *args, options=flags)
    return Made(compiled, compiled.__ptx__, compiled.__cubin__)


@pytest.fixture
def make(frontend: Any) -> Callable[..., Made]:
    """Compile a kernel's body with recording enabled, unless recording=None. The body may use x, a tensor of 1,024
    floats, n, an Int32, and thread; `before` is code above it, `around` the statement around its launch."""
    numbers = itertools.count()

    def make(
        body: str,
        before: str = "",
        around: str = "if True:",
        recording: Recording | None = DEFAULT,
        arch: str = "sm_90a",
        options: str = "",
    ) -> Made:
        module = source(body, before, around, next(numbers))
        if recording is None:
            frontend.disable()
        else:
            frontend.enable(recording)
        return compile(module.host, *arguments(), arch=arch, options=options)

    return make


def arguments() -> tuple[Any, Any]:
    """x and n of make()'s kernels."""
    return make_fake_compact_tensor(cutlass.Float32, (1024,)), cutlass.Int32(4)


_HEAD = """
import cutlass
from cutlass import Float32, Int32, cute
import kscope
from kscope import region

{before}

@cute.kernel
def kernel(x: cute.Tensor, n: Int32):
    thread, _, _ = cute.arch.thread_idx()
{body}

@cute.jit
def host(x: cute.Tensor, n: Int32):
    {around}
        kernel(x, n).launch(grid=[2, 1, 1], block=[128, 1, 1])
"""


def source(body: str, before: str = "", around: str = "if True:", number: int = 0) -> Any:
    """A module of source text: CuTe reads the source of its functions from files."""
    folder = tempfile.mkdtemp(prefix="kscope-cute-")
    path = Path(folder) / f"kernel_{number}.py"
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    path.write_text(_HEAD.format(before=textwrap.dedent(before), body=inner, around=around))
    return load(path)


def load(path: Path) -> Any:
    """Import a file under a unique module name."""
    name = f"kscope_tested_{path.parent.name}_{path.stem}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
