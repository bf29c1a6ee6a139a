"""Call trees in the viewers that their users have: proton-viewer, speedscope. `make test-viewers` gets both.

KSCOPE_PROTON_VIEWER is the command of a venv with triton and llnl-hatchet (which needs an older pandas than the
other tests have), KSCOPE_SPEEDSCOPE the folder `dist/release` of the npm package.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.chromium import Page, binary

import kscope
from kscope.analysis.summary import summarize
from kscope.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden"
VIEWER, SPEEDSCOPE = os.environ.get("KSCOPE_PROTON_VIEWER"), os.environ.get("KSCOPE_SPEEDSCOPE")
needs_proton = pytest.mark.skipif(not VIEWER, reason="no proton-viewer: make test-viewers")
needs_speedscope = pytest.mark.skipif(not SPEEDSCOPE, reason="no speedscope: make test-viewers")


def trace(name: str) -> Trace:
    return kscope.load(GOLDEN / f"{name}.kscope")


def shown(metric: str, file: Path) -> dict[str, float]:
    """The tree that proton-viewer prints: a frame's path, without the root -> its number."""
    assert VIEWER is not None
    done = subprocess.run([VIEWER, "-m", metric, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = {}
    path: list[str] = []
    for line in done.stdout.splitlines():
        if entry := re.fullmatch(r"([ │├└─]*)([\d.]+) (.+)", re.sub(r"\x1b\[[\d;]*m", "", line)):
            path = [*path[: len(entry[1]) // 3], entry[3]]
            found[";".join(path[1:])] = float(entry[2])
    return found


@needs_proton
@pytest.mark.parametrize("name", ["attention", "matmul", "warp_specialized"])
def test_proton_viewer_adds_up_cycles(name: str, tmp_path: Path) -> None:
    got = trace(name)
    got.export(tmp_path / "x.hatchet")
    [kernel] = got.kernels
    spans = got.is_span
    names = got.region_names()[got.region]
    totals = {region: int(got.dur_cycles[spans & (names == region)].sum()) for region in set(names[spans])}
    found = shown("cycles", tmp_path / "x.hatchet")
    assert {path.rsplit(";", 1)[-1]: number for path, number in found.items() if ";" in path} == totals
    lanes = len(got.warps)
    normalized = shown("normalized_cycles", tmp_path / "x.hatchet")
    assert normalized == pytest.approx({path: number / lanes for path, number in found.items()}, abs=1e-3)
    lived = (got.warps.end_ns - got.warps.start_ns) / got.warps.tick_ns
    assert found[kernel] == round(float(lived.sum()))


@needs_proton
def test_proton_viewer_times_agree_with_the_summary(tmp_path: Path) -> None:
    got = trace("attention")
    got.export(tmp_path / "x.hatchet")
    found = shown("time/us", tmp_path / "x.hatchet")
    expected = {f"attention;{row.region}": row.warp_time_ns / 1000 for row in summarize(got).regions}
    assert {path: found[path] for path in expected} == pytest.approx(expected, abs=2e-3)


@needs_proton
def test_proton_viewer_shows_problems(tmp_path: Path) -> None:
    got = trace("ring")
    got.export(tmp_path / "x.hatchet")
    [problem] = got.problems
    assert shown("cycles", tmp_path / "x.hatchet")[f"{problem.kind}: {problem.text}"] == 0


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Serve speedscope and the files of tmp_path on 127.0.0.1."""
    assert SPEEDSCOPE is not None
    for file in Path(SPEEDSCOPE).iterdir():
        (tmp_path / file.name).symlink_to(file.resolve())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@needs_speedscope
@pytest.mark.parametrize("name", ["x.speedscope.json", "x.folded"])
def test_speedscope_shows_the_share_of_every_region(name: str, served: str, tmp_path: Path) -> None:
    program = binary()
    if program is None:
        pytest.skip("no chromium here")
    got = trace("attention")
    got.export(tmp_path / name)
    regions = [row.region for row in summarize(got).regions]
    with Page(program) as page:
        page.open(f"{served}/#profileURL={served}/{name}")
        page.until("document.body.innerText.includes('Left Heavy')")
        page.key("3")  # its table, whose rows come after its head
        shown = [*regions, "27%"]  # softmax's share
        page.until(f"{json.dumps(shown)}.every(text => document.body.innerText.includes(text))")


@needs_speedscope
def test_speedscopes_own_schema_is_kept(tmp_path: Path) -> None:
    assert SPEEDSCOPE is not None
    schema = json.loads((Path(SPEEDSCOPE) / "file-format-schema.json").read_bytes())
    trace("ring").export(tmp_path / "x.speedscope.json")
    found = json.loads((tmp_path / "x.speedscope.json").read_bytes())
    assert set(schema["definitions"]["FileFormat.File"]["required"]) <= set(found)
    assert set(found) <= set(schema["definitions"]["FileFormat.File"]["properties"])
    sampled = schema["definitions"]["FileFormat.SampledProfile"]
    for profile in found["profiles"]:
        assert set(sampled["required"]) == set(profile) == set(sampled["properties"])
        assert profile["unit"] in schema["definitions"]["FileFormat.ValueUnit"]["enum"]
        assert all(0 <= frame < len(found["shared"]["frames"]) for stack in profile["samples"] for frame in stack)
