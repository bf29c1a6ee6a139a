"""Files that promise much and hold nothing: read in a process that cannot have much memory, and refused by name.

A sparse file of ten gigabytes costs its maker nothing.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import orjson
import pytest
from torture.targets import with_head
from waiting import PATIENCE_S

import kscope_cuda
from kscope import cli
from kscope.capture.capture import load_capture
from kscope.capture.file import CHUNK, FIRST_LINE
from kscope.capture.layout import LINE
from kscope.errors import FormatError
from kscope.util.bounded_reading import MAX_LINE_BYTES, memory_budget, read_bytes, read_lines

HUGE = 10 << 30
LIMIT = 1 << 30
"""Bytes of address space that a reading process gets, numpy's own threads and libraries among them."""
EMPTY = {"epoch": 0, "options": {}, "host": {}, "problems": [], "modules": [], "devices": []}


def sparse(path: Path, begin: bytes, size: int = HUGE) -> Path:
    """A file that begins so, and then has zeros that no disk holds."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)
    if os.stat(path).st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no sparse files")
    return path


def command(*words: str | Path) -> tuple[int, str]:
    """Exit code and stderr of kscope with little memory; a traceback is a failure of the test."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT})); from kscope.cli import main; "
    code += "import sys; sys.exit(main(sys.argv[1:]))"
    # address space that threads reserve and do not use
    few = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, **few, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    return done.returncode, done.stderr


def chunked(lines_: int, chunk: bytes, *, packed: int) -> bytes:
    """A correct head: one device of equal, full chunks."""
    row = [len(chunk), zlib.crc32(chunk), packed]
    device = {"ordinal": 0, "name": "x", "sms": 1, "lost": 0, "tick_ns": 0, "syncs": []}
    return with_head(
        orjson.dumps({**EMPTY, "devices": [{**device, "lines": lines_, "chunks": [row] * (lines_ // CHUNK)}]})
    )


def test_ten_gigabytes_of_zeros_are_not_accepted_as_a_capture(tmp_path: Path) -> None:
    assert command("summary", sparse(tmp_path / "x.kscope", b"")) == (2, _about(tmp_path, "not a kscope capture"))


def test_an_empty_file_is_not_accepted_as_a_capture(tmp_path: Path) -> None:
    (tmp_path / "x.kscope").touch()
    code, message = command("summary", tmp_path / "x.kscope")
    assert code == 2 and "truncated or empty" in message


def test_ten_gigabytes_of_metadata_are_not_read(tmp_path: Path) -> None:
    begin = FIRST_LINE + (HUGE - 29).to_bytes(8, "little") + bytes(4)
    code, message = command("summary", sparse(tmp_path / "x.kscope", begin))
    assert code == 2 and "the head has 10,737,418,211 bytes, expected at most" in message


def test_an_uncompressed_ten_gigabyte_capture_is_refused_if_it_exceeds_memory(tmp_path: Path) -> None:
    head = chunked(HUGE // LINE // CHUNK * CHUNK, bytes(CHUNK * LINE), packed=0)
    path = sparse(tmp_path / "x.kscope", head, len(head) + HUGE)
    code, message = command("summary", path)
    assert code == 2 and f"load it with max_bytes={HUGE}" in message


def test_an_uncompressed_capture_of_zeros_is_read_if_it_fits(tmp_path: Path) -> None:
    head = chunked(64 * CHUNK, bytes(CHUNK * LINE), packed=0)
    path = sparse(tmp_path / "x.kscope", head, len(head) + 64 * CHUNK * LINE)
    assert command("summary", path) == (0, "")


def test_memory_that_runs_out_is_reported_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: object) -> None:
        raise MemoryError("Unable to allocate 80 GiB")

    monkeypatch.setattr("kscope.cli.summary.summarize", lambda *_: full(None))
    (tmp_path / "x.kscope").write_bytes(with_head(orjson.dumps(EMPTY)))
    assert cli.main(["summary", str(tmp_path / "x.kscope")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "kscope: out of memory (Unable to allocate 80 GiB): select fewer records"
    ]
    with pytest.raises(MemoryError):
        cli.main(["--debug", "summary", str(tmp_path / "x.kscope")])


def test_packed_zeros_are_read_within_little_memory(tmp_path: Path) -> None:
    head = chunked(8 * CHUNK, zlib.compress(bytes(CHUNK * LINE)), packed=1)
    (tmp_path / "x.kscope").write_bytes(head + zlib.compress(bytes(CHUNK * LINE)) * 8)
    assert command("summary", tmp_path / "x.kscope") == (0, "")


@pytest.mark.parametrize(
    ("flag", "begin", "expected_text"),
    [
        ("--chrome-trace", b"", "expected at most"),
        ("--cutracer-trace", b"", "expected a text file"),
        ("--cutracer-trace", b"warp_id,region_id,count\n0,0,", "expected a text file"),
    ],
)
def test_ten_gigabyte_tracer_files_are_refused(flag: str, begin: bytes, expected_text: str, tmp_path: Path) -> None:
    code, message = command("trust", "ipc", flag, sparse(tmp_path / "x", begin))
    assert code == 2 and expected_text in message


def test_ten_gigabyte_logs_and_disassemblies_are_refused(tmp_path: Path) -> None:
    huge = sparse(tmp_path / "x", b"")
    (tmp_path / "trace.json").write_text("[]")
    (tmp_path / "hist.csv").write_text("warp_id,region_id,count\n")
    joined = ("--chrome-trace", tmp_path / "trace.json", "--cutracer-trace", tmp_path / "hist.csv")
    code, message = command("trust", "ipc", *joined, "--cutracer-log", huge)
    assert code == 2 and "expected a text file" in message
    code, message = command("trust", "perturb", huge, huge)
    assert code == 2 and "expected at most" in message


@pytest.mark.parametrize("reader", ["flashinfer", "mirage", "triton-distributed", "nuggets", "sm-profiler", "proton"])
def test_ten_gigabyte_buffers_are_refused(reader: str, tmp_path: Path) -> None:
    for name in ("x.bin", "x.npy"):
        code, message = command("summary", sparse(tmp_path / name, b""), "--from", reader)
        assert code == 2 and ("exceeds the limit" in message or "expected at most" in message), message


def test_a_log_of_any_size_is_read_line_by_line(tmp_path: Path) -> None:
    line = b"an instruction of somebody's\n" * (1 << 15)
    with (tmp_path / "log").open("wb") as file:
        for _ in range(40):
            file.write(line)
    assert sum(1 for _ in read_lines(tmp_path / "log")) == 40 << 15


def test_lines_above_the_length_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * (MAX_LINE_BYTES - 1) + b"\n" + b"b" * MAX_LINE_BYTES)
    assert [len(line) for line in read_lines(tmp_path / "x")] == [MAX_LINE_BYTES, MAX_LINE_BYTES]
    (tmp_path / "x").write_bytes(b"a\n" + b"b" * (MAX_LINE_BYTES + 1))
    with pytest.raises(FormatError, match="line 2: more than"):
        list(read_lines(tmp_path / "x"))


def test_growing_files_are_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(FormatError, match="5 bytes, expected at most 4"):
        read_bytes(tmp_path / "x", 4)
    with pytest.raises(FormatError, match="expected at most 1,000,000"):
        read_bytes(Path("/dev/zero"), 1_000_000)  # its size is reported as 0 bytes


def test_the_memory_budget_is_a_quarter_of_the_address_limit() -> None:
    code = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT}));"
    code += "from kscope.util.bounded_reading import memory_budget; print(memory_budget())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert int(done.stdout) == min(LIMIT // 4, memory_budget())


def container(flags: int, unpacked: int) -> bytes:
    """A fatbin of one compressed cubin with a declared size."""
    entry = struct.pack("<HHIQI20xQQQ", 2, 1, 64, 8, 8, flags, 0, unpacked) + bytes(8)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


@pytest.mark.parametrize(
    "data",
    [
        b".version 8.0\n.b8 x[999999999] = {1}", b".version 8.0\n" + b".b8 x[99999999] = {1}\n" * 3,
        container(0x2000, 1 << 60), container(0x8000, 1 << 40),
    ],
    ids=["a constant", "several", "LZ4", "Zstandard"],
)  # fmt: skip
def test_compressed_device_code_has_a_size_limit(data: bytes) -> None:
    with pytest.raises(FormatError, match="is it damaged"):
        kscope_cuda.describe(data)


@pytest.mark.parametrize(
    "typed",
    [
        ["--warp", "0-99999999999"], ["--block", "0:9999999999999999999"], ["--launch", "9" * 5000],
        ["--sm", ",".join(["0-1000000"] * 3)], ["--top", "9" * 5000], ["--role", "a=0-99999999999"],
    ],
)  # fmt: skip
def test_a_range_is_counted_before_it_is_made(typed: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.kscope").write_bytes(with_head(orjson.dumps(EMPTY)))
    assert load_capture(tmp_path / "x.kscope").devices == ()
    try:
        code, message = command("summary", tmp_path / "x.kscope", *typed)
    except AssertionError as error:
        raise AssertionError(f"{typed[0]}: {error}") from None
    assert (code == 2 and "expected" in message) or "invalid" in message


def _about(folder: Path, what: str) -> str:
    begins = f"(begins with {bytes(8)!r}); record one with kscope run SCRIPT or kscope.profile('run.kscope')"
    return f"kscope: {folder / 'x.kscope'}: {what} {begins}\n"
