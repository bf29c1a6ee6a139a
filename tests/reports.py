"""Reads a report.html: its columns as arrays, its JSON as dicts. Shares no code with the writer."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from typing import Any

import numpy as np
import orjson

from kscope import report
from kscope.trace import Trace


class _Elements(HTMLParser):
    """Every element as a browser's parser finds it: (tag, attributes, text inside)."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, attributes, text = self.found[-1]
            self.found[-1] = tag, attributes, text + data


@dataclass(frozen=True)
class Report:
    """html: the page. elements: (tag, attributes, text). about: its JSON."""

    html: str
    elements: list[tuple[str, dict[str, str | None], str]]
    about: dict[str, Any]

    def text(self, name: str) -> str:
        """The text of the element with that id."""
        return next(text for _, attributes, text in self.elements if attributes.get("id") == name)

    def columns(self, name: str, spec: list[Any] | None = None) -> dict[str, np.ndarray]:
        """The columns of a payload."""
        data = zlib.decompress(base64.b64decode(self.text(f"data-{name}")))
        found, at = {}, 0
        for key, kind, length in spec or self.about["specs"][name]:
            width = int(kind[1])
            planes = np.frombuffer(data, np.uint8, width * length, at).reshape(width, length)
            found[key] = np.ascontiguousarray(planes.T).view(f"<{kind}").ravel()
            at += width * length
        assert at == len(data)
        return found

    def records(self) -> dict[str, np.ndarray]:
        """Every record: warp, name, kind, line, end and dur in ticks, value bits (0 without)."""
        warps = self.columns("warps")
        codes = {key: np.array(self.about["codes"][key]) for key in ("name", "kind", "line", "valued")}
        parts = []
        for index, chunk in enumerate(self.about["chunks"]):
            columns = self.columns(f"slices-{index}", chunk["spec"])
            counts = warps["count"][chunk["first"] : chunk["last"]]
            warp = np.repeat(np.arange(chunk["first"], chunk["last"]), counts)
            step = columns["end"].astype(np.int64)
            if chunk["signed"]:
                step = np.where(step % 2, -(step + 1) // 2, step // 2)
            end = np.concatenate([np.zeros(0, np.int64), *map(np.cumsum, np.split(step, np.cumsum(counts)[:-1]))])
            code = columns["code"].astype(np.int64)
            bits = np.zeros(len(code), np.int64)
            if "value" in columns:
                bits[codes["valued"][code]] = columns["value"]
            parts.append({"warp": warp, "code": code, "end": end, "dur": columns["dur"].astype(np.int64), "bits": bits})
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return {**joined, **{key: column[joined["code"]] for key, column in codes.items()}}


def written(trace: Trace) -> Report:
    """The report of a trace, read back."""
    file = BytesIO()
    report.write(trace, file)
    html = file.getvalue().decode()
    parser = _Elements()
    parser.feed(html)
    about = next(text for _, attributes, text in parser.found if attributes.get("id") == "data-about")
    return Report(html, parser.found, orjson.loads(about))


def policy(html: str) -> dict[str, str]:
    """The page's Content-Security-Policy: directive -> values."""
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert found is not None
    return {name: values for name, _, values in (rule.partition(" ") for rule in found[1].split("; "))}
