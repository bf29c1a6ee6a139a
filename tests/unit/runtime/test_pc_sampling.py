"""Sampling with CUPTI: what reaches the table, what is counted as lost, and who is refused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import wait_until

from kscope.errors import DriverError, MissingError, UnsupportedError
from kscope.instrument import loaded_code
from kscope_runtime import CudaBackend, cupti, pc_sampling, sample_buffers, sample_table, sample_times
from kscope_runtime.cupti import Data
from kscope_runtime.pc_sampling import PcSampler
from kscope_runtime.primary_contexts import PrimaryContexts
from kscope_runtime.sample_table import SampleTable
from kscope_runtime.sample_times import SampleTimes

from .fake import FakeDriver, Gpu
from .fake_cupti import FakeCupti, Sampled


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "other_client", lambda: "")
    monkeypatch.setattr(cupti, "torch_may_have_used_it", lambda: False)
    monkeypatch.setattr(loaded_code, "_images", {})
    monkeypatch.setattr(pc_sampling, "_POLL_S", 1e-3)


def sampler(library: FakeCupti, period: int = 1024) -> PcSampler:
    found = PcSampler(lambda: library)
    found.begin(period)
    found.add(1)
    return found


def counts(found: PcSampler) -> dict[tuple[str, int, str], int]:
    [code] = found.samples()
    samples = code.samples
    return {
        (samples.functions[function].name, pc, samples.reasons[reason]): count
        for function, pc, reason, count in samples.rows.tolist()
    }


def test_samples_are_summed_over_reads_and_the_last_buffer() -> None:
    library = FakeCupti(
        ready=[[Sampled("k", 16, {3: 5, 7: 1}), Sampled("other", 16, {7: 2})], [Sampled("k", 16, {3: 1})]],
        late=[Sampled("k", 32, {5: 4})],
        last=[Sampled("k", 16, {3: 10})],
    )
    found = sampler(library)
    found.end(wait=True)
    assert counts(found) == {
        ("k", 16, "long_scoreboard"): 16,
        ("k", 16, "selected"): 1,
        ("k", 32, "long_scoreboard_not_issued"): 4,
        ("other", 16, "selected"): 2,
    }
    [code] = found.samples()
    assert len(code.samples) == 19  # without the subset
    assert library.calls[:4] == ["enable", "configure", "on_module", "start"]  # registering first is a use of it
    assert library.calls[-1] == "disable"  # also for other processes
    assert library.configured[cupti.PERIOD] == 10 and library.configured[cupti.MODE] == cupti.CONTINUOUS


def test_the_last_read_continues_until_nothing_comes() -> None:
    library = FakeCupti(understates=True)
    found = sampler(library)
    found.pause(True)
    found.pause(False)
    with found._lock:  # the thread reads nothing meanwhile
        library.ready = [[Sampled("k", 16, {3: 1})] for _ in range(5)]
        found._contexts[1].stop()
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}


def test_the_runtime_s_own_kernels_are_left_out() -> None:
    library = FakeCupti(late=[Sampled("ks_now", 16, {3: 5}), Sampled("k", 16, {3: 5}), Sampled("ks_tick", 0, {3: 1})])
    found = sampler(library)
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}


def test_samples_arrive_while_kernels_run() -> None:
    found = sampler(FakeCupti(ready=[[Sampled("k", 16, {3: 5})]]))
    wait_until(lambda: len(found.samples()[0].samples))
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}


def test_a_library_that_cannot_be_read_while_it_samples_is_read_at_the_end() -> None:
    library = FakeCupti(ready=[[Sampled("k", 16, {3: 5})]], broken={"read"})
    found = sampler(library)
    wait_until(lambda: "read" in library.calls)
    time.sleep(0.02)
    assert library.calls.count("read") == 1
    library.broken.clear()
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5} and found.problems() == ()


def test_losses_are_counted() -> None:
    library = FakeCupti(ready=[[Sampled("k", 16, {3: 5})]], full=True, dropped=7)
    found = sampler(library)
    wait_until(lambda: library.calls.count("read") >= 3)
    found.end(wait=True)
    [code] = found.samples()
    assert (code.samples.full, code.samples.dropped) == (1, 7)
    assert not library.full  # else it says so forever


def test_a_pause_stops_and_continues() -> None:
    library = FakeCupti()
    found = sampler(library)
    found.pause(True)
    found.pause(False)
    found.end(wait=True)
    kept = [call for call in library.calls if call in ("start", "stop")]
    assert kept == ["start", "stop", "start", "stop"]


def test_without_a_wait_the_library_is_only_read() -> None:
    library = FakeCupti(ready=[[Sampled("k", 16, {3: 5})]])
    found = sampler(library)
    found.end(wait=False)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}
    assert "stop" not in library.calls and "disable" not in library.calls
    found.begin(1024)  # the next recording ends it
    assert library.calls.index("disable") < library.calls.index("finalize")
    found.end(wait=True)


def test_modules_that_were_loaded_between_sessions_are_known_and_have_their_code() -> None:
    library = FakeCupti()
    library.load(code := b"\0before\0")
    found = sampler(library)
    assert library.modules[code]
    found.end(wait=True)
    library.load(between := b"\0between\0 sessions")
    assert not library.modules[between]
    found.begin(256)
    found.add(1)
    assert library.modules[between] and library.calls.count("on_module") == 2
    library.late = [Sampled("between", 16, {3: 2}, library.checksum(between))]
    found.end(wait=True)
    assert counts(found) == {("between", 16, "long_scoreboard"): 2}
    assert found.samples()[0].cubins == (between,)
    assert library.configured[cupti.PERIOD] == 8


def test_a_process_that_samples_for_the_first_time_finalizes_nothing() -> None:
    library = FakeCupti()
    sampler(library).end(wait=True)
    assert "finalize" not in library.calls


def test_a_broken_context_keeps_what_was_read() -> None:
    library = FakeCupti(ready=[[Sampled("k", 16, {3: 5})]])
    found = sampler(library)
    wait_until(lambda: not library.ready)
    time.sleep(0.01)
    library.broken = {"stop"}
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5}
    assert "CUPTI_ERROR_INVALID_OPERATION" in found.problems()[0]


def test_a_context_that_cannot_be_sampled_is_a_problem_once() -> None:
    found = sampler(FakeCupti(refuses="profiling needs the administrator's permission"))
    found.add(2)
    found.end(wait=True)
    assert found.problems() == ("profiling needs the administrator's permission",)
    assert found.samples() == ()


def test_another_profiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "other_client", lambda: "nsys")
    with pytest.raises(UnsupportedError, match="nsys profiles this process"):
        PcSampler(FakeCupti).begin(1024)


def test_profilers_are_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert cupti.other_client() == ""
    torch = SimpleNamespace(_C=SimpleNamespace(_autograd=SimpleNamespace(_profiler_enabled=lambda: True)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert cupti.other_client() == "torch.profiler"
    assert cupti.torch_may_have_used_it()
    monkeypatch.delitem(sys.modules, "torch")
    proton = SimpleNamespace(flags=SimpleNamespace(profiling_on=True))
    monkeypatch.setitem(sys.modules, "triton.profiler.flags", proton)
    assert cupti.other_client() == "Proton"
    proton.flags.profiling_on = False
    assert cupti.other_client() == ""


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("nsight/libToolsInjection64.so", "nsys"), ("ncu/libcuda-injection.so", "ncu"),
        ("dsl_packages/iket/profiler/libiket_injection.so", "IKET"), ("lib/libcutracer.so", "CUTracer"),
        ("sanitizer/libsanitizer-collection.so", "compute-sanitizer"),
        ("dsl_packages/iket/libiket_cubin_info.so", ""), ("lib/libcupti.so.13", ""),
    ],
)  # fmt: skip
def test_tools_that_were_loaded_into_the_program_are_recognized(
    library: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    real = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **more: f"7f00 r-xp /opt/{library}\n"
        if str(path) == "/proc/self/maps" else real(path, **more),
    )  # fmt: skip
    assert cupti.other_client() == name


def test_functions_know_their_modules() -> None:
    library = FakeCupti()
    found = sampler(library)
    number = library.seen(b"first")
    assert library.seen(b"second") != number == library.seen(b"first")
    library.late = [Sampled("a", 0, {3: 1}, number), Sampled("b", 0, {3: 1}, 999)]
    found.end(wait=True)
    [code] = found.samples()
    names = [one.name for one in code.samples.functions]
    assert code.cubins[code.cubin_of[names.index("a")]] == b"first"
    assert names.index("b") not in code.cubin_of
    assert "loaded before sampling began" in code.samples.functions[names.index("b")].why_unknown


CUBIN = b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little")


@pytest.mark.parametrize("in_files", [True, False])
def test_the_code_of_a_module_from_before_is_what_the_frontend_kept(in_files: bool, tmp_path: Path) -> None:
    library = FakeCupti(unreadable={CUBIN + b"\0k\0"})
    found = sampler(library)
    code = {"a": b"\0k\0 code", "b": b"\0k\0 longer code", "c": b"\0other\0     code", "d": b"\0q\0 longer code"}
    texts = {name: CUBIN + text for name, text in code.items()} | {"unreadable": CUBIN + b"\0k\0"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        loaded_code.keep(tmp_path / name if in_files else text)
    loaded_code.keep(tmp_path / "deleted")
    numbers = {name: library.checksum(CUBIN + text) for name, text in code.items()}
    library.late = [Sampled("k", 0, {3: 1}, numbers["b"]), Sampled("unknown", 0, {3: 1}, numbers["c"])]
    found.end(wait=True)
    [sampled] = found.samples()
    names = [one.name for one in sampled.samples.functions]
    assert sampled.cubins == (texts["b"],) and sampled.cubin_of == {names.index("k"): 0}
    assert "before the kernel is first launched" in sampled.samples.functions[names.index("unknown")].why_unknown


def test_modules_of_torch_s_profiler_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "torch_may_have_used_it", lambda: True)
    library = FakeCupti(used=True)
    library.load(b"loaded while torch.profiler was on")
    sampler(library).end(wait=True)
    assert library.modules == {b"loaded while torch.profiler was on": True}


def test_a_library_that_cannot_begin_anew_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "torch_may_have_used_it", lambda: True)
    found = sampler(FakeCupti(late=[Sampled("k", 16, {3: 5})], broken={"finalize"}))
    found.end(wait=True)
    assert counts(found) == {("k", 16, "long_scoreboard"): 5} and found.problems() == ()


def test_modules_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_buffers, "MOST_CUBIN_BYTES", 10)
    modules = sample_buffers.Modules()
    kept, left = modules.seen(b"123456"), modules.seen(b"789abc")
    assert (modules.cubins[kept], modules.cubins[left]) == (b"123456", b"")


def test_a_hundred_million_samples_fit_into_200_megabytes() -> None:
    random, total = np.random.default_rng(7), 0
    tracemalloc.start()
    try:
        table = SampleTable()
        for _ in range(40):
            size = 100_000
            columns = (random.integers(0, top, size) for top in (200, 5000, 30))
            function, pc, reason = columns
            table.add(function, pc * 16, reason, np.full(size, 25, np.uint64))
            total += 25 * size
        rows = table.rows()
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert total == 100_000_000
    assert int(rows["count"].sum()) + table.left_out == total and 0 < table.left_out < total
    assert len(rows) == sample_table.MOST_ROWS


class Busy(FakeCupti):
    """Each read fills the buffer: 8,192 instructions, each with samples of all of 40 reasons."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.reads, self.taken = reads, 0
        self._random = np.random.default_rng(3)
        self._kernels = [ctypes.create_string_buffer(f"kernel_{one}".encode()) for one in range(50)]

    def reasons(self, context: int) -> dict[int, str]:
        return {one: f"smsp__pcsamp_warps_issue_stalled_r{one}" for one in range(40)}

    def read(self, context: int, data: Data) -> bool:
        data.pcs = data.remaining = 0
        if self.reads:
            self.reads -= 1
            size = data.capacity
            memory = (ctypes.c_char * (size * ctypes.sizeof(cupti.PcData))).from_address(data.pc_data)
            rows = np.frombuffer(memory, sample_buffers._PC_DATA)
            which = self._random.integers(0, len(self._kernels), size)
            rows["cubin"], rows["index"], rows["reasons"] = 1, which, 40
            rows["pc"] = 16 * self._random.integers(0, 1000, size)
            rows["name"] = np.array([ctypes.addressof(one) for one in self._kernels], np.uint64)[which]
            first = int(rows["reason"][0])
            counts = (ctypes.c_char * (size * 40 * 8)).from_address(first)
            reasons = np.frombuffer(counts, sample_buffers._REASON).reshape(size, 40)
            reasons["index"], reasons["samples"] = np.arange(40), self._random.integers(20, 100, (size, 40))
            self.taken += int(reasons["samples"].sum())
            data.pcs, data.remaining = size, self.reads
        return True


def test_a_hundred_million_samples_of_full_buffers_take_at_most_200_megabytes() -> None:
    tracemalloc.start()
    try:
        library = Busy(reads=6)
        one = pc_sampling.ContextSampler(library, 1, 64)
        one.start()
        one.stop()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = one.samples(sample_buffers.Modules()).samples
    assert library.taken > 100_000_000 and most < 200e6
    assert int(found.rows["count"].sum()) + found.left_out == library.taken
    assert int(found.windows["count"].sum()) == library.taken
    assert len(found.functions) == 50 and len(found.reasons) == 40


def test_the_table_counts_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "_PENDING", 700)  # several times
    random, table = np.random.default_rng(1), SampleTable()
    expected: dict[tuple[int, int, int], int] = {}
    for _ in range(20):
        columns = [random.integers(0, top, 500) for top in (3, 1 << 32, 2)]
        columns[1] &= 0x70000070
        many = random.integers(1, 1 << 40, 500)
        table.add(*columns, many.astype(np.uint64))
        for *key, count in zip(*(column.tolist() for column in (*columns, many)), strict=True):
            expected[tuple(key)] = expected.get(tuple(key), 0) + count  # type: ignore[index]  # three of them
    assert {tuple(row[:3]): row[3] for row in table.rows().tolist()} == expected


def test_samples_have_the_window_between_two_reads() -> None:
    library, before = FakeCupti(), time.time_ns()
    found = sampler(library)
    with found._lock:
        library.ready = [
            [Sampled("k", 16, {3: 5, 5: 4, 7: 1})],
            [Sampled("other", 16, {7: 2}), Sampled("k", 32, {3: 1})],
        ]
    wait_until(lambda: not library.ready)
    with found._lock:
        middle = time.time_ns()
    library.last = [Sampled("k", 16, {3: 10})]
    wait_until(lambda: time.time_ns() > middle)
    library.late = [Sampled("k", 16, {3: 7})]
    found.end(wait=True)
    [code] = found.samples()
    windows = code.samples.windows
    names = [code.samples.functions[one].name for one in windows["function"].tolist()]
    counts = list(zip(names, windows["count"].tolist(), strict=True))
    assert counts == [("k", 7), ("other", 2), ("k", 17)]  # without the subset; the last buffer's with the last window
    assert before <= windows["begin"][0] and windows["end"][1] <= middle <= windows["end"][2] <= time.time_ns()
    assert int(windows["count"].sum()) == len(code.samples)


def test_a_window_begins_where_the_last_one_with_samples_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read returns samples of some time before it: turns that found none say nothing."""
    now = iter(range(100))
    monkeypatch.setattr(sample_times.time, "time_ns", lambda: 1000 * next(now))
    times = SampleTimes()
    for count in (0, 0, 5, 0, 0, 0, 7):
        if count:
            times.add(np.array([0]), np.array([count], np.uint64))
        times.turn()
    assert times.rows().tolist() == [(0, 3000, 0, 5), (3000, 7000, 0, 7)]


def test_samples_that_arrive_when_sampling_ends_lengthen_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1_000_000))
    monkeypatch.setattr(sample_times.time, "time_ns", lambda: 1000 * next(now))
    times = SampleTimes()
    times.add(np.array([0]), np.array([5], np.uint64))
    times.turn()
    times.end()
    assert times.rows().tolist() == [(0, 1000, 0, 5)]
    times.add(np.array([0, 1]), np.array([2, 3], np.uint64))
    times.end()
    assert times.rows().tolist() == [(0, 2000, 0, 7), (0, 2000, 1, 3)]


def test_the_library_s_threads_take_samples_often_if_it_can() -> None:
    library = FakeCupti()
    sampler(library).end(wait=True)
    assert library.configured[cupti.THREAD_SLEEP] == 10

    class Older(FakeCupti):
        def configure(self, context: int, values: dict[int, int]) -> None:
            if cupti.THREAD_SLEEP in values:
                raise DriverError("cuptiPCSamplingSetConfigurationAttribute", "CUPTI_ERROR_INVALID_OPERATION", 4, "")
            super().configure(context, values)

    older = Older(late=[Sampled("k", 16, {3: 5})])
    found = sampler(older)
    found.end(wait=True)
    assert cupti.THREAD_SLEEP not in older.configured and counts(found) == {("k", 16, "long_scoreboard"): 5}


def test_a_long_recording_has_a_bounded_number_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1_000_000))
    monkeypatch.setattr(sample_times.time, "time_ns", lambda: 1000 * next(now))
    monkeypatch.setattr(sample_times, "MOST_WINDOWS", 50)
    times = SampleTimes()
    for turn in range(1000):
        times.add(np.array([0, 0, turn % 3]), np.array([1, 2, 4], np.uint64))
        times.turn()
    rows = times.rows()
    assert len(set(rows["begin"].tolist())) <= 51
    assert int(rows["count"].sum()) == 7000
    begin, end = np.unique(rows["begin"]), np.unique(rows["end"])
    assert (begin[1:] == end[:-1]).all()


class Both:
    """Two GPUs; the program has made the second one's primary context by itself."""

    def __init__(self) -> None:
        self.library = FakeCupti(ready=[], late=[Sampled("k", 0, {3: 1})])
        self.driver = FakeDriver(Gpu(), Gpu())
        self.active: list[int] = [2]
        self.driver.primary = SimpleNamespace(active=lambda: self.active, of_this_process=lambda: 1)  # type: ignore[attr-defined]
        self.backend = CudaBackend(self.driver, cupti=lambda: self.library)


def test_contexts_that_the_program_makes_join() -> None:
    both = Both()
    both.active = []
    both.backend.begin_samples(1024)
    assert both.backend._sampler.contexts() == (1,)
    both.active = [2]
    wait_until(lambda: len(both.backend._sampler.contexts()) == 2)
    assert both.backend._sampler.contexts() == (1, 2)
    assert both.driver.context() == 1  # this thread's is as before
    both.backend.end_samples(wait=True)
    first, second = both.backend.samples()
    assert len(first.samples) + len(second.samples) == 1


def test_the_context_of_this_process_is_sampled_before_its_first_kernel() -> None:
    both = Both()
    both.active = []
    both.backend.begin_samples(1024)
    assert both.backend._sampler.contexts() == (1,)
    both.backend.wait()
    assert "synchronize_context" in both.driver.calls
    both.backend.end_samples(wait=True)


def test_no_context_is_created_beside_one_that_the_program_uses() -> None:
    both = Both()
    both.backend.begin_samples(1024)
    assert both.backend._sampler.contexts() == (2,)
    both.backend.end_samples(wait=True)


def test_the_device_of_this_process_is_that_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    answers = {"cuDeviceGetCount": 4, "cuDevicePrimaryCtxGetState": [0, 1]}

    def call(name: str, *arguments: int) -> object:
        if name == "cuDevicePrimaryCtxRetain":
            made.append(arguments[0])
            return 100 + arguments[0]
        return answers.get(name, arguments[0] if arguments else 0)

    found = PrimaryContexts(call)
    assert found.of_this_process() == 100
    monkeypatch.setenv("LOCAL_RANK", "6")
    assert found.of_this_process() == 102
    assert found.active() == [100, 101, 102, 103] and sorted(made) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (cupti.StallReason, "CUpti_PCSamplingStallReason"), (cupti.PcData, "CUpti_PCSamplingPCData"),
        (cupti.Data, "CUpti_PCSamplingData"), (cupti.Attribute, "CUpti_PCSamplingConfigurationInfo"),
        (cupti.Configuration, "CUpti_PCSamplingConfigurationInfoParams"),
        (cupti.OfContext, "CUpti_PCSamplingEnableParams"), (cupti.GetData, "CUpti_PCSamplingGetDataParams"),
        (cupti.CountReasons, "CUpti_PCSamplingGetNumStallReasonsParams"),
        (cupti.Checksum, "CUpti_GetCubinCrcParams"), (cupti.NameReasons, "CUpti_PCSamplingGetStallReasonsParams"),
    ],
)  # fmt: skip
def test_structures_have_the_header_s_sizes(ours: type[ctypes.Structure], theirs: str, tmp_path: Path) -> None:
    headers = _headers()
    if not headers or shutil.which("gcc") is None:
        pytest.skip("needs gcc and cupti_pcsampling.h: pip install nvidia-cuda-cupti")
    (tmp_path / "x.c").write_text(
        f'#include <cupti_pcsampling.h>\n_Static_assert(sizeof({theirs}) == {ctypes.sizeof(ours)}, "size");\n'
    )
    command = ["gcc", "-fsyntax-only", *(f"-I{folder}" for folder in headers), str(tmp_path / "x.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _headers() -> list[Path]:
    """The folders of cupti_pcsampling.h and cuda.h; none if one is missing."""
    try:
        library = cupti.find()
    except MissingError:
        return []
    folders = [library.parent.parent / "include", Path("/usr/local/cuda/include")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        folders.append(Path(nvcc).resolve().parent.parent / "include")
    found = [folder for folder in folders if folder.is_dir()]
    wanted = ("cupti_pcsampling.h", "cuda.h")
    return found if all(any((folder / name).exists() for folder in found) for name in wanted) else []


def test_the_layout_that_numpy_reads_is_the_structure_s() -> None:
    layout = sample_buffers._PC_DATA
    assert layout.itemsize == ctypes.sizeof(cupti.PcData)
    pairs = {"cubin": "cubin_crc", "pc": "pc", "index": "function_index", "name": "function_name", "reason": "reason"}
    assert {layout.fields[ours][1] for ours in pairs} == {
        getattr(cupti.PcData, theirs).offset for theirs in pairs.values()
    }  # type: ignore[index]


def test_a_missing_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("_loaded", "_in_wheels", "_in_toolkits"):
        monkeypatch.setattr(cupti, place, lambda: iter(()))
    with pytest.raises(MissingError, match="libcupti is not installed: pip install"):
        cupti.find()


@pytest.mark.parametrize(
    ("result", "text"),
    [(35, "ERR_NVGPUCTRPERM"), (39, "another profiler"), (27, "cannot sample"), (43, "MIG")],
)
def test_errors_that_a_user_can_change_are_explained(result: int, text: str) -> None:
    library = object.__new__(cupti.Cupti)
    library._library = SimpleNamespace(cuptiGetResultString=lambda number, text: 0)  # type: ignore[assignment]  # a stub
    with pytest.raises(UnsupportedError, match=text):
        library._check("cuptiPCSamplingEnable", result)
