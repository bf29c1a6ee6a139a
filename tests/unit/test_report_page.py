"""The report's HTML: names never become markup or script, and nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import reports
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec
from waiting import PATIENCE_S

from kscope.capture.capture import Capture, load_capture
from kscope.capture.capture_data import DeviceCapture
from kscope.marks.names import split
from kscope.report import page
from kscope.trace import Trace, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
PAGE = Path(page.__file__).parent / "page"
HOSTILE = (
    '</script><script>document.title="ran"</script>',
    '<img src=x onerror="document.title=1">',
    "a\nb\r\tc\u2028d\u2029e",
    "\"'`${alert(1)}\\",
    "<!--<script>",
    "]]>&lt;&amp;",
    "\u202egnirts\x00\x1b[31m",
    "javascript:alert(1)",
)


def named(*names: str, kernel: str = "matmul") -> Trace:
    names = tuple(dict.fromkeys(names))
    records = [Rec(name, 2000 + 100 * at, 2050 + 100 * at) for at, name in enumerate(names)]
    slab = synth.slab(records, log2=max(3, len(names).bit_length()))
    return decode(Capture(synth.EPOCH, (synth.device([slab]),), (synth.module(names, name=kernel),)))


@pytest.fixture(scope="module")
def plain() -> reports.Report:
    return reports.written(named("load"))


def tags(found: reports.Report) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    return [(tag, tuple(attributes.items())) for tag, attributes, _ in found.elements]


def test_hostile_names_stay_text_in_the_report(plain: reports.Report) -> None:
    found = reports.written(named(*HOSTILE, kernel=HOSTILE[0]))
    assert sorted(found.about["names"]) == sorted(HOSTILE)
    assert found.about["kernels"] == [HOSTILE[0]]
    assert tags(found) == tags(plain)
    assert not any(name in found.html for name in HOSTILE[:2])


@given(st.text(min_size=1, max_size=40).filter(lambda name: "\x00" not in name or len(name) > 1))
def test_no_name_changes_the_page(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    found, other = reports.written(named(name, kernel=name)), reports.written(named("x", kernel="y"))
    assert found.about["names"] == [split(name)[0]]
    assert tags(found) == tags(other)


def test_report_data_is_in_inert_elements(plain: reports.Report) -> None:
    scripts = [attributes for tag, attributes, _ in plain.elements if tag == "script"]
    assert {attributes.get("type") for attributes in scripts} == {"text/plain", "application/json", None}
    assert [attributes for attributes in scripts if "type" not in attributes] == [{}]
    assert not re.search(r"[<>&\u2028\u2029]", plain.text("data-about"))


def test_the_policy_allows_this_style_and_this_script_and_nothing_else(plain: reports.Report) -> None:
    policy = reports.policy(plain.html)
    (style,) = [text for tag, _, text in plain.elements if tag == "style"]
    (script,) = [text for tag, attributes, text in plain.elements if tag == "script" and not attributes]

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": hashed(style),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_the_content_policy_precedes_all_content(plain: reports.Report) -> None:
    names = [tag if tag != "meta" else next(iter(attributes)) for tag, attributes, _ in plain.elements]
    assert names[:4] == ["html", "head", "charset", "http-equiv"]


def test_the_report_contains_no_urls(plain: reports.Report) -> None:
    assert not re.search(r"https?://|//cdn|url\(|@import", plain.html)
    assert not [a for _, attributes, _ in plain.elements for a in attributes if a in ("src", "href", "action", "style")]
    assert not [a for _, attributes, _ in plain.elements for a in attributes if a.startswith("on")]


@pytest.mark.parametrize("path", sorted(PAGE.rglob("*.js")), ids=lambda path: path.name)
def test_the_script_makes_no_markup_of_text_and_sends_no_request(path: Path) -> None:
    code = path.read_text()
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|createContextualFragment|"
        r"DOMParser|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource|\bimport\b|localStorage|setAttribute\(\"on"
    )
    assert not re.search(forbidden, code)
    assert len(code.splitlines()) <= 350
    assert code.startswith("//"), "says what lives in it"


@pytest.mark.parametrize("path", sorted(path for path in PAGE.rglob("*") if path.is_file()), ids=lambda path: path.name)
def test_no_line_of_the_page_is_longer_than_120(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > 120] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("at", [2.0**61, 2.0**60, 1e15, 0.0])
def test_zooming_in_stops_at_a_readable_ruler(at: float) -> None:
    """A damaged clock makes a trace of 73 years, in which nearby times round to the same double."""
    source = "".join((PAGE / "js" / name).read_text() for name in ("units.js", "view.js", "drawing.js", "axis.js"))
    code = f"""
        const matchMedia = () => ({{ matches: true }}), themed = () => "", model = {{ span: 2 ** 61 }};
        const requestAnimationFrame = () => 0, cancelAnimationFrame = () => 0;
        let ticks = 0;
        const fillRect = () => {{ if (++ticks > 1000) throw new Error("endless"); }};
        const context = {{ fillRect, fillText() {{}}, measureText: () => ({{ width: 30 }}) }};
        {source}
        setWindow(0, model.span);
        for (let times = 0; times < 300; times++) {{
            zoom(0.7, {at});
            drawRuler(context, 1200, 500);
            if (!ticks || !(view.end > view.begin)) throw new Error("nothing to see");
            ticks = 0;
        }}"""
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_page_is_part_of_it() -> None:
    there = {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*") if path.is_file()}
    used = {"report.html", *(f"css/{name}" for name in page.STYLES), *(f"js/{name}" for name in page.SCRIPTS)}
    assert there == used


@given(st.data())
def test_a_damaged_capture_still_becomes_a_page(data: st.DataObject) -> None:
    golden = load_capture(GOLDEN / data.draw(st.sampled_from(["matmul.kscope", "block.kscope", "ring.kscope"])))
    lines = golden.devices[0].lines.copy()
    for _ in range(data.draw(st.integers(1, 30))):
        at = data.draw(st.integers(0, lines.size - 1))
        lines.reshape(-1)[at] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    one = golden.devices[0]
    device = DeviceCapture(one.ordinal, one.name, lines[: data.draw(st.integers(0, len(lines)))], one.sms)
    trace = decode(Capture(golden.epoch, (device,), golden.modules))
    found = reports.written(trace)
    if len(trace):
        assert len(found.records()["warp"]) == len(trace)
    assert np.isfinite(found.about["span"]) and found.about["span"] > 0
    assert [one["text"] for one in found.about["problems"]] == [one.text for one in trace.problems]
