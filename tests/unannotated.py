"""Unannotated kernels in the style of Triton's tutorials."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    group = pid // (GROUP * num_pid_n)
    first = group * GROUP
    size = min(num_pid_m - first, GROUP)
    pid_m = first + ((pid % (GROUP * num_pid_n)) % size)
    pid_n = (pid % (GROUP * num_pid_n)) // size
    rows = (pid_m * BM + tl.arange(0, BM)) % M
    columns = (pid_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride_bk + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):  # the loop
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * BK, other=0.0)  # load a
        b = tl.load(b_ptrs, mask=inner[:, None] < K - k * BK, other=0.0)  # load b
        total = tl.dot(a, b, total)  # the dot
        a_ptrs += BK
        b_ptrs += BK * stride_bk  # the loop's end
    c = total.to(tl.float16)
    at_m = pid_m * BM + tl.arange(0, BM)
    at_n = pid_n * BN + tl.arange(0, BN)
    mask = (at_m[:, None] < M) & (at_n[None, :] < N)
    tl.store(c_ptr + stride_cm * at_m[:, None] + at_n[None, :], c, mask=mask)  # the store


@triton.jit
def softmax(out, x, row_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):  # the loop
        at = tl.arange(0, BLOCK)
        mask = at < columns
        line = tl.load(x + row * row_stride + at, mask=mask, other=-float("inf"))  # the load
        shifted = line - tl.max(line, axis=0)  # the maximum
        numerator = tl.exp(shifted)  # the exponential
        denominator = tl.sum(numerator, axis=0)  # the sum
        tl.store(out + row * row_stride + at, numerator / denominator, mask=mask)  # the store


@triton.jit
def moment(x_ptr, row, width, mean, BLOCK: tl.constexpr, SQUARED: tl.constexpr):
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, width, BLOCK):  # the helper's loop
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0).to(tl.float32)  # the helper's load
        if SQUARED:
            value = tl.where(at < width, value - mean, 0.0)
            value = value * value
        total += value
    return tl.sum(total, axis=0) / width


@triton.jit
def layer_norm(x_ptr, out_ptr, weight_ptr, bias_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = moment(x_ptr, row, width, 0.0, BLOCK, False)  # the mean
    variance = moment(x_ptr, row, width, mean, BLOCK, True)  # the variance
    scale = 1 / tl.sqrt(variance + eps)
    for start in range(0, width, BLOCK):  # the loop
        at = start + tl.arange(0, BLOCK)
        mask = at < width
        weight = tl.load(weight_ptr + at, mask=mask)  # load the weight
        bias = tl.load(bias_ptr + at, mask=mask)
        x = tl.load(x_ptr + row * width + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * width + at, (x - mean) * scale * weight + bias, mask=mask)  # the store


@triton.jit
def specialized(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, (M, K), (K, 1), (BM, BK))
    b_desc = tl.make_tensor_descriptor(b_ptr, (N, K), (K, 1), (BN, BK))
    c_desc = tl.make_tensor_descriptor(c_ptr, (M, N), (N, 1), (BM, BN))
    at_m = tl.program_id(0) * BM
    at_n = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, warp_specialize=True):  # the loop
        a = a_desc.load((at_m, k * BK))  # load a
        b = b_desc.load((at_n, k * BK))  # load b
        total = tl.dot(a, b.T, total)  # the dot
    c_desc.store((at_m, at_n), total.to(tl.float16))  # the store


@triton.jit
def leaving(out, n):
    if n < 1:
        return
    i = 0
    while i < n:  # the loop
        tl.atomic_add(out, 1)  # the store
        i += 1


@dataclass(frozen=True)
class Case:
    """A kernel and its compilation. types: of its arguments, or their constants; archs: its compute capabilities."""

    kernel: Any
    types: dict[str, Any]
    options: dict[str, Any] = field(default_factory=lambda: {"num_warps": 4})
    archs: tuple[int, ...] = (80, 90, 100)

    def line(self, what: str, of: Any = None) -> int:
        """The number of the line with that comment."""
        source, first = inspect.getsourcelines((of or self.kernel).fn)
        (found,) = (first + at for at, text in enumerate(source) if text.rstrip().endswith(f"# {what}"))
        return found


FILE = Path(__file__).name
PATH = str(Path(__file__))
_HALVES = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
_FLOATS = dict.fromkeys(("x_ptr", "out_ptr", "weight_ptr", "bias_ptr"), "*fp32")
CASES = {
    "matmul": Case(
        matmul,
        _HALVES
        | dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32")
        | {"BM": 64, "BN": 128, "BK": 64, "GROUP": 8},
        {"num_warps": 4, "num_stages": 3},
    ),
    "softmax": Case(
        softmax,
        {
            "out": "*fp32",
            "x": "*fp32",
            "row_stride": "i32",
            "rows": "i32",
            "columns": "i32",
            "BLOCK": 1024,
            "STAGES": 2,
        },
    ),
    "layer_norm": Case(layer_norm, _FLOATS | {"width": "i32", "eps": "fp32", "BLOCK": 1024}),
    "specialized": Case(
        specialized,
        _HALVES | dict.fromkeys("MNK", "i32") | {"BM": 128, "BN": 128, "BK": 64},
        archs=(90, 100),
    ),
    "leaving": Case(leaving, {"out": "*i32", "n": "i32"}, archs=(90,)),
}


def _pairs() -> Iterator[Any]:
    """Each for sm_90 and, in turn, one other architecture; the rest are variations."""
    for number, (name, case) in enumerate(CASES.items()):
        others = [arch for arch in case.archs if arch != 90]
        for arch in case.archs:
            often = arch == 90 or arch == others[number % len(others)]
            yield pytest.param(name, arch, id=f"{name}-{arch}", marks=() if often else (pytest.mark.slow,))


PAIRS = list(_pairs())


def source(name: str) -> Any:
    """The kernel as Triton's compiler takes it: pointers and strides are multiples of 16, as those of tensors are."""
    case = CASES[name]
    typed = {key: isinstance(kind, str) for key, kind in case.types.items()}
    signature = {key: kind if typed[key] else "constexpr" for key, kind in case.types.items()}
    constants = {key: kind for key, kind in case.types.items() if not typed[key]}
    aligned = [at for at, (key, kind) in enumerate(signature.items()) if kind[0] == "*" or kind == "i32"]
    attributes = {(at,): [["tt.divisibility", 16]] for at in aligned}
    return ASTSource(case.kernel, signature, constants, attributes)


def compiled(name: str, arch: int) -> Any:
    """The kernel, compiled for a GPU that need not be there."""
    return triton.compile(source(name), target=GPUTarget("cuda", arch, 32), options=CASES[name].options)
