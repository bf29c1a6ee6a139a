"""The compiled loops give numpy's results, from any words of a device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from synth import Rec, instant

from kscope import native
from kscope.analysis.warp_regions import WarpRegions, warp_regions
from kscope.capture import layout
from kscope.capture.capture import Capture
from kscope.decoding import slabs
from kscope.decoding.assemble import assemble
from kscope.tracedata.data import TraceData
from kscope.util.runs import group_equal

DAMAGE_NS = 2.0
"""How far a damaged clock may move the times beside it: numpy adds an offset to each row of a running maximum."""

pytestmark = pytest.mark.skipif(not native.available(), reason="kscope was installed without a C compiler")


@st.composite
def captured_slabs(draw: st.DrawFn, *, damaged: bool) -> npt.NDArray[np.uint32]:
    """Slabs of several SMs, launches and sizes, some of them unfinished or far apart."""
    number = st.integers(0, 3)
    far = draw(st.sampled_from([0, 1 << 20, 1 << 33]))
    mhz = draw(st.sampled_from([1980, 1500]))
    slabs = []
    for index in range(draw(st.integers(1, 24))):
        start = 1000 + index * 700 + far * draw(number)
        inside = [Rec(draw(st.sampled_from("abc")), start + 40 * at + 5, start + 40 * at + 30) for at in range(9)]
        records = [*inside, instant("mark", start + 400)][: draw(st.integers(0, 10))]
        end = draw(st.sampled_from([None, start + 500, start + 500, start + 500, start + (1 << 33)]))
        slabs.append(
            synth.slab(
                records,
                log2=draw(st.integers(2, 4)),
                start=start,
                end=end,
                sm=draw(number),
                grid_id=draw(number),
                block=(draw(number), 0, 0),
                grid=(4, 1, 1),
                warp=draw(number),
                lane=draw(st.sampled_from([0, 0, 5])),
                kernel=draw(st.sampled_from([1, synth.KERNEL])),
                width=draw(st.integers(0, 40)),
                flags=draw(st.sampled_from([0, 0, layout.FLAG_STOP, layout.FLAG_GLOBALTIMER, layout.FLAG_ANY])),
                start_time=synth.time_of(start, mhz),
                end_time=synth.time_of(end or 0, draw(st.sampled_from([1980, mhz]))),
                epoch=draw(st.sampled_from([synth.EPOCH] * 7 + [1])),
            )
        )
    lines = np.concatenate(slabs)
    for _ in range(draw(st.sampled_from([1, 4])) if damaged else 0):
        lines[draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, 15))] ^= 1 << draw(st.integers(0, 31))
    return lines[: draw(st.integers(1, len(lines)))] if draw(st.booleans()) else lines


def both_ways(capture: Capture) -> tuple[TraceData, TraceData]:
    """The capture decoded with compiled loops, and with numpy alone."""
    compiled = assemble(capture)
    os.environ["KSCOPE_NATIVE"] = "0"
    try:
        return compiled, assemble(capture)
    finally:
        del os.environ["KSCOPE_NATIVE"]


@given(lines=captured_slabs(damaged=False))
def test_compiled_loops_decode_as_numpy_does(lines: npt.NDArray[np.uint32]) -> None:
    compiled, plain = both_ways(synth.capture(lines, names=("a", "b", "c", "mark")))
    assert compiled.problems == plain.problems
    assert_same(compiled, plain, within_ns=1e-3)


@given(lines=captured_slabs(damaged=True))
def test_compiled_loops_decode_damage_as_numpy_does(lines: npt.NDArray[np.uint32]) -> None:
    compiled, plain = both_ways(synth.capture(lines, names=("a", "b", "c", "mark")))
    assert [problem.kind for problem in compiled.problems] == [problem.kind for problem in plain.problems]
    assert_same(compiled, plain, within_ns=max(DAMAGE_NS, 1e-14 * _farthest_ns(plain)))


def assert_same(compiled: TraceData, plain: TraceData, *, within_ns: float) -> None:
    """The same records, and times that differ by rounding alone."""
    assert compiled.launches == plain.launches and compiled.regions == plain.regions
    for name in ("region", "track", "start_ticks", "dur_cycles", "bits"):
        assert getattr(compiled, name).tolist() == getattr(plain, name).tolist(), name
    for one in fields(plain.warps):
        got, expected = getattr(compiled.warps, one.name), getattr(plain.warps, one.name)
        assert got.dtype == expected.dtype and got.shape == expected.shape, one.name
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=within_ns, err_msg=one.name)


@given(lines=captured_slabs(damaged=False) | captured_slabs(damaged=True))
def test_compiled_sums_of_regions_are_those_of_numpy(lines: npt.NDArray[np.uint32]) -> None:
    trace = assemble(synth.capture(lines, names=("a", "b", "c", "mark")))
    compiled = warp_regions(trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSCOPE_NATIVE", "0")
        assert_equal_rows(compiled, warp_regions(trace))


@pytest.mark.parametrize("way", ["nested", "crossing", "empty", "at once"])
def test_compiled_sums_of_nested_regions_are_those_of_numpy(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    last = {"nested": ("c", 60, 90), "crossing": ("c", 35, 90), "empty": ("c", 90, 90), "at once": ("a", 10, 90)}[way]
    spans = [("b", 20, 30), ("a", 10, 40), ("b", 50, 55), last, ("a", 5, 95), ("c", 96, 99)]
    slabs = [synth.slab([Rec(name, 1000 + a, 1000 + b) for name, a, b in spans], log2=3, warp=at) for at in range(3)]
    trace = assemble(synth.capture(np.concatenate(slabs), names=("a", "b", "c")))
    compiled = warp_regions(trace)
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    assert len(compiled) == 9
    assert_equal_rows(compiled, warp_regions(trace))


def assert_equal_rows(compiled: WarpRegions, plain: WarpRegions) -> None:
    for one in fields(plain):
        if one.name != "values":  # has gaps
            assert np.array_equal(getattr(compiled, one.name), getattr(plain, one.name)), one.name
    durations = ([found.values[at:][:count].tolist() for at, count in zip(found.offset, found.count, strict=True)]
                 for found in (compiled, plain))  # fmt: skip
    assert next(durations) == next(durations)


def _farthest_ns(trace: TraceData) -> float:
    """The largest time in a trace, also of ends that are damage."""
    warps = trace.warps
    times = (warps.start_ns, warps.end_ns, warps.error_ns, (warps.last_tick - warps.first_tick).astype(np.float64))
    return float(max(np.abs(np.nan_to_num(column)).max(initial=0) for column in times))


def test_compiled_loops_decode_many_slabs_as_numpy_does() -> None:
    compiled, plain = both_ways(synth.capture(synth.bulk(20_000, 5, waves=3)))
    assert len(compiled) == 100_000 and compiled.problems == plain.problems
    for one in fields(plain.warps):
        got, expected = getattr(compiled.warps, one.name), getattr(plain.warps, one.name)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-6, err_msg=one.name)
    assert np.array_equal(compiled.start_ticks, plain.start_ticks) and np.array_equal(compiled.region, plain.region)


def test_a_library_built_from_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = native.path()
    assert built is not None
    for source in (*built.parent.glob("*.[ch]"), built):
        shutil.copy(source, tmp_path)
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    try:
        native._loaded.cache_clear()
        assert native.available() and native.path() == tmp_path / built.name
        (tmp_path / "slabs.c").write_text("/* other arguments */")
        native._loaded.cache_clear()
        assert not native.available() and native.path() is None
    finally:
        native._loaded.cache_clear()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_with_the_headers_of_a_free_threaded_python_the_loops_are_built_alone(tmp_path: Path) -> None:
    (tmp_path / "pyconfig.h").write_text("#define Py_GIL_DISABLED 1\n")
    (tmp_path / "Python.h").write_text("#error the limited API is not supported\n")
    source = native._FOLDER / "places.c"
    subprocess.run(["cc", "-std=c11", f"-I{tmp_path}", "-fsyntax-only", str(source)], check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_without_pythons_headers_the_loops_are_built_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sorted(native._FOLDER.glob("*.[ch]"))
    for source in sources:
        shutil.copy(source, tmp_path)
    command = ["cc", "-std=c11", "-fPIC", "-shared", "-pthread", f'-DKS_DIGEST="{native.digest()}"', "-o", "_native.so"]
    outside = {name: value for name, value in os.environ.items() if name not in ("CPATH", "C_INCLUDE_PATH")}
    files = [source.name for source in sources if source.suffix == ".c"]
    subprocess.run([*command, *files], cwd=tmp_path, env=outside, check=True)
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    try:
        native._loaded.cache_clear()
        native._module.cache_clear()
        assert native.available() and native.module() is None
    finally:
        native._loaded.cache_clear()
        native._module.cache_clear()


def test_words_of_any_type_are_read() -> None:
    whole = synth.capture(synth.bulk(20, 5))
    (device,) = whole.devices
    wide = replace(whole, devices=(replace(device, lines=device.lines.astype(np.int64)),))
    assert assemble(wide).start_ticks.tolist() == assemble(whole).start_ticks.tolist()


@given(values=st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 9), max_size=60))
def test_compiled_groups_are_those_of_numpy(values: list[int]) -> None:
    column = np.array(values * 40, np.uint64)  # enough to let the table grow
    first, size, group = group_equal(column)
    distinct, index, which, count = np.unique(column, return_index=True, return_inverse=True, return_counts=True)
    if len(column):
        assert column[first].tolist() == distinct.tolist()
    assert (first.tolist(), size.tolist(), group.tolist()) == (index.tolist(), count.tolist(), which.tolist())


def test_the_group_table_grows_as_needed() -> None:
    column = np.random.default_rng(0).permutation(np.arange(100_000, dtype=np.uint64) ** 3 % np.uint64(77_777)) << 20
    expected = np.unique(column, return_index=True, return_inverse=True, return_counts=True)[1:]
    for got, correct in zip(group_equal(column), (expected[0], expected[2], expected[1]), strict=True):
        assert np.array_equal(got, correct)


EDGE = 1 << 14
"""Lines that a thread searches for headers at a time."""


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("damage", ["none", "a header inside of a slab", "torn headers", "a slab without an end"])
def test_threads_find_the_same_headers_as_numpy(damage: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "threads", lambda: threads)
    lines = synth.bulk(600, 250)  # 66 lines each
    assert len(lines) > 2 * EDGE and EDGE % 66
    if damage == "a header inside of a slab":
        lines[EDGE : EDGE + 2] = lines[:2]
    elif damage == "torn headers":  # one in each line
        lines[EDGE - 300 : EDGE + 9000, 0] = layout.HEADER_WORD
    elif damage == "a slab without an end":
        lines = lines[:-5]
    found, problems = slabs.find(lines, synth.EPOCH)
    monkeypatch.setenv("KSCOPE_NATIVE", "0")
    plain, expected = slabs.find(lines, synth.EPOCH)
    assert problems == expected and (len(problems) > 0) == (damage in ("torn headers", "a slab without an end"))
    assert np.array_equal(found.line, plain.line) and np.array_equal(found.finished, plain.finished)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 2), (8, 6), (64, 12)])
def test_threads_leave_cores_to_the_program(cores: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert native.threads.__wrapped__() == threads


PROGRAM = """
import os, threading
import numpy as np, synth
from kscope import native
from kscope.decoding import slabs

native.threads = lambda: 8
lines = synth.bulk(600, 250)
expected = slabs.find(lines, synth.EPOCH)[0].line

def find() -> None:
    for _ in range(5):
        assert np.array_equal(slabs.find(lines, synth.EPOCH)[0].line, expected)

others = [threading.Thread(target=find) for _ in range(4)]
for one in others:
    one.start()
for one in others:
    one.join()
child = os.fork()
find()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("found")
"""


def test_calls_at_once_and_after_a_fork_find_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("found\n", "")
