"""Compiling without a GPU, for the tests of the Triton frontend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns if it is not set

triton = pytest.importorskip("triton")

from triton import knobs  # noqa: E402  # after the check that it is there
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kscope.instrument import registry  # noqa: E402
from kscope.instrument.recording import Recording  # noqa: E402
from kscope.marks import grammar as marks  # noqa: E402


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def frontend() -> Iterator[Any]:
    """The Triton frontend, disabled again afterwards."""
    found = registry.frontend("triton")
    yield found
    found.disable()


class Compiler:
    """Compiles jit functions for a target that need not be there, and keeps the PTX that the compiler had
    before kscope lowered it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, fn: Any, arch: int = 90, options: dict[str, Any] | None = None, **types: Any) -> Any:
        """types: a signature's type for each argument, or the value of a constexpr."""
        given = {name: isinstance(kind, str) and kind in _TYPES for name, kind in types.items()}
        signature = {name: types[name] if typed else "constexpr" for name, typed in given.items()}
        constants = {name: types[name] for name, kind in signature.items() if kind == "constexpr"}
        source_class = ASTSource
        if fn.is_gluon():
            from triton.experimental.gluon._runtime import GluonASTSource

            source_class = GluonASTSource
        return triton.compile(
            source_class(fn, signature, constants), target=GPUTarget("cuda", arch, 32), options=options or {}
        )

    def marks(self) -> list[str]:
        """The marks of the last kernel, without registers, in the order of the text."""
        found = (marks.parse(line) for line in self.texts[-1].splitlines())
        return [" ".join(filter(None, (m.act, m.name, m.type))) for m in found if m is not None]

    def spy(self, backend: Any = None, stages: Any = None, *_: Any) -> tuple[str, str] | None:
        """A stage hook of another tool's."""
        if stages is None:
            return "", ""
        inner = stages["ptx"]

        def ptx(source: Any, metadata: Any) -> str:
            self.texts.append(inner(source, metadata))
            return self.texts[-1]

        stages["ptx"] = ptx
        return None


_TYPES = {"*fp32", "*fp16", "*i32", "i1", "i8", "i16", "i32", "u32", "i64", "fp16", "fp32", "fp64"}


@pytest.fixture
def plain_compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A Compiler; recording is not enabled."""
    compiler = Compiler()
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", compiler.spy)
    return compiler


@pytest.fixture
def compiler(plain_compiler: Compiler, frontend: Any) -> Compiler:
    """A Compiler with default recording enabled."""
    frontend.enable(Recording())
    return plain_compiler


@pytest.fixture
def module(tmp_path: Path) -> Callable[[str], Any]:
    """Makes a module of source text: Triton reads the source of jit functions from files."""
    import importlib.util
    import itertools
    import textwrap

    numbers = itertools.count()

    def make(source: str) -> Any:
        path = tmp_path / f"kernels{next(numbers)}.py"
        imports = "import triton\nimport triton.language as tl\nimport kscope\nfrom kscope import region\n"
        path.write_text(imports + textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location("kernels", path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return make
