"""From a function to its syntax tree, and back from a changed tree to a function.

What lives here: finding a function in its file, the proof that the file still says what Python compiled, and
compiling the file again with one definition replaced: so names, classes around it and future imports
mean what they meant. What does not: what is changed (lowering.py).
"""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from kscope.instrument.code_objects import nested

Definition = ast.FunctionDef
_FUTURES = __future__.annotations.compiler_flag
"""Of what a function's flags say, what compiling its text again must be told: text that was executed may have
inherited it."""
LOWERED = "__kscope_lowered__"
"""Attribute of a function that rebuilt() made: the user's function."""


class NoSourceError(Exception):
    """The function's text is not at hand, or not what was compiled; the message says which."""


def where(function: FunctionType, line: int = 0) -> str:
    """file:line of a function, or of a line in it."""
    return f"{function.__code__.co_filename}:{line or function.__code__.co_firstlineno}"


def users(function: Any) -> Any:
    """The user's function that this one was made of, or the function itself."""
    return vars(function).get(LOWERED, function) if isinstance(function, FunctionType) else function


def rebuilt(function: FunctionType, change: Callable[[Definition], Definition], names: dict[str, Any]) -> FunctionType:
    """The function with its definition changed. `names`: what change() adds to its globals, filled by then.

    Raises NoSourceError.
    """
    text = _text(function)
    _check(function, text)
    tree = ast.parse(text)
    found, replace = _find(tree, function)
    replace(change(found))
    flags = function.__code__.co_flags & _FUTURES
    code = _same(compile(tree, function.__code__.co_filename, "exec", flags, dont_inherit=True), function)
    if code is None:
        raise NoSourceError("its definition cannot be told from another one on its line")
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    made = FunctionType(
        code,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    made.__kwdefaults__, made.__qualname__, made.__module__ = (
        function.__kwdefaults__,
        function.__qualname__,
        function.__module__,
    )
    made.__doc__, made.__annotations__ = function.__doc__, function.__annotations__
    vars(made)[LOWERED] = function
    return made


def _text(function: FunctionType) -> str:
    linecache.checkcache(function.__code__.co_filename)
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    if not lines:
        raise NoSourceError("its source is not at hand")
    return "".join(lines)


def _check(function: FunctionType, text: str) -> None:
    """The proof that the text is what was compiled: compiled again, it gives the same code."""
    try:
        code = _same(_compiled(text, function.__code__.co_filename, function.__code__.co_flags & _FUTURES), function)
    except SyntaxError as error:
        raise NoSourceError(f"its source does not compile any more ({error})") from None
    if code != function.__code__:
        raise NoSourceError(
            "its source is not what was compiled: the file was edited since it was imported, or rewritten at import"
        )


@lru_cache(16)
def _compiled(text: str, filename: str, flags: int) -> CodeType:
    code: CodeType = compile(text, filename, "exec", flags, dont_inherit=True)
    return code


def _same(module: CodeType, function: FunctionType) -> CodeType | None:
    """The code of the function of that name and line in a module's code."""
    wanted = function.__code__
    place = wanted.co_name, wanted.co_firstlineno
    found = [code for code in nested(module) if (code.co_name, code.co_firstlineno) == place]
    return found[0] if len(found) == 1 else next((code for code in found if code == wanted), None)


def _find(tree: ast.Module, function: FunctionType) -> tuple[Definition, Callable[[Definition], None]]:
    """The function's definition, and how to put another one in its place."""
    wanted = function.__code__
    for parent in ast.walk(tree):
        for _, field in ast.iter_fields(parent):
            if not isinstance(field, list):
                continue
            for index, node in enumerate(field):
                if isinstance(node, ast.FunctionDef) and node.name == wanted.co_name:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    if first == wanted.co_firstlineno:
                        return node, _setter(field, index)
    raise NoSourceError("it is a lambda" if wanted.co_name == "<lambda>" else "its definition is not in its file")


def _setter(field: list[Any], index: int) -> Callable[[Definition], None]:
    def put(node: Definition) -> None:
        field[index] = node

    return put
