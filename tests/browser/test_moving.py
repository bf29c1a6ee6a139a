"""Moving about in the report: wheel, drag, keys, links, dark and light."""

from __future__ import annotations

import numpy as np
import pytest
from browser.asking import FRAME, Show, bulk, corner, golden, middle, painted, text, window


def test_the_wheel_zooms_around_the_pointer_up_to_the_full_range(show: Show) -> None:
    page = show(bulk())
    x, y = middle(page, "#overview")
    left = corner(page, "#overview")[0]
    whole = window(page)
    under = page.run(f"nsOf({x - left}, overview.surface.width)")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-700)
    begin, end = window(page)
    assert end - begin == pytest.approx((whole[1] - whole[0]) * np.exp(-700 * 0.0018), rel=0.01)
    now = page.run(f"nsOf({x - left}, overview.surface.width)")
    assert now == pytest.approx(under, rel=1e-6)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=5000)
    assert window(page) == pytest.approx(whole)


def test_dragging_moves_through_time_and_not_past_its_ends(show: Show) -> None:
    page = show(bulk())
    page.run("setWindow(model.span * 0.4, model.span * 0.6)")
    before = window(page)
    x, y = middle(page, "#warps")
    page.drag((x, y), (x - 200, y))
    begin, end = window(page)
    assert begin > before[0] and end - begin == pytest.approx(before[1] - before[0])
    for _ in range(7):
        page.drag((x, y), (x + 600, y))
    assert window(page)[0] == 0


def test_a_click_on_the_overview_chooses_an_sm(show: Show) -> None:
    page = show(bulk())
    x, _ = middle(page, "#overview")
    y = corner(page, "#overview")[1] + page.run("overviewRows().top + 17.5 * overviewRows().each")
    page.click(x, y)
    page.until("warpsView.found?.place === 17")
    assert text(page, "#place") == "SM 17"
    assert page.run(
        "warpsView.found.rows.every((row) => row.warps.every(({ warp }) => model.warps.place[warp] === 17))"
    )


def test_keys_zoom_pan_choose_and_fit(show: Show) -> None:
    page = show(bulk())
    whole = window(page)
    page.key("w")
    zoomed = window(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2)
    page.key("d")
    assert window(page)[0] == pytest.approx(zoomed[0] + (zoomed[1] - zoomed[0]) / 4)
    page.key("ArrowLeft")
    assert window(page) == pytest.approx(zoomed)
    page.key("s")
    assert window(page) == pytest.approx(whole)
    for _ in range(3):
        page.key("ArrowDown")
    page.key("ArrowUp")
    page.until("warpsView.found.place === 2")
    page.key("n")
    page.until("view.selection")
    page.key("f")
    begin, end = window(page)
    a, b = page.run("timesOf(view.selection.line, view.selection.index)")
    assert begin <= a and b <= end and end - begin < 3 * (b - a) + 10
    index = page.run("view.selection.index")
    page.key(".")
    assert page.run("view.selection.index") == index + 1
    page.key(",")
    page.key("0")
    assert window(page) == pytest.approx(whole)
    page.key("Escape")
    assert page.run("view.selection") is None


def test_flow_brackets_connect_launches(show: Show) -> None:
    page = show(golden("graph"))
    launches = page.run("[...model.launches.begin].map((begin, at) => [begin, model.launches.end[at]])")
    assert len(launches) == 6
    page.key("0")
    window(page)
    for begin, end in launches[:3]:
        page.key("]")
        shown = window(page)
        assert shown[0] <= begin + 1 and end - 1 <= shown[1] and shown[1] - shown[0] < 1.2 * (end - begin)
    page.key("[")
    shown = window(page)
    assert shown[0] <= launches[1][0] + 1 and launches[1][1] - 1 <= shown[1]


def test_the_report_opens_zoomed_to_records_if_launches_are_far_apart(show: Show) -> None:
    page = show(golden("graph"))
    begin, end = window(page)
    assert end - begin < page.run("model.span") / 100
    assert painted(page, "#warps") > 5_000


def test_the_report_follows_the_dark_color_scheme(show: Show) -> None:
    page = show(golden("matmul"))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.prefer("dark")
    page.until("document.documentElement.dataset.theme === 'dark'")
    dark = page.run(ground)
    brightness = [sum(map(int, color[4:-1].split(","))) for color in (light, dark)]
    assert brightness[0] > 600 and brightness[1] < 100
    page.key("t")
    assert page.run(ground) == light
    page.run("byId('theme').click()")
    assert page.run(ground) == dark


def test_measuring_shows_the_time_of_every_region_in_it(show: Show) -> None:
    trace = golden("matmul")
    page = show(trace)
    x, y = middle(page, "#warps")
    page.drag((x - 150, y), (x + 150, y), shift=True)
    a, b = page.run("view.range")
    assert b - a == pytest.approx(300 / page.run("scaleOf(warpsView.surface.width)"), rel=1e-3)
    cells = (
        "[...document.querySelectorAll('#details tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"
    )
    rows = page.run(f"{FRAME}.then(() => {cells})")
    base, sm = page.run("[model.about.base, model.about.places[view.place][1]]")
    begin, end = trace.start_ns - base, trace.start_ns + trace.dur_ns - base
    inside = (trace.sm == sm) & (end >= a) & (begin <= b)
    names = trace.region_names()[trace.region]
    assert {name: int(count.replace(",", "")) for name, count, _ in rows} == {
        name: int((inside & (names == name)).sum()) for name in set(names[inside])
    }
    page.key("f")
    begin_, end_ = window(page)
    assert end_ - begin_ == pytest.approx((b - a) * 1.1, rel=1e-6)
    page.key("Escape")
    assert page.run("view.range") is None


def test_the_url_restores_the_view(show: Show) -> None:
    page = show(bulk())
    page.run("choosePlace(5); setWindow(1000, 3000); search('dot')")
    page.until("location.hash.includes('find=dot')")
    address = page.run("location.href")
    page.open("about:blank")
    page.open(address)
    page.until("window.report && report.ready")
    assert page.run("[view.place, view.begin, view.end, view.query.text]") == [5, 1000, 3000, "dot"]


HASHES = (
    "#place=1e9&from=-5&to=x",
    "#from=9&to=3&find=%00%3Cb%3E",
    "#place=-1&from=1e300&to=1e301",
    "#&&&=%",
)


@pytest.mark.parametrize("hash_", HASHES)
def test_every_url_fragment_opens_the_report(show: Show, hash_: str) -> None:
    page = show(golden("matmul"))
    address = page.run("location.href").partition("#")[0]
    page.open("about:blank")
    page.open(address + hash_)
    page.until("window.report && report.ready")
    begin, end = window(page)
    assert 0 <= begin < end <= page.run("model.span") * 1.0001


def test_both_timelines_have_the_same_axis_and_the_pointer_stays_where_it_is(show: Show) -> None:
    page = show(bulk(8448, 9))
    page.until("warpsView.scroll.scrollHeight > warpsView.scroll.clientHeight")
    assert page.run("overview.surface.width") == page.run("warpsView.surface.width")
    x, y = middle(page, "#warps")
    page.mouse("mouseMoved", x, y)
    under = page.run("pointed()")
    page.key("w")
    window(page)
    assert page.run("pointed()") == pytest.approx(under)
    assert page.run("tip.hidden") is True


def test_page_keys_and_dragging_scroll_through_the_warps(show: Show) -> None:
    page = show(bulk(8448, 9))
    page.key("PageDown")
    page.until("warpsView.scroll.scrollTop > 50")
    page.key("PageUp")
    page.until("warpsView.scroll.scrollTop === 0")
    x, y = middle(page, "#warps")
    page.drag((x, y), (x, y - 60))
    page.until("warpsView.scroll.scrollTop === 60")
