"""The page: one HTML file with its style, script and data, which uses no network. Names in a trace never become markup
or script: they are JSON in an element that browsers do not run, with every `<`, `>` and `&` escaped, and the page's
policy allows only its own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

STYLES = ("theme.css", "layout.css", "panels.css")
SCRIPTS = (
    "dom.js", "drawing.js", "units.js", "color.js", "unpack.js", "model.js", "blocks.js", "slices.js", "view.js",
    "axis.js", "overview.js", "cells.js", "warps.js", "boxes.js", "hits.js", "details.js", "table.js", "histogram.js",
    "imbalance.js", "search.js", "input.js", "main.js",
)  # fmt: skip
"""Scripts in the order in which they form one script."""
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def written(about: dict[str, Any], payloads: Iterator[tuple[str, str]]) -> Iterator[str]:
    """The page in pieces. payloads: (id, base64). about: JSON, read after them."""
    head, foot = _frame()
    yield head
    for name, text in payloads:
        yield f'<script type="text/plain" id="data-{name}">{text}</script>\n'
    yield f'<script type="application/json" id="data-about">{json_text(about)}</script>\n'
    yield foot


def json_text(data: Any) -> str:
    """JSON that is safe inside a script element."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY).decode().translate(_ESCAPES)


@cache
def _frame() -> tuple[str, str]:
    """The page before and after the data."""
    style, script = _joined("css", STYLES), '"use strict";\n' + _joined("js", SCRIPTS)
    rules = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    policy = "; ".join(rules)
    page = _read("report.html")
    for mark, text in (("policy", policy), ("style", style), ("script", script)):
        before, found, after = page.partition(f"<!--{mark}-->")
        if not found:
            raise ValueError(f"report.html has no <!--{mark}-->")
        page = before + text + after
    head, _, foot = page.partition("<!--data-->\n")
    return head, foot


def _joined(folder: str, names: tuple[str, ...]) -> str:
    return "\n".join(f"/* {name} */\n{_read(f'{folder}/{name}')}" for name in names)


def _read(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
