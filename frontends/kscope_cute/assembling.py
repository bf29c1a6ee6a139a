"""PTX to binary, by CuTe DSL itself: the assembler it has inside, with the options of the compilation at hand.

CuTe goes from its IR to a binary in one pipeline of passes that takes no PTX. So the text goes through that pipeline
as the inline assembly of a function, which it ends at once, and begins another one behind itself:

    .visible .func ks_head() {
        }  <the module's text>  .func ks_tail() {
        ret;
    }

Nothing calls the two, so the assembler drops them: the binary of an unchanged text is CuTe's own, byte for byte. What
lives here: that detour, and the words of a pipeline that it needs. What does not: when it is taken (pipeline.py).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm

from kscope.errors import UnsupportedError

_HEADER = re.compile(r"\.address_size\s+64[^\n]*\n")
_OPTIONS = re.compile(r"(cute-to-nvvm\{)")
_BINARY = "_binary"
"""What CuTe adds to a gpu.module's name for the host's global with its binary."""


@dataclass(frozen=True)
class Assembled:
    """binary: what the host's module carries. cubin: the ELF in it."""

    binary: bytes
    cubin: bytes


def assemble(text: str, pipeline: str, manager: Any, name: str = "kernels") -> Assembled:
    """The text's binary, as `pipeline` makes it. manager: CuTe's passmanager module. Raises what the pipeline raises
    for a text that does not assemble."""
    head = _HEADER.search(text)
    body = text[head.end() :] if head else text
    # a context of its own: in one context, 4.4 makes one binary of a name and no more
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder, ir.Context() as context:
        context.enable_multithreading(False)
        module = _wrapped(body, name)
        manager.PassManager.parse(_lined(dumping(pipeline, cubin=folder))).run(module.operation)
        return Assembled(_value(binary_of(module, name)), _only(folder, "*.cubin").read_bytes())


def _wrapped(body: str, name: str) -> Any:
    """A module for the pipeline whose one function is not what it seems."""
    module = ir.Module.parse(
        f"module attributes {{gpu.container_module}} {{ gpu.module @{name} {{"
        " llvm.func @ks_head() { llvm.return } } }"
    )
    function = module.body.operations[0].regions[0].blocks[0].operations[0]
    text = f"}}\n{body}\n.func ks_tail()\n{{\n".replace("$", "$$")  # a dollar begins an operand
    with ir.InsertionPoint(function.regions[0].blocks[0].operations[0]), ir.Location.unknown():
        llvm.inline_asm(
            None,
            [],
            text,
            "",
            has_side_effects=True,
            is_align_stack=False,
            asm_dialect=llvm.AsmDialect.AD_ATT,
        )
    return module


def _lined(pipeline: str) -> str:
    """The same, with line information as the text has it and none for the function around it."""
    if "preserve-line-info=true" not in pipeline:
        return pipeline
    pipeline = pipeline.replace("preserve-line-info=true", "preserve-line-info=false")
    known = re.search(r"\bptx-options='([^']*)'", pipeline)
    if known is None:
        return _OPTIONS.sub(r"\1ptx-options='-lineinfo' ", pipeline)
    return pipeline.replace(known[0], f"ptx-options='{known[1]} -lineinfo'")


def dumping(pipeline: str, **folders: str) -> str:
    """The pipeline, writing its cubin= or ptx= into a folder; what else it would have dumped it does not."""
    for word in ("dump-cubin-path", "dump-ptx-path", "flatten-locs-output-json-path"):
        pipeline = re.sub(rf"\b{word}=('[^']*'|[^\s}}]*)", "", pipeline)
    words = " ".join(f"dump-{kind}-path='{folder}/module'" for kind, folder in folders.items())
    found, count = _OPTIONS.subn(rf"\1{words} ", pipeline)
    if count != 1:
        raise UnsupportedError(
            f"the CuTe DSL's pipeline {pipeline!r} has no cute-to-nvvm pass with options, where kscope asks for the PTX"
        )
    return found


def dumped(folder: str) -> tuple[str, str]:
    """The PTX that a pipeline wrote into the folder, and how its file's name ends: `.sm_90a.ptx`."""
    path = _only(folder, "*.ptx")
    return path.read_text(encoding="utf-8").rstrip("\0"), path.name.removeprefix("module")


def kept(pipeline: str, kind: str, ending: str) -> Path | None:
    """The file that the user wants to keep of a compilation ("ptx" or "cubin"). ending: as dumped() says."""
    found = re.search(rf"\bdump-{kind}-path='?([^'\s}}]+)", pipeline)
    return Path(f"{found[1]}{ending.removesuffix('ptx')}{kind}") if found else None


def _only(folder: str, pattern: str) -> Path:
    found = list(Path(folder).glob(pattern))
    if len(found) != 1:
        raise UnsupportedError(
            f"the CuTe DSL dumped {len(found)} files {pattern} where kscope expected one: a compilation with several "
            "gpu modules, or another version's pipeline"
        )
    return found[0]


def binary_of(module: Any, name: str) -> Any:
    """The global of a compiled host module that carries a gpu.module's binary."""
    for operation in _globals(module):
        if ir.StringAttr(operation.attributes["sym_name"]).value == name + _BINARY:
            return operation
    raise UnsupportedError(f"the compiled module has no global {name}{_BINARY} with the binary of its kernels")


def _globals(module: Any) -> Iterator[Any]:
    return (op.operation for op in module.body.operations if op.operation.name == "llvm.mlir.global")


def replace_binary(module: Any, name: str, binary: bytes) -> None:
    """Put another binary into a compiled host module."""
    operation = binary_of(module, name)
    operation.attributes["value"] = ir.StringAttr.get(binary)
    operation.attributes["global_type"] = ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(binary)} x i8>"))


def _value(operation: Any) -> bytes:
    found: bytes = ir.StringAttr(operation.attributes["value"]).value_bytes
    return found
