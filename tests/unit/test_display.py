"""Traces, summaries and analyses as Python shows them: in an interpreter, in a notebook, in the browser."""

from __future__ import annotations

import dataclasses
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kscope
from kscope import cli
from kscope.analysis.critical_path import Edge
from kscope.errors import MissingError, UsageError
from kscope.trace import notebook

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILE = GOLDEN / "warp_specialized.kscope"
LONGEST = 40_000


@pytest.fixture(scope="module")
def trace() -> kscope.Trace:
    return kscope.load(FILE)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([words[0], str(FILE), *words[1:]]) == 0
    return capsys.readouterr().out.rstrip("\n")


def first_edge(trace: kscope.Trace) -> tuple[str, str]:
    names = sorted({region.name for region in trace.regions if region.known})
    wait = next(name for name in names if "wait" in name)
    return next(name for name in names if name != wait), wait


def test_every_analysis_is_a_method_that_prints_what_its_command_does(
    trace: kscope.Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    signal, wait = first_edge(trace)
    assert str(trace.gaps()) == printed(capsys, "gaps")
    assert "\n\n".join(map(str, trace.overlap())) == printed(capsys, "overlap")
    assert str(trace.occupancy()) == printed(capsys, "occupancy")
    assert str(trace.path((signal, wait))) == printed(capsys, "path", "--edge", f"{signal}:{wait}")
    assert str(trace.compare(trace)) == printed(capsys, "compare", str(FILE))
    assert trace.path(Edge(signal, wait, 1)) == trace.path((signal, wait, 1))
    assert [one.region for one in trace.gaps(wait=[wait]).waits].count(wait)


def test_results_are_frozen_dataclasses_with_a_text_of_bounded_size(trace: kscope.Trace) -> None:
    results: list[Any] = [trace.summary(), trace.gaps(), *trace.overlap(), trace.occupancy(), trace.compare(trace)]
    results.append(trace.path(first_edge(trace)))
    for result in results:
        assert dataclasses.is_dataclass(result)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.anything = 1
        assert repr(result) == str(result) and 0 < len(repr(result)) < LONGEST
        assert result._repr_html_().startswith("<pre") and len(result._repr_html_()) < LONGEST


def test_a_path_without_an_edge_says_what_the_trace_has(trace: kscope.Trace) -> None:
    _, wait = first_edge(trace)
    with pytest.raises(UsageError, match=rf"no edge.*this trace has waits .*{wait}"):
        trace.path()


def test_the_html_of_a_trace_has_its_summary_as_text(trace: kscope.Trace) -> None:
    html = trace._repr_html_()
    assert repr(trace).strip("<>") in html and trace.summary().regions[0].region in html
    assert html.count("<") == 2 and len(html) < LONGEST  # nothing but <pre> and </pre>


def test_the_html_of_a_session_is_its_state_and_then_its_trace() -> None:
    prof = kscope.profile(enabled=False)
    assert prof._repr_html_() == "&lt;kscope.Session: not started, off&gt;"
    with prof:
        pass
    assert "kscope.Trace: 0 records" in prof._repr_html_()


def test_a_summary_becomes_a_frame(trace: kscope.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    summary = trace.summary(by="warp")
    frame = summary.to_pandas()
    assert frame.to_dict("records")[0].keys() == summary.to_dicts()[0].keys()
    assert frame["warp_time_ns"].tolist() == [row.warp_time_ns for row in summary.regions]
    assert frame["warp"].tolist() == [row.key[0] for row in summary.regions]
    empty = trace.filter(where=trace.kind == 99).summary(by="warp").to_pandas()
    assert empty.columns.tolist() == frame.columns.tolist() and not len(empty)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"Summary.to_pandas\(\) needs pandas"):
        summary.to_pandas()


def test_a_plot_is_the_report_in_a_frame(trace: kscope.Trace, tmp_path: Path) -> None:
    shown = trace.plot(height=300)
    trace.export(tmp_path / "report.html")
    shown.save(tmp_path / "plot.html")
    assert (tmp_path / "plot.html").read_bytes() == (tmp_path / "report.html").read_bytes()
    frame = shown._repr_html_()
    assert 'sandbox="allow-scripts"' in frame and "height:300px" in frame
    assert frame.count("<") == 2 and "http" not in frame[: frame.index("srcdoc")]
    assert len(repr(shown)) < 200


def test_a_plot_draws_at_most_its_limit_and_reports_the_rest(trace: kscope.Trace) -> None:
    assert f"{len(trace) - 10:,} of {len(trace):,} records left out" in trace.plot(limit=10).html
    assert "left out" not in trace.plot().html


def test_show_opens_the_browser_or_names_the_file(
    trace: kscope.Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook.tempfile, "tempdir", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))
    trace.show()
    (file,) = tmp_path.glob("kscope-*.html")
    assert opened == [file.as_uri()] and file.stat().st_mode & 0o77 == 0
    assert file.read_text(encoding="utf-8") == trace.plot().html
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    trace.show()
    assert "no browser here; the page is " in capsys.readouterr().err


def test_show_in_a_notebook_displays_the_page(trace: kscope.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[object] = []
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))  # type: ignore[arg-type]
    trace.show(limit=10)
    (shown,) = displayed
    assert isinstance(shown, notebook.Page) and "left out" in shown.html


def test_names_that_are_nearly_right_are_suggested(trace: kscope.Trace) -> None:
    name = max((region.name for region in trace.regions if region.known), key=len)
    for wrong in (name[:-1] + "_", name.upper()):
        with pytest.raises(UsageError, match=f"did you mean {name}"):
            trace.filter(region=wrong)
    with pytest.raises(UsageError) as failure:
        trace.filter(region="zzzzzzzz")
    assert "did you mean" not in str(failure.value)
    kernel = trace.kernels[0]
    with pytest.raises(UsageError, match="did you mean "):
        trace.filter(kernel=kernel[:-1])
