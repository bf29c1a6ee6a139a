"""Assembles PTX with CuTe DSL's built-in assembler and the options of the current compilation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlass._mlir import ir

from kscope.errors import UnsupportedError

from .emit import assembly

_HEADER = re.compile(r"\.address_size\s+64[^\n]*\n")
_OPTIONS = re.compile(r"(cute-to-nvvm\{)")
_SUFFIX = "_binary"
"""Suffix of the host global that holds the binary of a gpu.module."""


@dataclass(frozen=True)
class Assembled:
    """An assembled module.

    Attributes:
        binary: the value of the host module's global.
        cubin: the ELF in it.
    """

    binary: bytes
    cubin: bytes


def assemble(text: str, pipeline: str, manager: Any, name: str = "kernels", lines: bool = False) -> Assembled:
    """Assemble a PTX text.

    CuTe compiles its IR to a binary in one pass pipeline that accepts no PTX. So the text enters the pipeline as the
    inline assembly of a function, which it closes immediately, opening another one at its end:

        .visible .func ks_head() {
            }  <the module's text>  .func ks_tail() {
            ret;
        }

    Nothing calls the two functions, so the assembler drops them: an unchanged text gives CuTe's own binary, byte for
    byte.

    Args:
        text: the PTX.
        pipeline: CuTe's pass pipeline of the compilation.
        manager: CuTe's passmanager module.
        name: the gpu.module's name.
        lines: with a line table, regardless of the pipeline's options.

    Raises:
        Exception: from the pipeline, for a text that does not assemble.
    """
    head = _HEADER.search(text)
    body = text[head.end() :] if head else text
    # a separate context: CuTe 4.4 assembles each name only once per context
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder, ir.Context() as context:
        context.enable_multithreading(False)
        module = _wrapped(body, name)
        manager.PassManager.parse(_with_line_info(dump_into(pipeline, cubin=folder), lines)).run(module.operation)
        binary = ir.StringAttr(_binary_of(module, name).attributes["value"]).value_bytes
        return Assembled(binary, _only(folder, "*.cubin").read_bytes())


def _wrapped(body: str, name: str) -> Any:
    """A module whose only function contains the text."""
    module = ir.Module.parse(
        f"module attributes {{gpu.container_module}} {{ gpu.module @{name} {{"
        " llvm.func @ks_head() { llvm.return } } }"
    )
    function = module.body.operations[0].regions[0].blocks[0].operations[0]
    text = f"}}\n{body}\n.func ks_tail()\n{{\n".replace("$", "$$")  # $ starts an operand
    with ir.InsertionPoint(function.regions[0].blocks[0].operations[0]), ir.Location.unknown():
        assembly(text)
    return module


def _with_line_info(pipeline: str, lines: bool) -> str:
    """The pipeline with line information from the text, and none for the enclosing function."""
    if "preserve-line-info=true" not in pipeline and not lines:
        return pipeline
    pipeline = pipeline.replace("preserve-line-info=true", "preserve-line-info=false")
    options = re.search(r"\bptx-options='([^']*)'", pipeline)
    if options is None:
        return _OPTIONS.sub(r"\1ptx-options='-lineinfo' ", pipeline)
    return pipeline.replace(options[0], f"ptx-options='{options[1]} -lineinfo'")


def dump_into(pipeline: str, **folders: str) -> str:
    """The pipeline with its cubin= or ptx= written into a folder; removes the dumps that the user requested."""
    for option in ("dump-cubin-path", "dump-ptx-path", "flatten-locs-output-json-path"):
        pipeline = re.sub(rf"\b{option}=('[^']*'|[^\s}}]*)", "", pipeline)
    dumps = " ".join(f"dump-{kind}-path='{folder}/module'" for kind, folder in folders.items())
    found, count = _OPTIONS.subn(rf"\1{dumps} ", pipeline)
    if count != 1:
        raise UnsupportedError(
            f"the CuTe DSL's pipeline {pipeline!r} has no cute-to-nvvm pass with options: kscope gets no PTX"
        )
    return found


def read_ptx(folder: str) -> tuple[str, str]:
    """The PTX that a pipeline wrote into the folder, and the end of its file name, such as `.sm_90a.ptx`."""
    path = _only(folder, "*.ptx")
    return path.read_text(encoding="utf-8").rstrip("\0"), path.name.removeprefix("module")


def user_dump_path(pipeline: str, kind: str, ending: str) -> Path | None:
    """The file into which the user dumps a compilation's "ptx" or "cubin". ending: from read_ptx()."""
    found = re.search(rf"\bdump-{kind}-path='?([^'\s}}]+)", pipeline)
    return Path(f"{found[1]}{ending.removesuffix('ptx')}{kind}") if found else None


def _only(folder: str, pattern: str) -> Path:
    found = list(Path(folder).glob(pattern))
    if len(found) != 1:
        raise UnsupportedError(
            f"the CuTe DSL dumped {len(found)} files {pattern}, expected one: the compilation has several gpu modules, "
            "or this version's pipeline differs"
        )
    return found[0]


def binaries(module: Any) -> list[bytes]:
    """The binaries in a compiled host module."""
    found = list[bytes]()
    for name, operation in _globals(module):
        if name.endswith(_SUFFIX) and "value" in operation.attributes:
            with suppress(ValueError):  # another constant, which is not text
                found.append(ir.StringAttr(operation.attributes["value"]).value_bytes)
    return found


def _globals(module: Any) -> Iterator[tuple[str, Any]]:
    """The globals of a host module, by name."""
    for found in module.body.operations:
        operation = found.operation
        if operation.name == "llvm.mlir.global":
            yield ir.StringAttr(operation.attributes["sym_name"]).value, operation


def _binary_of(module: Any, name: str) -> Any:
    """The global of a compiled host module that holds a gpu.module's binary."""
    for found, operation in _globals(module):
        if found == name + _SUFFIX:
            return operation
    raise UnsupportedError(f"the compiled module has no global {name}{_SUFFIX}, the binary of its kernels")


def replace_binary(module: Any, name: str, binary: bytes) -> None:
    """Replace the binary of a compiled host module."""
    operation = _binary_of(module, name)
    operation.attributes["value"] = ir.StringAttr.get(binary)
    operation.attributes["global_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(binary)} x i8>"))
