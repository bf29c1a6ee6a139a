"""Triton kernels with Proton's scopes in place of kscope's regions."""

from __future__ import annotations

import ast
import inspect
import linecache
from functools import cache
from textwrap import dedent
from typing import Any

import triton
import triton.profiler.language as pl


@cache
def twin(kernel: Any) -> Any:
    """The kernel ``NAME_proton``: a jit function with scopes in place of regions, also in the jit functions it calls.

    Raises:
        ValueError: it has a `with` of something else than ``kscope.region``.
    """
    plain = kernel.fn
    (function,) = ast.parse(dedent(inspect.getsource(plain))).body
    assert isinstance(function, ast.FunctionDef)
    function = _Scopes().visit(function)
    function.name, function.decorator_list = f"{plain.__name__}_proton", []
    text = ast.unparse(ast.fix_missing_locations(function))
    file = f"<{function.name} of {plain.__module__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Triton reads the source
    space = {**plain.__globals__, "pl": pl}
    space |= {name: twin(space[name]) for name in plain.__code__.co_names if _has_regions(space.get(name))}
    exec(compile(text, file, "exec"), space)
    return triton.jit(space[function.name])


def _has_regions(thing: Any) -> bool:
    return isinstance(thing, triton.JITFunction) and "kscope" in thing.fn.__code__.co_names


class _Scopes(ast.NodeTransformer):
    def visit_With(self, node: ast.With) -> list[ast.stmt]:  # ast's name
        self.generic_visit(node)
        (opened,) = node.items
        call = opened.context_expr
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "kscope.region":
            raise ValueError(f"with {ast.unparse(call)}: expected kscope.region")
        name = ast.unparse(call.args[0])
        begin, end = (ast.parse(f"pl.{act}_scope({name})").body for act in ("enter", "exit"))
        return [*begin, *node.body, *end]
