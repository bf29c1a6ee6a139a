"""Kernels of Triton and Gluon, compiled without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import problems
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

import kscope


def source(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any]) -> Any:
    """Arguments of triton.compile(): a kernel, whose addresses and integers are multiples of 16."""
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind != "fp32"}
    made = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    return made(kernel, {**types, **dict.fromkeys(constants, "constexpr")}, dict(constants), aligned)


def without_gpu(target: GPUTarget) -> AbstractContextManager[Any]:
    """The target in the form of Triton's driver, as Proton's compiler needs it."""
    properties = {"max_shared_mem": 232_448, "arch": target.arch}
    driver = SimpleNamespace(
        get_current_device=lambda: 0, get_current_target=lambda: target,
        utils=SimpleNamespace(get_device_properties=lambda _: properties),
    )  # fmt: skip
    return patch.object(triton.runtime.driver, "_active", driver)


@dataclass(frozen=True)
class Language:
    """Kernels of on_everywhere.py.

    Attributes:
        softmax, matmul: the examples' modules.
        more: what the softmax takes after its block.
        signatures: the other kernels by name, each with the types of its parameters and its constants.
        options: of all launches.
        tiled: further options, of kernels that multiply tiles.
    """

    softmax: Any
    matmul: Any
    more: tuple[int, ...]
    signatures: Mapping[str, tuple[Any, Mapping[str, str], Mapping[str, int]]]
    options: Mapping[str, int]
    tiled: Mapping[str, int]

    def launch(self, kernel: str, given: problems.Problem) -> Callable[[], object]:
        """A function that launches the kernel."""
        tensors = (*given.inputs, given.out)
        if kernel == "softmax":
            arguments = (*tensors, problems.COLUMNS, self.softmax.BLOCK, *self.more)
            return lambda: self.softmax.softmax[problems.grid(kernel)](*arguments, **self.options)
        tiled = {**self.options, **self.tiled}
        if kernel == "matmul":
            sizes = problems.SIZE, self.matmul.TILE, self.matmul.DEPTH
            return lambda: self.matmul.gemm[(problems.SIZE // self.matmul.TILE,) * 2](*tensors, *sizes, **tiled)
        if kernel == "tasks":
            x, turn = given.inputs
            tensors = x, given.out, turn
        it, _, constants = self.signatures[kernel]
        options = tiled if kernel == "attention" else self.options
        grid = problems.grid(kernel)
        return lambda: it[grid](*tensors, *problems.NUMBERS[kernel], **constants, **options)

    def compiled(self, kernel: str, arch: int = 90) -> Any:
        """A kernel of signatures with inactive marks."""
        kscope.enable()
        made = triton.compile(
            source(*self.signatures[kernel]),
            target=GPUTarget("cuda", arch, 32),
            options={**self.options, **self.tiled},
        )
        kscope.disable()
        return made

    def built(self, arch: int) -> Iterator[tuple[str, bytes]]:
        """Each kernel's name and cubin."""
        yield "softmax", self.softmax.compile_only(arch).asm["cubin"]
        yield "matmul", self.matmul.compile_only(arch).asm["cubin"]
        for kernel in self.signatures:
            yield kernel, self.compiled(kernel, arch).asm["cubin"]
