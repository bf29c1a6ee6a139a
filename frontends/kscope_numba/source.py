"""Converts a function to its syntax tree, and a changed tree back to a function. The whole file is compiled again with
one definition replaced, so names, enclosing classes and future imports keep their meaning.
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
from kscope.util.python_source import parsed

Definition = ast.FunctionDef
_FUTURES = __future__.annotations.compiler_flag
"""Compiler flags that code run by exec() may have inherited, and that its text does not show."""
REWRITTEN = "__kscope_original__"
"""Attribute of a function made by rebuild(): the user's function."""


class NoSourceError(Exception):
    """The function's source is missing, or differs from the compiled code; the message names the case."""


def location(function: FunctionType, line: int = 0) -> str:
    """file:line of a function, or of a line in it."""
    return f"{function.__code__.co_filename}:{line or function.__code__.co_firstlineno}"


def original(function: Any) -> Any:
    """The user's function behind a rebuilt one; any other object as it is."""
    return vars(function).get(REWRITTEN, function) if isinstance(function, FunctionType) else function


def rebuild(function: FunctionType, change: Callable[[Definition], Definition], names: dict[str, Any]) -> FunctionType:
    """The function with its definition changed.

    Args:
        function: the user's function.
        change: returns the changed definition.
        names: added to the function's globals; read after change() returned.

    Raises:
        NoSourceError: the source is missing, or differs from the compiled code.
    """
    text = _text(function)
    _check(function, text)
    tree = parsed(text)
    definition, replace = _find(tree, function)
    replace(change(definition))
    flags = function.__code__.co_flags & _FUTURES
    code = _same(compile(tree, function.__code__.co_filename, "exec", flags, dont_inherit=True), function)
    if code is None:
        raise NoSourceError("another function of the same name starts on its line")
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    made = FunctionType(
        code,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        setattr(made, name, getattr(function, name))
    vars(made)[REWRITTEN] = function
    return made


def _text(function: FunctionType) -> str:
    linecache.checkcache(function.__code__.co_filename)
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    if not lines:
        raise NoSourceError("its source is not available")
    return "".join(lines)


def _check(function: FunctionType, text: str) -> None:
    """Raises NoSourceError unless the text compiles to the function's code."""
    try:
        code = _same(_compiled(text, function.__code__.co_filename, function.__code__.co_flags & _FUTURES), function)
    except SyntaxError as error:
        raise NoSourceError(f"its source no longer compiles ({error})") from None
    if code != function.__code__:
        raise NoSourceError(
            "its source differs from what was imported: the file was edited since, or was rewritten at import"
        )


@lru_cache(16)
def _compiled(text: str, filename: str, flags: int) -> CodeType:
    code: CodeType = compile(text, filename, "exec", flags, dont_inherit=True)
    return code


def _same(module: CodeType, function: FunctionType) -> CodeType | None:
    """The code in a module's code with the function's name and first line."""
    own = function.__code__
    place = own.co_name, own.co_firstlineno
    found = [code for code in nested(module) if (code.co_name, code.co_firstlineno) == place]
    return found[0] if len(found) == 1 else next((code for code in found if code == own), None)


def _find(tree: ast.Module, function: FunctionType) -> tuple[Definition, Callable[[Definition], None]]:
    """The function's definition, and a function that replaces it in the tree."""
    own = function.__code__
    for parent in ast.walk(tree):
        for _, field in ast.iter_fields(parent):
            if not isinstance(field, list):
                continue
            for index, node in enumerate(field):
                if isinstance(node, ast.FunctionDef) and node.name == own.co_name:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    if first == own.co_firstlineno:
                        return node, _setter(field, index)
    raise NoSourceError("it is a lambda" if own.co_name == "<lambda>" else "its definition is not in its file")


def _setter(field: list[Any], index: int) -> Callable[[Definition], None]:
    def put(node: Definition) -> None:
        field[index] = node

    return put
