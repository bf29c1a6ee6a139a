"""bench/corpus on a device: what is said of results and records."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kscope

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
checking, device_table, on_device, entries = (
    import_module(f"corpus.{name}") for name in ("checking", "device_table", "on_device", "entries")
)


def placement(**other: Any) -> dict[str, Any]:
    found = {"equal": "bits", "records": 6, "lost": 0, "negative": 0, "runs agree": True, "why": [], "other": []}
    return {**found, **other}


def entry(**other: Any) -> dict[str, Any]:
    about = {"project": "p", "name": "n", "what": "check", "repeats": True, "same counts": True, "plain again": "bits"}
    return {**about, "fence": placement(), "schedule": placement(), **other}


def test_an_entry_without_a_fault_has_a_row_and_no_note() -> None:
    row, summary = device_table.text([entry()]).splitlines()[2:]
    assert row.startswith("| p n | bits bits | 6 6 | 0 0 | same |")
    assert "1 right, 1 complete" in summary


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"failed": "the process ended with -11"}, "check: the process ended with -11"),
        ({"schedule": placement(equal="output 0 is 1 away, plain's spread 0")}, "schedule: output 0 is 1 away"),
        ({"fence": placement(**{"runs agree": False})}, "fence: runs differ"),
        ({"fence": placement(other=["garbled: 6 slabs"])}, "fence: garbled: 6 slabs"),
        ({"same counts": False, "differ": [["k", "load", 1, 2]]}, "counts differ: [['k', 'load', 1, 2]]"),
        ({"plain again": "output 0 is 1 away, plain's spread 0"}, "plain again: output 0"),
    ],
)
def test_what_is_wrong_is_named(other: dict[str, Any], said: str) -> None:
    assert any(said in note for note in device_table.notes({"check": entry(**other)}))


def test_runs_of_a_capture_are_compared_launch_by_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = kscope.load(ROOT / "tests/golden/graph.kscope")
    assert len(trace.launches) == 6
    runs = checking._by_run(trace)
    assert runs is not None and len(runs) == checking.RECORDED and runs[0] == runs[1] == runs[2]
    assert sum(checking._counts(trace).values()) == len(trace)
    monkeypatch.setattr(checking, "RECORDED", 4)
    assert checking._by_run(trace) is None


@pytest.mark.parametrize(
    ("found", "said"), [([1.0, 2.0], "bits"), ([1.0, 2.5], "output 0 is 0.5 away, plain's spread 0")]
)
def test_results_of_a_kernel_that_repeats_itself_have_its_bits(found: list[float], said: str) -> None:
    assert checking._equal([[torch.tensor([1.0, 2.0])]], [[torch.tensor(found)]], True) == said


def test_results_of_one_that_does_not_are_within_its_spread() -> None:
    plain = [[torch.tensor([one])] for one in (1.0, 2.0)]
    assert checking._equal(plain, [[torch.tensor([1.5])]], False) == "within"
    assert "away" in checking._equal(plain, [[torch.tensor([4.0])]], False)


@pytest.mark.parametrize("project", on_device.PROJECTS)
def test_entries_are_listed_without_their_project(project: str) -> None:
    assert len(import_module(f"corpus.entries.{project}").ENTRIES) > 10


def test_gradients_are_the_same_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True)
    monkeypatch.setattr(entries, "device", "cpu")
    work = entries.both(lambda a: a * a, [x], fresh=True)
    one, other = work(), work()
    assert checking.same(one, other) and len(one) == 2


def test_a_kernel_that_crashed_or_changed_fails_a_strict_run() -> None:
    right = {"name": "right", "stripped": "", "schedule": "recorded", "fence": ""}
    others = (("changed", "stripped", "MOV"), ("died", "schedule", "crashed"), ("fell", "fence", "crashed"))
    refused = {**right, "name": "refused", "schedule": "refused"}
    verdicts = [right, refused, *({**right, "name": name, field: value} for name, field, value in others)]
    assert import_module("corpus.table").wrong(verdicts) == ["changed", "died", "fell"]
