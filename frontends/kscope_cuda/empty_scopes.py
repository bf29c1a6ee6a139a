"""Refuses regions that end where they begin, `{ KSCOPE_REGION("load"); }`, in source that kscope sees: the compiler
cannot.
"""

from __future__ import annotations

import re

from kscope.errors import UsageError

from .select.tokens import Token, Tokens, UnreadableError

_MACRO = re.compile(r"KSCOPE_REGION(?:_OPEN)?(?:_V)?(?:_IF)?")


def refuse_empty_scopes(source: str, file: str) -> None:
    """Raise UsageError, with the file and line, for a region directly before the brace that ends it.

    Args:
        source: CUDA C++; source that cannot be read is left to the compiler.
        file: its name, for the error.
    """
    if not _MACRO.search(source):
        return
    try:
        tokens = Tokens.of(source)
        found = [_text(tokens, at) for at, token in enumerate(tokens.code) if _is_empty(tokens, at, token)]
    except UnreadableError:
        return
    for text, line in found:
        raise UsageError(
            f"{file}:{line}: {text} is directly before the closing brace that ends the region, and measures nothing: "
            f"expected {{ {text} and then the code to measure }}"
        )


def _is_empty(tokens: Tokens, at: int, token: Token) -> bool:
    """True if a token is a region's macro, and its arguments, a semicolon and a closing brace follow."""
    if token.kind != "identifier" or not _MACRO.fullmatch(token.text):
        return False
    after = tokens.partners.get(at + 1, len(tokens.code))
    return [one.text for one in tokens.code[after + 1 : after + 3]] == [";", "}"]


def _text(tokens: Tokens, at: int) -> tuple[str, int]:
    """The macro call as it is written, and its line."""
    first, last = tokens.code[at].start, tokens.code[tokens.partners[at + 1] + 1].end
    return tokens.source[first:last], tokens.line(first)
