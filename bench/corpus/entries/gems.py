"""FlagGems: functions of flag_gems, called directly instead of as replacements of torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch

from . import Entries, Work, ints, rand, tensors

ENTRIES = Entries()
WIDE, SQUARE = (4096, 4096), (2048, 2048)
_FLOATS = {"dtype": torch.float32}


def matrix(*shape: int, **more: Any) -> Callable[[], torch.Tensor]:
    return partial(rand, *(shape or WIDE), **more)


def add(name: str, *given: Any, **named: Any) -> None:
    """An entry that calls flag_gems.NAME."""
    ENTRIES.call(name, lambda: getattr(import_module("flag_gems"), name), *given, **named)


for unary in ("abs", "exp", "gelu", "silu", "sigmoid", "tanh", "rsqrt", "sin", "relu", "isnan", "log_sigmoid"):
    add(unary, matrix())
add("add", matrix(), matrix())
add("mul", matrix(), matrix(1, 4096))
add("div_mode", matrix(**_FLOATS), matrix(**_FLOATS), rounding_mode="floor")
add("pow_tensor_scalar", matrix(), 3)
add("where_self", lambda: rand(*WIDE) > 0, matrix(), matrix())
add("clamp", matrix(), -0.5, 0.5)
add("masked_fill", matrix(), lambda: rand(*WIDE) > 0, 0.0)
add("lerp_tensor", matrix(), matrix(), matrix())
add("addcmul", matrix(), matrix(), matrix(), value=0.5)
add("to_copy", matrix(), **_FLOATS)
add("sum", matrix(**_FLOATS))
add("sum_dim", matrix(), [1])
add("mean_dim", matrix(), [0])
add("max_dim", matrix(), 1)
add("argmax", matrix(), 1)
add("amax", matrix(), [1])
add("all_dim", lambda: rand(*WIDE) > -3, 1)
add("prod_dim", matrix(**_FLOATS), 1)
add("var_mean", matrix(), [1])
add("std", matrix(**_FLOATS), [1])
add("vector_norm", matrix(), 2, [1])
add("softmax", matrix(), 1)
add("log_softmax", matrix(), 1)
add("layer_norm", matrix(), [4096], matrix(4096), matrix(4096))
add("rms_norm", matrix(), [4096], matrix(4096))
add("skip_layer_norm", matrix(), matrix(), [4096], matrix(4096), matrix(4096))
add("group_norm", matrix(16, 128, 32, 32), matrix(128), matrix(128), 16, 128, 1024, 16)
add("batch_norm", matrix(16, 64, 32, 32), matrix(64), matrix(64), None, None, True)
add("silu_and_mul", matrix(), matrix())
add("gelu_and_mul", matrix(), matrix())
add("mm", matrix(*SQUARE), matrix(*SQUARE))
add("bmm", matrix(16, 512, 512), matrix(16, 512, 512))
add("addmm", matrix(2048), matrix(*SQUARE), matrix(*SQUARE))
add("mv", matrix(*SQUARE), matrix(2048))
add("outer", matrix(4096), matrix(4096))
add("scaled_dot_product_attention", *(matrix(2, 8, 1024, 128) for _ in "qkv"), is_causal=True)
add("conv2d", matrix(8, 64, 32, 32), matrix(64, 64, 3, 3), None, 1, 1)
add("max_pool2d_with_indices", matrix(8, 64, 64, 64), 3, 2, 1)
add("sort", matrix(256, 2048), -1)
add("topk", matrix(256, 4096), 16)
add("cumsum", matrix(1024, 4096, **_FLOATS), 1)
add("cummax", matrix(256, 1024, **_FLOATS), 1)
add("gather", matrix(1024, 1024), 1, partial(ints, 1024, 1024, 1024))
add("index_select", matrix(), 0, partial(ints, 4096, 1024))
add("embedding", matrix(32_000, 1024), partial(ints, 32_000, 4096))
add("scatter", matrix(1024, 1024), 1, lambda: torch.argsort(rand(1024, 1024), 1), matrix(1024, 1024))
add("index_add", matrix(1024, 1024, **_FLOATS), 0, partial(ints, 1024, 512), matrix(512, 1024, **_FLOATS))
add("cat", lambda: [rand(*SQUARE) for _ in range(3)], 1)
add("flip", matrix(), [1])
add("triu", matrix(), 0)
add("isin", partial(ints, 4096, 1024, 64), partial(ints, 4096, 128))
add("nonzero", lambda: rand(1024, 1024) > 1)
add("glu", matrix(), -1)
add("kron", matrix(64, 64), matrix(32, 32))
add("_upsample_bicubic2d_aa", matrix(4, 3, 128, 128, **_FLOATS), [256, 256])


@ENTRIES.add
def fused_add_rms_norm() -> Work:
    """Called with copies, because it writes its arguments."""
    import flag_gems

    torch.manual_seed(0)
    x, residual, weight = (one() for one in (matrix(), matrix(), matrix(4096)))
    return lambda: tensors(flag_gems.fused_add_rms_norm(x.clone(), residual.clone(), [4096], weight))
