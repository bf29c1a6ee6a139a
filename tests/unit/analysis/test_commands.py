"""Commands that read captures: output, exit codes, and no crash on any file."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

import kscope
from kscope import cli
from kscope.analysis import checks, gaps, histogram, imbalance, occupancy, overlap
from kscope.analysis.compare import compare
from kscope.analysis.segments import flatten
from kscope.analysis.summary import summarize
from kscope.capture.capture import Capture
from kscope.errors import FormatError, UsageError

GOLDEN = Path(__file__).parents[2] / "golden"
WS, MATMUL, RING = (str(GOLDEN / f"{name}.kscope") for name in ("warp_specialized", "matmul", "ring"))
EDGES = ("--edge", "ask:wait_ready", "--edge", "multiply:wait_empty:4")
LOOKING = {
    "summary": ("summary", WS),
    "summary by": ("summary", WS, "--by", "role,sm", "--top", "3"),
    "roles": ("summary", WS, "--by", "role", "--role", "producer=6", "--role", "consumer=0-3"),
    "gaps": ("gaps", WS, "--top", "4"),
    "gaps of": ("gaps", MATMUL, "--of", "mainloop"),
    "overlap": ("overlap", WS),
    "path": ("path", WS, *EDGES),
    "occupancy": ("occupancy", WS),
    "compare": ("compare", MATMUL, WS),
    "overhead": ("trust", "overhead", MATMUL, "--cost", "28,2"),
    "perturb": ("trust", "perturb", "--help"),
}
JSON = {name: (*argv, "--json") for name, argv in LOOKING.items() if name != "perturb"}


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("name", sorted(LOOKING.keys() - {"perturb"}))
def test_tables_fit_the_terminal_width(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(capsys, *LOOKING[name])
    assert code == 0
    lines = out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", JSON)
def test_json_can_be_read_by_a_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *JSON[name])
    assert code == 0
    assert json.loads(out)
    assert "NaN" not in out


@pytest.mark.parametrize("name", JSON)
def test_json_names_its_schema_and_how_the_capture_was_recorded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *JSON[name])
    found = json.loads(out)
    words = JSON[name][1] if JSON[name][0] == "trust" else JSON[name][0]
    assert (found["schema"], found["version"]) == (f"kscope.{words}", 1)
    recorded = found["recorded"] if isinstance(found["recorded"], list) else [found["recorded"]]
    for one in recorded:
        assert {"gpus", "driver", "date", "strategy", "clock", "subset", "partial", "blocks"} <= one.keys()


@pytest.mark.parametrize("name", JSON)
def test_json_is_bounded_and_counts_what_is_cut(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = JSON[name] if "--top" not in JSON[name] else (*JSON["summary"], "--by", "role,sm")
    whole, cut = (json.loads(run(capsys, *argv, "--top", top)[1]) for top in ("100000", "1"))
    assert whole["left_out"] == {}
    for key, value in cut.items():
        if isinstance(value, list) and key != "recorded" and value and isinstance(value[0], dict):
            assert len(value) == 1, key
            if key != "warps" and not (key == "longest" and argv[0] == "gaps"):  # cut by the analysis
                assert cut["left_out"].get(key, 0) == len(whole[key]) - 1, key


def test_json_stays_small_unless_more_is_requested(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ("summary", MATMUL, "--by", "block,warp", "--json")  # 4 blocks of 8 warps with 4 regions
    _, out, _ = run(capsys, *rows)
    assert (len(json.loads(out)["regions"]), json.loads(out)["left_out"]) == (100, {"regions": 28})
    assert len(out) < 120_000
    _, out, _ = run(capsys, *rows, "--top", "1000")
    assert (len(json.loads(out)["regions"]), json.loads(out)["left_out"]) == (128, {})


def test_the_summary_of_a_role_is_of_its_warps(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *JSON["roles"])
    rows = json.loads(out)["regions"]
    assert {(row["role"], row["region"]) for row in rows} == {
        ("producer", "ask"), ("producer", "wait_empty"),
        ("consumer", "wait_ready"), ("consumer", "multiply"), ("consumer", "store"),
    }  # fmt: skip


def test_summaries_come_as_csv_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "summary", WS, "--csv", "--top", "2")
    assert out.splitlines()[0].startswith("kernel,region,count,warp_time_ns")
    assert len(out.splitlines()) == 3
    _, out, _ = run(capsys, "summary", WS, "--markdown")
    assert out.startswith("| kernel | region | count |")


def test_summaries_may_cover_a_part_of_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "summary", WS, "--json", "--region", "wait*", "--block", "0:2", "--warp", "0,6")
    rows = {row["region"]: row["count"] for row in json.loads(out)["regions"]}
    assert rows == {"wait_ready": 2 * 32, "wait_empty": 2 * 32}
    _, out, _ = run(capsys, "summary", MATMUL, "--json", "--time", ":1.02us")
    assert {row["region"] for row in json.loads(out)["regions"]} == {"mainloop"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("summary", WS, "--by", "sms"), "by='sms': expected"),
        (("summary", WS, "--region", "laod"), "region laod: not in this trace"),
        (("summary", WS, "--time", "5us"), "expected FROM:TO"),
        (("summary", WS, "--time", "5us:1us"), "it ends before it begins"),
        (("summary", WS, "--time", "x:y"), "--time x: expected a time"),
        (("summary", WS, "--role", "a"), "expected NAME=WARPS"),
        (("summary", WS, "--role", "a=1", "--role", "a=2"), "was already given"),
        (("gaps", WS, "--of", "loop"), "of='loop': no such region"),
        (("gaps", WS, "--wait", "loop"), "wait='loop': no such region"),
        (("path", WS, "--edge", "ask"), "expected SIGNAL:WAIT"),
        (("path", WS, "--edge", "ask:wait_ready", "--block", "0:2"), "a path goes through one block"),
        (
            ("path", WS, "--edge", "ask:wait_ready", "--block", "99"),
            "block 99: not in this trace, which has block 0,0 1,0 2,0 3,0",
        ),
        (("trust", "overhead", WS, "--cost", "many"), "--cost many: expected cycles"),
        (("trust", "overhead", WS, "--cost", "2,28"), "0 <= inside <= cycles"),
        (("compare", WS, WS, "--least", "x"), "--least x: expected a fraction"),
        (("assert", WS, "laod.p99 < 1us"), "no region or kernel of that name"),
        (("trust", "ipc", WS, "--code", WS, "--cutracer-trace", WS), "no --cutracer-trace"),
    ],
)
def test_invalid_command_options_are_refused_in_one_line(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_assert_exits_with_1_if_a_condition_is_false(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "assert", RING, "dropped == 400", "step.p99 < 2us")
    assert code == 0
    assert out.count("ok ") == 2
    code, out, _ = run(capsys, "assert", RING, "dropped == 0", "step.p99 < 2us", "-q")
    assert code == 1
    assert out.splitlines() == ["FAILED  dropped == 0    (dropped = 400)"]
    code, out, _ = run(capsys, "assert", RING, "dropped == 0", "--json")
    assert json.loads(out)["conditions"][0]["holds"] is False


def test_compare_fail_slower_exits_with_1_if_a_region_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "compare", MATMUL, MATMUL, "--fail-slower")[0] == 0
    code, out, _ = run(capsys, "compare", RING, str(GOLDEN / "stop.kscope"), "--fail-slower", "--json")
    rows = json.loads(out)["regions"]
    assert code == int(any(row["verdict"] == "slower" for row in rows))
    assert {row["verdict"] for row in rows if row["region"] == "loop"} == {"gone"}


def test_overhead_prints_a_compensated_summary(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "trust", "overhead", MATMUL, "--cost", "28,2", "--compensate")
    assert "28 cycles per region were subtracted" in out


def test_measuring_the_region_cost_requires_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kscope.errors import MissingError
    from kscope.instrument import registry

    def without(name: str) -> None:
        raise MissingError("no CUDA driver")

    monkeypatch.setattr(registry, "backend", without)
    code, _, err = run(capsys, "trust", "overhead", MATMUL, "--measure")
    assert (code, err) == (2, "kscope: no CUDA driver\n")


def everything(trace: kscope.Trace) -> None:
    """Every analysis of a trace, for its exceptions."""
    for by in ("", "role", "sm", "launch,block"):
        assert summarize(trace, by).text(100)
        assert summarize(trace, by).markdown()
    flatten(trace)
    occupancy.overview(trace, 16)
    occupancy.utilization(trace)
    occupancy.waves(trace)
    gaps.gaps_by_neighbors(trace)
    gaps.longest(trace, 3)
    overlap.waits(trace)
    histogram.histograms(trace, 8)
    for across in imbalance.ACROSS:
        imbalance.imbalance(trace, across)
    compare(trace, trace)
    checks.check(trace, ["records >= 0"])


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.kscope")), ids=lambda path: path.stem)
def test_every_golden_capture_goes_through_every_analysis(path: Path) -> None:
    everything(kscope.load(path))


@given(rng=st.randoms(use_true_random=False), name=st.sampled_from(["warp_specialized", "ring", "four", "globaltimer"]))
def test_words_with_flipped_bits_crash_no_analysis(rng: random.Random, name: str) -> None:
    from dataclasses import replace

    capture = kscope.load_capture(GOLDEN / f"{name}.kscope")
    [device] = capture.devices
    lines = device.lines.copy()
    for _ in range(rng.randrange(1, 30)):
        lines.reshape(-1)[rng.randrange(lines.size)] ^= 1 << rng.randrange(32)
    damaged = replace(capture, devices=(replace(device, lines=lines),))
    everything(kscope.decode(damaged))


@given(cut=st.integers(0, 5000), flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 7)), max_size=4))
def test_files_that_are_cut_or_damaged_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: list[tuple[int, int]]
) -> None:
    data = bytearray((GOLDEN / "four.kscope").read_bytes()[:cut])
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    path = tmp_path_factory.mktemp("cut") / "x.kscope"
    path.write_bytes(data)
    with suppress(FormatError, UsageError):
        everything(kscope.load(path))


HOSTILE = (
    "</td><script>alert(1)</script>",
    "a|b",
    "q\"uo'te",
    "new\nline\r",
    "\x1b[31mred\x1b[0m\a",
    "%s %(x)s {0}",
    "wait " * 40,
)


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A capture with hostile region and kernel names."""
    records = [synth.Rec(name, 2000 + 200 * n, 2100 + 200 * n) for n, name in enumerate(HOSTILE)]
    slabs = [synth.slab(records, log2=4, warp=warp, block=(0, 0, 0)) for warp in (0, 1)]
    module = synth.module(HOSTILE, name="ker\x1b[2Jnel\n| x")
    Capture(synth.EPOCH, (synth.device(slabs),), (module,)).save(tmp_path / "h.kscope")
    return str(tmp_path / "h.kscope")


@pytest.mark.parametrize(
    "argv",
    [
        ("summary",), ("summary", "--by", "role,sm"), ("summary", "--markdown"), ("gaps",), ("overlap",),
        ("occupancy",), ("path", "--edge", "a|b:a|b"), ("trust overhead", "--cost", "28,2"),
        ("assert", '"a|b".p99 < 1us'),
    ],
)  # fmt: skip
def test_hostile_names_print_as_plain_text(
    argv: tuple[str, ...], hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(capsys, *argv[0].split(), hostile, *argv[1:])
    assert (code, err) == (0, "")
    assert all(char.isprintable() for line in out.split("\n") for char in line)
    assert "--markdown" in argv or max(map(len, out.splitlines())) <= 120
    assert "--markdown" not in argv or "<script" not in out


@pytest.mark.parametrize(
    "argv", [("gaps",), ("overlap",), ("occupancy",), ("trust overhead", "--cost", "3"), ("assert", "warps == 16")]
)
def test_every_command_prints_the_problems_of_a_capture(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *argv[0].split(), RING, *argv[1:])
    assert code == 0
    assert out
    assert err == "kscope: 400 records overwritten by newer ones: to keep all, records=41\n"


@pytest.mark.parametrize(
    "argv", [("summary",), ("gaps",), ("overlap",), ("occupancy",), ("trust overhead", "--cost", "3")]
)
def test_every_command_reports_an_empty_capture(
    argv: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synth.capture().save(tmp_path / "empty.kscope")
    code, out, _ = run(capsys, *argv[0].split(), str(tmp_path / "empty.kscope"), *argv[1:])
    assert code == 0
    assert out.startswith("no ")


def test_captures_with_hostile_names_compare(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", hostile, hostile)
    assert code == 0
    assert all(char.isprintable() for line in out.split("\n") for char in line)
    code, out, _ = run(capsys, "compare", hostile, hostile, "--json")
    assert {row["region"] for row in json.loads(out)["regions"]} == set(HOSTILE)
