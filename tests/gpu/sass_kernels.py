"""Triton kernels that are recorded behind the assembler, compiled without a GPU."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kscope.capture.model import ModuleMeta
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.lowering import assembler, plan
from kscope.sass import labels
from kscope.sass.recording import Recorded, recorded

ROOT = Path(__file__).resolve().parents[2]
HALF, FLOAT = "*fp16", "*fp32"


@dataclass(frozen=True)
class Case:
    """A kernel of bench/triton_kernels.py.

    Attributes:
        name: its name.
        types: of its arguments, in order.
        constants: its constexprs.
        options: Triton's.
        grid: blocks.
        shapes: of its pointers, in order; the last ones are results.
        results: how many of these are.
        numbers: its other arguments.
        records: of a warp, by region.
    """

    name: str
    types: dict[str, str]
    constants: dict[str, int]
    options: dict[str, int]
    grid: tuple[int, int, int]
    shapes: tuple[tuple[int, ...], ...]
    results: int
    numbers: tuple[float, ...]
    records: dict[str, int]

    @property
    def warps(self) -> int:
        x, y, z = self.grid
        return x * y * z * self.options["num_warps"]


SIZE, LENGTH, WIDTH = 1024, 1024, 64
CASES = (
    Case(
        "matmul",
        dict.fromkeys("abc", HALF) | dict.fromkeys("MNK", "i32"),
        {"BM": 128, "BN": 128, "BK": 64, "TAG": 0},
        {"num_warps": 8, "num_stages": 3},
        (SIZE // 128, SIZE // 128, 1),
        ((SIZE, SIZE),) * 3,
        1,
        (SIZE, SIZE, SIZE),
        {"load": SIZE // 64, "dot": SIZE // 64, "mainloop": 1, "epilogue": 1},
    ),
    Case(
        "attention",
        dict.fromkeys("qkvo", HALF) | {"S": "i32", "scale": "fp32"},
        {"D": WIDTH, "BM": 128, "BN": 64, "TAG": 0},
        {"num_warps": 8, "num_stages": 3},
        (LENGTH // 128, 4, 1),
        ((4, LENGTH, WIDTH),) * 4,
        1,
        (LENGTH, WIDTH**-0.5),
        dict.fromkeys(("load_k", "qk", "softmax", "load_v", "pv"), LENGTH // 64) | {"load_q": 1, "store": 1},
    ),
    Case(
        "backward",
        dict.fromkeys(("q", "k", "v", "do", "dk", "dv"), HALF)
        | dict.fromkeys(("maxima", "deltas"), FLOAT)
        | {"S": "i32", "scale": "fp32"},
        {"D": WIDTH, "BM": 64, "BN": 128, "TAG": 0},
        {"num_warps": 8, "num_stages": 2},
        (LENGTH // 128, 4, 1),
        ((4, LENGTH, WIDTH),) * 6 + ((4, LENGTH),) * 2,
        0,
        (LENGTH, WIDTH**-0.5),
        dict.fromkeys(("load", "scores", "dv", "ds", "dk"), LENGTH // 64) | {"store": 1},
    ),
    Case(
        "softmax",
        {"x": HALF, "y": HALF, "N": "i32"},
        {"BLOCK": 1024, "TAG": 0},
        {"num_warps": 4},
        (4096, 1, 1),
        ((4096, 1000), (4096, 1000)),
        1,
        (1000,),
        {"load": 1, "reduce": 1, "store": 1},
    ),
)
"""Kernels without values and predicates at their marks. Rows of softmax do not fill its blocks."""


@dataclass(frozen=True)
class Made:
    """A case compiled: the plain cubin, the one that records, and what a session must know of it."""

    case: Case
    plain: bytes
    recorded: Recorded
    meta: ModuleMeta
    shared: int


@cache
def made(name: str, recording: Recording | None = None) -> Made:
    """Compile a case for sm_90, without a GPU."""
    recording = recording or Recording(records=256)
    case = next(one for one in CASES if one.name == name)
    for folder in (ROOT / "bench", ROOT / "examples"):
        sys.path[:0] = [] if str(folder) in sys.path else [str(folder)]
    kernel = getattr(import_module("triton_kernels"), name)
    types = {one: case.types.get(one, "constexpr") for one in kernel.arg_names}
    aligned = {
        (n,): [["tt.divisibility", 16]]
        for n, one in enumerate(types)
        if types[one][0] == "*" or one in ("M", "N", "K", "S")
    }
    if name == "softmax":  # 1,000 columns
        aligned = {place: found for place, found in aligned.items() if place != (2,)}
    text, about = _marked(ASTSource(kernel, types, case.constants, aligned), case.options, recording)
    low = plan.lower(text, recording, frontend="triton")
    (described,) = low.meta.kernels
    words = (str(described.id & 0xFFFFFFFF), str(described.id >> 32))
    (owner,) = (
        replace(one, id=words, size_offset="4096" if one.sized else None) for one in low.kernels
    )
    plain = _assembled(labels.labeled(low.marked).text)
    made = recorded(low.marked, owner, lambda text, lines: _assembled(text))
    return Made(case, plain, made, low.meta, about.shared)


def _marked(source: ASTSource, options: dict[str, int], recording: Recording) -> tuple[str, Any]:
    """A kernel's PTX with marks in it, and Triton's metadata."""
    kept, real, frontend = list[str](), plan.lower, registry.frontend("triton")

    def kept_too(text: str, *rest: Any, **more: Any) -> plan.Lowered:
        kept.append(text)
        return real(text, *rest, **more)

    frontend.enable(recording)
    patches = [
        patch.object(module, "lower", kept_too)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("kscope") and getattr(module, "lower", None) is real
    ]
    try:
        for one in patches:
            one.start()
        with patch.dict("os.environ", TRITON_ALWAYS_COMPILE="1"):
            compiled = triton.compile(
                source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True, **options}
            )
    finally:
        for one in patches:
            one.stop()
        frontend.disable()
    return kept[0], compiled.metadata


def _assembled(text: str) -> bytes:
    """The cubin, by the first ptxas at hand that knows the text's version: Triton's own, then the newest."""
    own = Path(str(triton.__file__)).parent / "backends/nvidia/bin"
    said = ""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        for tool in (own / "ptxas", own / "ptxas-blackwell", *assembler.installed()):
            command = [str(tool), "-lineinfo", "--gpu-name=sm_90a", str(source), "-o", str(cubin)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return cubin.read_bytes()
            said += done.stderr
    raise AssertionError(said)
