"""The problems that bench/everywhere_*.py solve in every language: sizes, numbers, and expected results.

All are 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ROWS, COLUMNS, EPSILON = 4096, 8192, 1e-5
"""Softmax and layer norm: a block of THREADS normalizes a row."""
SIZE = 1024
"""Rows and columns of the matrices."""
THREADS = 256
TASKS, EACH, BLOCKS_PER_SM = 4096, 16, 2
"""A task adds EACH vectors of THREADS numbers. Persistent blocks take tasks from a counter."""
HEADS, LENGTH, WIDTH = 16, 1024, 32
QUERIES, KEYS = 128, 16
"""A block computes QUERIES rows of a head, KEYS keys at a time."""
SCALE = WIDTH**-0.5 * 1.4426950408889634
"""Kernels use exp2: the scale includes the base of the logarithm."""
KERNELS = ("softmax", "matmul", "layernorm", "tasks", "attention")
REGIONS = {
    "softmax": {"maximum", "sum", "write"},
    "matmul": {"load", "multiply", "store"},
    "layernorm": {"mean", "variance", "write"},
    "tasks": {"task", "step", "fetch"},
    "attention": {"load", "scores", "softmax", "weigh", "store"},
}

NUMBERS: dict[str, tuple[float, ...]] = {
    "layernorm": (COLUMNS, EPSILON),
    "tasks": (TASKS, EACH),
    "attention": (LENGTH, SCALE),
}
"""Arguments of Triton and Gluon kernels besides tensors and constants."""


@dataclass(frozen=True)
class Problem:
    """inputs, out, expected: tensors on the GPU. fresh: tensors that a launch needs zeroed."""

    inputs: tuple[Any, ...]
    out: Any
    expected: Any
    fresh: tuple[Any, ...] = field(default=())


def problems() -> dict[str, Callable[[], Problem]]:
    """Constructors of the problems, which are large: create one at a time."""
    return {
        "softmax": _softmax, "matmul": _matmul, "layernorm": _layernorm, "tasks": _tasks, "attention": _attention,
    }  # fmt: skip


def sms() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def grid(kernel: str) -> tuple[int, ...]:
    """Blocks of a kernel other than matmul, whose tiles each language chooses."""
    if kernel == "tasks":
        return (BLOCKS_PER_SM * sms(),)
    return (LENGTH // QUERIES, HEADS) if kernel == "attention" else (ROWS,)


def _random(*shape: int) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0))


def _softmax() -> Problem:
    x = _random(ROWS, COLUMNS)
    return Problem((x,), x.new_empty(x.shape), x.softmax(1))


def _matmul() -> Problem:
    a, b = _random(2, SIZE, SIZE)
    return Problem((a, b), a.new_empty(a.shape), (a.double() @ b.double()).float())


def _layernorm() -> Problem:
    import torch

    x, weight, bias = _random(ROWS, COLUMNS), _random(COLUMNS), _random(COLUMNS)
    return Problem(
        (x, weight, bias), x.new_empty(x.shape), torch.nn.functional.layer_norm(x, (COLUMNS,), weight, bias, EPSILON)
    )


def _tasks() -> Problem:
    import torch

    x = _random(TASKS, EACH, THREADS)
    turn = torch.zeros(1, device="cuda", dtype=torch.int32)
    return Problem((x, turn), x.new_empty(TASKS, THREADS), x.sum(1), (turn,))


def _attention() -> Problem:
    q, k, v = _random(3, HEADS, LENGTH, WIDTH)
    powers = (q.double() @ k.double().transpose(1, 2) * WIDTH**-0.5).softmax(2)
    return Problem((q, k, v), q.new_empty(q.shape), (powers @ v.double()).float())
