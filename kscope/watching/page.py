"""A verdict as a page that renews itself: HTML without a script. Names from the program are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from . import text
from .verdict import Group, LaunchState, Verdict

_STYLE = """
:root { color-scheme: light dark; font: 13px/1.4 system-ui, sans-serif; }
body { margin: 0; padding: 10px 14px; }
p, h2 { margin: 0 0 4px; }
h2 { font-size: 13px; margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 2px 14px 2px 0; vertical-align: top; border-bottom: 1px solid #8884; }
th { font-weight: 600; opacity: .7; }
.in { font-weight: 600; }
.wrong { color: #c62f3d; }
pre { margin: 0; opacity: .8; }
svg { width: 240px; height: 40px; vertical-align: middle; }
polyline { fill: none; stroke: #2f6bde; stroke-width: 1.5; }
iframe { border: 0; width: 100%; }
"""
_HEADS = "role", "state", "region", "value", "warps", "of blocks", "how many", "unchanged"
_WIDE, _HIGH = 240, 40


def frame(title: str, reports: int) -> str:
    """The outer page: the current state, and below it, on request, the timeline up to now.

    Args:
        title: what is watched.
        reports: how many reports there are, report0.html and on.
    """
    names = [""] if reports == 1 else [f" ({number})" for number in range(reports)]
    links = " ".join(
        f'<a href="report{number}.html" target="timeline">the timeline up to now{name}</a>'
        for number, name in enumerate(names)
    )
    return (
        f'{_head(title)}<body style="padding:0;height:100vh;display:flex;flex-direction:column">'
        '<iframe src="now.html" title="now" style="flex:2"></iframe>'
        f'<p style="padding:4px 14px">{links}</p>'
        '<iframe name="timeline" title="timeline" style="flex:3"></iframe></body></html>'
    )


def now(found: Sequence[Verdict], rates: Sequence[Sequence[float]], every: float) -> str:
    """The current verdicts as a page.

    Args:
        found: the verdict on each pool.
        rates: of each the regions entered a second, at the last looks.
        every: seconds until the page renews itself.
    """
    renewed = f'<meta http-equiv="refresh" content="{every:g}">'
    parts = "".join(_verdict(one, rate) for one, rate in zip(found, rates, strict=True))
    return f"{_head('now', renewed)}<body>{parts}</body></html>"


def _head(title: str, more: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{more}<title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>"
    )


def _verdict(found: Verdict, rates: Sequence[float]) -> str:
    wrong = ' class="wrong"'
    head = "".join(f"<p{wrong * line.wrong}>{escape(line.text)}</p>" for line in text.head(found))
    launches = "".join("".join(_launch(launch)) for launch in found.launches)
    host = escape("\n".join(text.host(found)))
    return f"{head}{_curve(rates)}{launches}<h2></h2><pre>{host}</pre>"


def _launch(launch: LaunchState) -> Iterator[str]:
    yield f"<h2>{escape(text.launch_line(launch))}</h2><table><tr>"
    yield "".join(f"<th>{head}</th>" for head in _HEADS)
    yield "</tr>"
    for group in launch.groups:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(group))
        yield f'<tr class="{escape(group.state)}" title="{escape(text.sentence(group))}">{cells}</tr>'
    yield "</table>"


def _cells(group: Group) -> tuple[str, ...]:
    place = f" at {group.where}" if group.where else ""
    since = "" if group.unchanged_s is None else f"{group.unchanged_s:.1f} s"
    region = f"{group.region or ''}{place}"
    return (group.role or "", group.state, region, text.values(group), group.warps, group.blocks,
            f"{group.count:,}", since)  # fmt: skip


def _curve(rates: Sequence[float]) -> str:
    """Regions entered a second, over the last looks."""
    if len(rates) < 2 or not max(rates):
        return ""
    step, most = _WIDE / (len(rates) - 1), max(rates)
    points = " ".join(f"{n * step:.1f},{_HIGH - 1 - rate / most * (_HIGH - 2):.1f}" for n, rate in enumerate(rates))
    label = f"regions entered a second: {rates[-1]:,.0f} now, {most:,.0f} at most"
    return f'<p><svg viewBox="0 0 {_WIDE} {_HIGH}"><polyline points="{points}"/></svg> {label}</p>'
