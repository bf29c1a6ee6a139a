"""Parsing source survives a defect of CPython 3.11 with threads."""

from __future__ import annotations

import ast

import pytest

from kscope.util.python_source import parsed


def test_a_parse_that_another_thread_disturbed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 2

    def parse(text: str) -> ast.Module:
        if failures:
            raise failures.pop()
        return real(text)

    monkeypatch.setattr(ast, "parse", parse)
    assert ast.unparse(parsed("x = 1")) == "x = 1"


def test_errors_in_the_source_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: calls.append(text) or real(text))
    with pytest.raises(SyntaxError):
        parsed("x =")
    assert calls == ["x ="]
