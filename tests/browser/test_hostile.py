"""Names that look like markup or script stay names, and the page's policy holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import synth
from browser.chromium import Page
from synth import Rec

from kscope.capture.capture import Capture, load_capture
from kscope.trace import Trace, decode

Show = Callable[[Trace], Page]
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = (
    "</script><script>window.ran = 1</script>",
    '<img src=x onerror="window.ran = 2">',
    "<svg onload=window.ran=3>",
    "a\"b'c`d${window.ran = 4}\\",
    "line\nbreak\r\ttab\u2028sep\u2029sep",
    "<!--<script>window.ran = 5//",
    "\u202edesrever",
    "javascript:window.ran=6",
    "&lt;b&gt;",
    "x" * 300,
)


def hostile() -> Trace:
    records = [Rec(name, 2000 + 100 * at, 2050 + 100 * at) for at, name in enumerate(NAMES)]
    module = synth.module(NAMES, name=NAMES[0])
    return decode(Capture(synth.EPOCH, (synth.device([synth.slab(records, log2=4)]),), (module,)))


def test_names_print_verbatim_everywhere(show: Show) -> None:
    page = show(hostile())
    assert page.run("window.ran") is None
    assert page.run(
        "[...document.querySelectorAll('#table tbody .name')].map((one) => one.textContent).sort()"
    ) == sorted(NAMES)
    assert page.run("byId('title').textContent") == NAMES[0]
    assert page.run("document.querySelectorAll('img, svg, b, main script').length") == 0
    for name in NAMES:
        page.run(
            f"search({name[:60]!r})" if name.isascii() and name.isprintable() and "'" not in name else "search('<')"
        )
        page.key("n")
        page.run("new Promise((drawn) => requestAnimationFrame(() => drawn(true)))")
    x, y = page.run("(({ x, y }) => [x, y])(warpsView.surface.canvas.getBoundingClientRect())")
    for step in range(70, 1300, 40):
        page.mouse("mouseMoved", x + step, y + 35)
    page.run("byId('problems').click()")
    assert page.run("window.ran") is None
    assert page.run("document.querySelectorAll('img, svg, b, main script').length") == 0
    assert len(page.requests) == 1


@pytest.mark.parametrize(
    "deed",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.write('<b>x</b>')",
        "new Function('return 1')()",
        "Object.assign(document.createElement('script'), { text: 'window.ran = 1' })",
    ],
)
def test_the_policy_keeps_text_from_becoming_markup(browser: Page, tmp_path: Path, deed: str) -> None:
    path = tmp_path / "report.html"
    decode(load_capture(GOLDEN / "matmul.kscope")).export(path)
    browser.open(path)
    browser.until("window.report && report.ready")
    assert browser.run(f"(() => {{ try {{ {deed}; return 'done' }} catch (error) {{ return error.name }} }})()") in (
        "TypeError",
        "EvalError",
    )


def test_the_policy_keeps_the_page_from_the_network_and_from_scripts_of_others(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    decode(load_capture(GOLDEN / "matmul.kscope")).export(path)
    html = path.read_text().replace("<main>", '<main><script>window.ran = 1</script><b onclick="window.ran = 2">x</b>')
    path.write_text(html)
    browser.open(path)
    browser.until("window.report && report.ready")
    browser.run("document.querySelector('main b').click()")
    assert browser.run("window.ran") is None
    blocked = browser.run("""new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
        fetch('http://127.0.0.1:9/').catch(() => null); })""")
    assert blocked == "connect-src"
    image = browser.run("""new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
        new Image().src = 'http://127.0.0.1:9/x.png'; })""")
    assert image == "img-src"
