"""Triton kernels that are recorded in machine code: compiled, armed, loaded and launched by the driver."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kscope import ptx
from kscope.capture.model import ModuleMeta
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.lowering import assembler, plan
from kscope.sass.placing import labels
from kscope.sass.recording.kernel import Recorded, record_kernel

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


SIZE, LENGTH, WIDTH, WIDE = 1024, 1024, 64, 7168
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
    Case(
        "persistent",
        dict.fromkeys("abc", HALF) | dict.fromkeys("MNK", "i32"),
        {"BM": 128, "BN": 128, "BK": 64, "TAG": 0},
        {"num_warps": 8, "num_stages": 3},
        (SIZE // 128 * SIZE // 128 // 2, 1, 1),
        ((SIZE, SIZE),) * 3,
        1,
        (SIZE, SIZE, SIZE),
        {"tile": 2, "load": 2 * SIZE // 64, "dot": 2 * SIZE // 64, "epilogue": 2},
    ),
    Case(
        "layernorm",
        {"x": HALF, "weight": FLOAT, "bias": FLOAT, "y": HALF, "N": "i32", "eps": "fp32"},
        {"BLOCK": 1024, "TAG": 0},
        {"num_warps": 4},
        (512, 1, 1),
        ((512, WIDE), (WIDE,), (WIDE,), (512, WIDE)),
        1,
        (WIDE, 1e-5),
        {"mean": 1, "variance": 1, "write": WIDE // 1024},
    ),
    Case(
        "splitk",
        {"a": HALF, "b": HALF, "c": FLOAT} | dict.fromkeys("MNK", "i32"),
        {"BM": 128, "BN": 128, "BK": 64, "TAG": 0},
        {"num_warps": 8, "num_stages": 3},
        (SIZE // 128, SIZE // 128, 2),
        ((SIZE, SIZE),) * 3,
        1,
        (SIZE, SIZE, SIZE),
        {"load": SIZE // 128, "dot": SIZE // 128, "reduce": 1},
    ),
)
"""Rows of softmax do not fill its blocks; those of layernorm take seven turns: of unrolled loops, and what is left."""
COMPILED = (
    Case(
        "tasks",
        {"x": FLOAT, "y": FLOAT, "next_task": "*i32", "count": "i32", "each": "i32"},
        {"BLOCK": 1024, "TAG": 0},
        {"num_warps": 4},
        (0, 0, 0),
        (),
        0,
        (),
        dict.fromkeys(("task", "step", "fetch"), 0),
    ),
    Case(
        "grouped",
        dict.fromkeys("xwy", HALF) | dict.fromkeys(("experts", "firsts", "ends"), "*i32") | dict.fromkeys("NK", "i32"),
        {"BM": 128, "BN": 128, "BK": 64, "TAG": 0},
        {"num_warps": 8, "num_stages": 3},
        (0, 0, 0),
        (),
        0,
        (),
        dict.fromkeys(("lookup", "load", "dot", "store"), 0),
    ),
)
"""Kernels whose launches need more than random numbers."""


@dataclass(frozen=True)
class Made:
    """A case compiled: the plain cubin, the one that records, and what a session must know of it."""

    case: Case
    plain: bytes
    recorded: Recorded
    meta: ModuleMeta
    shared: int


@cache
def made(name: str, recording: Recording | None = None, arch: int = 90) -> Made:
    """Compile a case for an architecture, without a GPU."""
    recording = recording or Recording(records=256)
    case, source = _source(name)
    text, about = _marked(source, case.options, recording, arch)
    low = plan.lower(text, recording, frontend="triton")
    text = text.replace(".address_size 64\n", f".address_size 64\n{ptx.control_symbol()}", 1)
    (described,) = low.meta.kernels
    words = (str(described.id & 0xFFFFFFFF), str(described.id >> 32))
    labeled, specs = labels.labeled(text), (recording.strategy.spec,)
    flat = labeled.kernel.has_flat_blocks
    owner = ptx.Kernel(recording, specs, described.log2_records, words, arch, flat=flat)
    found = record_kernel(text, owner, _assembled)
    meta = replace(low.meta, layouts=found.layouts)
    return Made(case, _assembled(labeled.plain), found, meta, about.shared)


def without_kscope(name: str) -> bytes:
    """The cubin of a case that was compiled while kscope is disabled."""
    case, source = _source(name)
    with compiling():
        compiled = triton.compile(source, target=_gpu(90), options={"enable_fp_fusion": True, **case.options})
    return _assembled(compiled.asm["ptx"])


@contextmanager
def compiling() -> Iterator[None]:
    """Triton compiles what it has in its cache, too. A knob that another test has set hides the environment."""
    with patch.dict("os.environ"), patch.object(knobs.compilation, "always_compile", True):
        yield


def _source(name: str) -> tuple[Case, ASTSource]:
    case = next(one for one in (*CASES, *COMPILED) if one.name == name)
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
    return case, ASTSource(kernel, types, case.constants, aligned)


def _marked(source: ASTSource, options: dict[str, int], recording: Recording, arch: int) -> tuple[str, Any]:
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
        with compiling():
            compiled = triton.compile(source, target=_gpu(arch), options={"enable_fp_fusion": True, **options})
    finally:
        for one in patches:
            one.stop()
        frontend.disable()
    return kept[0], compiled.metadata


def _assembled(text: str, table: bool = True) -> bytes:
    """The cubin with a line table, by the first ptxas that knows the text's version: Triton's own, then the newest."""
    own = Path(str(triton.__file__)).parent / "backends/nvidia/bin"
    said = ""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        for tool in (own / "ptxas", own / "ptxas-blackwell", *assembler.installed()):
            command = [str(tool), "-lineinfo", f"--gpu-name={_target(text)}", str(source), "-o", str(cubin)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return cubin.read_bytes()
            said += done.stderr
    raise AssertionError(said)


def _gpu(arch: int) -> GPUTarget:
    return GPUTarget("cuda", arch, 32)


def _target(text: str) -> str:
    return text.partition(".target ")[2].split()[0].rstrip(",")


def control_block(metas: tuple[ModuleMeta, ...]) -> int:
    """The address of the current device's control block. The names of the modules are known from here on."""
    import torch

    word = torch.zeros(1, dtype=torch.int64, device="cuda")
    registry.backend("cuda").arm_control_block(word.data_ptr(), metas)
    return int(word.item())


def launcher(found: Made, cubin: bytes) -> Callable[[], list[Any]]:
    """Load a cubin of the case; a function that launches it on the same numbers, and returns its results."""
    import torch
    from cuda.bindings import driver

    def call(what: str, *arguments: Any) -> Any:
        result, *values = getattr(driver, what)(*arguments)
        assert int(result) == 0, f"{what}: {result}"
        return values[0] if values else None

    torch.cuda.current_stream().synchronize()  # makes the context
    module = call("cuModuleLoadData", cubin)
    function = call("cuModuleGetFunction", module, found.case.name.encode())
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    call("cuFuncSetAttribute", function, most, max(found.shared, 1))
    case, random = found.case, torch.Generator(device="cuda").manual_seed(0)
    pointers = [one for one in case.types.values() if one[0] == "*"]
    tensors = [
        torch.randn(shape, generator=random, device="cuda").to(torch.float16 if kind == HALF else torch.float32)
        for shape, kind in zip(case.shapes, pointers, strict=True)
    ]
    numbers = [
        (one, ctypes.c_int32 if kind == "i32" else ctypes.c_float)
        for one, kind in zip(case.numbers, [one for one in case.types.values() if one[0] != "*"], strict=True)
    ]
    scratch = [(0, ctypes.c_void_p)] * 2  # Triton's own
    arguments = [(one.data_ptr(), ctypes.c_void_p) for one in tensors] + numbers + scratch
    results = {"backward": [4, 5]}.get(case.name, [len(tensors) - 1])

    def launch() -> list[Any]:
        for number in results:
            tensors[number].zero_()
        values = tuple(value for value, _ in arguments), tuple(kind for _, kind in arguments)
        stream = torch.cuda.current_stream().cuda_stream
        block = 32 * case.options["num_warps"]
        call("cuLaunchKernel", function, *case.grid, block, 1, 1, found.shared, stream, values, 0)
        torch.cuda.synchronize()
        return [tensors[number].clone() for number in results]

    return launch
