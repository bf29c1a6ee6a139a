"""Entry points of other projects, with inputs of realistic shapes: one file per project, imported from a checkout.

An entry is a function that makes its inputs and returns the work: a call without arguments that returns tensors. Inputs
are the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

Work = Callable[[], list[torch.Tensor]]
HALF = torch.bfloat16
device = "cuda"
"""Where inputs are made; the run without a GPU sets it."""


class Entries(dict[str, Callable[[], Work]]):
    """Entries by name, in order."""

    def add(self, make: Callable[[], Work]) -> Callable[[], Work]:
        """Decorator: an entry under the function's name."""
        self[make.__name__] = make
        return make

    def call(self, name: str, find: Callable[[], Callable[..., Any]], *given: Any, **named: Any) -> None:
        """An entry that calls the function that find() imports. Arguments: values, and functions that make them."""

        def make() -> Work:
            torch.manual_seed(0)
            made, function = [one() if callable(one) else one for one in given], find()
            return lambda: tensors(function(*made, **named))

        self[name] = make

    def both(
        self, name: str, find: Callable[[], Callable[..., Any]], inputs: Sequence[Callable[[], Any]], *more: Any,
        fresh: bool = False, back: bool = True, **named: Any,
    ) -> None:  # fmt: skip
        """An entry that calls the function that find() imports with the tensors that inputs make, and with more:
        forward, and backward if `back`. fresh: as in both()."""

        def make() -> Work:
            torch.manual_seed(0)
            function, made = find(), tensors([one() for one in inputs])
            if back:
                return both(lambda *given: function(*given, *more, **named), made, fresh)
            values = [one.detach() for one in made]
            return lambda: tensors(function(*values, *more, **named))

        self[name] = make


def rand(*shape: int, dtype: torch.dtype = HALF, scale: float = 1.0, grad: bool = False) -> torch.Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, device=device).mul_(scale).to(dtype).requires_grad_(grad)


def grad(*shape: int, **more: Any) -> Callable[[], torch.Tensor]:
    """A function that makes normally distributed numbers with a gradient."""
    return partial(rand, *shape, grad=True, **more)


def angles(size: int, dtype: torch.dtype = HALF) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of a rotary embedding of 2,048 positions, each with as many frequencies as `size`."""
    turned = torch.outer(torch.arange(2048.0), 1e4 ** -torch.linspace(0, 1, size))
    near = rand(1).device
    return turned.cos().to(near, dtype), turned.sin().to(near, dtype)


def ints(most: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Integers from zero up to most - 1."""
    return torch.randint(most, shape, device=device).to(dtype)


def tensors(found: Any) -> list[torch.Tensor]:
    """The tensors in what a function returned."""
    if isinstance(found, torch.Tensor):
        return [found]
    return [one for part in found for one in tensors(part)] if isinstance(found, list | tuple) else []


def both(function: Callable[..., Any], inputs: Sequence[torch.Tensor], fresh: bool = False) -> Work:
    """Work: forward, and backward to the inputs that have gradients.

    Args:
        fresh: the function writes into its inputs, or its backward pass into gradients: each call gets copies.
    """
    gradients: list[torch.Tensor] = []

    def work() -> list[torch.Tensor]:
        given = [one.detach().clone().requires_grad_(one.requires_grad) if fresh else one for one in inputs]
        outs = [one for one in tensors(function(*given)) if one.requires_grad]
        if not gradients:
            torch.manual_seed(1)
            gradients.extend(rand(*one.shape, dtype=one.dtype) for one in outs)
        into = [one.clone() for one in gradients] if fresh else gradients
        wanted = [one for one in given if one.requires_grad]
        found = torch.autograd.grad(outs, wanted, into, allow_unused=True)
        return [one.detach() for one in outs] + [one for one in found if one is not None]

    return work
