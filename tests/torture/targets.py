"""Fuzz targets: every entry point for untrusted bytes, each as `target(data, folder)`.

A target reads the bytes as kscope would and uses the result. It returns if kscope accepts them or refuses them by name
(KscopeError); any other exception is a defect.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import synth

import kscope_cuda
from kscope import cli
from kscope.analysis import expressions
from kscope.analysis.trust import perturbation
from kscope.capture import metadata as meta
from kscope.capture.capture import Capture, load_capture
from kscope.capture.file import FIRST_LINE
from kscope.capture.layout import header_check
from kscope.cli.common import recording_flags as flags
from kscope.core_dumps import text as core_text
from kscope.core_dumps.verdict import verdict as core_verdict
from kscope.errors import KscopeError, UsageError
from kscope.instrument.options import Options
from kscope.instrument.recording import Recording
from kscope.machine_code import disassembly, tools
from kscope.readers import READERS
from kscope.trace import Trace, decode

Target = Callable[[bytes, Path], None]

EXPORTS = (".json", ".pftrace", ".csv", ".folded", ".hatchet", ".speedscope.json", ".html")
READING = (
    "summary",
    "gaps",
    "overlap",
    "path",
    "occupancy",
    "compare",
    "assert",
    "trust overhead",
    "trust perturb",
    "trust ipc",
    "export",
)
"""Commands that read files and write none but their -o."""
NAMES = ("load", ("dot", "f32"), "tile")
FILES = ("a.kscope", "b.kscope", "hist.csv", "log.txt", "trace.json", "code.sass")
"""Files in the folder of a command line of arguments()."""


def capture(data: bytes, folder: Path) -> None:
    """A .kscope file of arbitrary bytes."""
    path = folder / "x.kscope"
    path.write_bytes(data)
    with suppress(KscopeError):
        use(decode(load_capture(path)), folder)


def head(data: bytes, folder: Path) -> None:
    """Metadata (JSON up to the first NUL) and the bytes after it, in a file with a valid checksum."""
    text, _, rest = data.partition(b"\0")
    capture(with_head(text) + rest, folder)


def words(data: bytes, folder: Path) -> None:
    """Device words. The first byte selects whether headers get a valid check word."""
    repair, data = bool(data[:1]) and data[0] & 1, data[1:]
    lines = np.frombuffer(data[: len(data) // 64 * 64], "<u4").reshape(-1, 16).astype(np.uint32)
    if repair:
        for at in np.flatnonzero(lines[:-1, 0] >> 16 == synth.layout.MAGIC).tolist():
            lines[at, 15] = header_check(lines[at : at + 2].reshape(1, 32))[0]
    use(decode(Capture(synth.EPOCH, (synth.device(lines),), (synth.module(NAMES),))), folder)


def metadata(data: bytes, folder: Path) -> None:
    """A module's metadata from GPU memory or a cubin."""
    with suppress(KscopeError):
        found = meta.from_json(data)
        assert meta.from_json(meta.to_json(found)) == found


def histogram(data: bytes, folder: Path) -> None:
    """CUTracer's histogram joined with a capture."""
    _ipc(folder, "hist.csv", data, ["a.kscope", "--cutracer-trace", "hist.csv"])


def log(data: bytes, folder: Path) -> None:
    """CUTracer's log."""
    _ipc(
        folder,
        "log.txt",
        data,
        ["--chrome-trace", "trace.json", "--cutracer-trace", "hist.csv", "--cutracer-log", "log.txt"],
    )


def chrome(data: bytes, folder: Path) -> None:
    """A foreign Chrome trace."""
    _ipc(
        folder,
        "trace.json",
        data,
        ["--chrome-trace", "trace.json", "--cutracer-trace", "hist.csv", "--cutracer-log", "log.txt"],
    )
    _ipc(folder, "trace.json", data, ["--chrome-trace", "trace.json"])


def buffers(data: bytes, folder: Path) -> None:
    """Another profiler's buffer: the first byte selects the profiler, the second the reader's arguments."""
    if len(data) < 2:
        return
    name = tuple(name for name in READERS if name != "proton")[data[0] % (len(READERS) - 1)]
    reported: dict[str, Any] = {"units": data[1] >> 1, "compact": bool(data[1] & 1)} if name == "nuggets" else {}
    if name == "flashinfer":
        reported = {"stride": data[1] >> 1, "sm": (None, True, False)[data[1] % 3]}
    path = folder / "x.bin"
    path.write_bytes(data[2:])
    with suppress(KscopeError):
        use(READERS[name](path, ["load", "dot"], **reported), folder)


def arrays(data: bytes, folder: Path) -> None:
    """A buffer as a file of numpy's."""
    path = folder / "x.npy"
    path.write_bytes(data)
    with suppress(KscopeError):
        use(READERS["flashinfer"](path), folder)


def proton(data: bytes, folder: Path) -> None:
    """Proton's Chrome trace."""
    path = folder / "x.chrome_trace"
    path.write_bytes(data)
    with suppress(KscopeError):
        use(READERS["proton"](path), folder)


def library(data: bytes, folder: Path) -> None:
    """A cubin, fatbin or shared object: its notes, and its metadata."""
    path = folder / "x.so"
    path.write_bytes(data)
    with suppress(KscopeError):
        kscope_cuda.describe(data)
    with suppress(KscopeError):
        tools.builds(path)


def dump(data: bytes, folder: Path) -> None:
    """A core dump of a GPU."""
    path = folder / "x.core"
    path.write_bytes(data)
    with suppress(KscopeError):
        list(core_text.lines(core_verdict(path)))


def code(data: bytes, folder: Path) -> None:
    """A disassembly and cuobjdump's usage output of a kernel."""
    text = data.decode("utf-8", "replace")
    ids = {synth.layout.record_id(name, kind): name for name in ("load", "dot") for kind in (1, 2)}
    for function in disassembly.functions(text):
        disassembly.sites(function, ids)
        perturbation.build(text, text, function.name, 128, 1024)
    _ipc(folder, "code.sass", data, ["a.kscope", "--code", "code.sass"])


def condition(data: bytes, folder: Path) -> None:
    """A condition of `kscope assert`."""

    def known(name: tuple[str, ...]) -> expressions.Quantity:
        if name[0] == "load":
            return expressions.Quantity(2.5, time=True)
        if name[0] == "count":
            return expressions.Quantity(3.0)
        raise UsageError(f"{name}: not known")

    with suppress(KscopeError):
        expressions.evaluate(data.decode("utf-8", "replace"), known)


def arguments(data: bytes, folder: Path) -> None:
    """A command line of NUL-terminated arguments for a reading command. Exits with a code, never a traceback."""
    with inside(folder):
        words = [os.fsdecode(word).replace("/", "_") for word in data.split(b"\0")[:40]]
        if words[0] not in {name.split()[0] for name in READING}:
            words[:0] = READING[len(data) % len(READING)].split()
        command([word for word in words if not word.startswith("--measure")])


def recording(data: bytes, folder: Path) -> None:
    """The options of `kscope run` up to the session's options; the script is not run."""
    with suppress(KscopeError):
        given = run_options(data)
        options = Options(**{name: value for name, value in given.items() if name != "export"})
        options.subset().gate(1, 132)
        options.recording(Recording())
        options.pool_bytes()


def run_options(data: bytes) -> dict[str, Any]:
    """The options of a command line of NUL-terminated arguments of `kscope run`. Raises UsageError."""
    typed = [os.fsdecode(word) for word in data.split(b"\0")[:40]]
    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            return flags.profile_arguments(cli.parser().parse_args(["run", *typed, "script.py"]))
    except SystemExit:
        raise UsageError("refused") from None


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        capture, head, words, metadata, histogram, log, chrome, code, condition, arguments, recording, buffers,
        arrays, proton, library, dump,
    )
}  # fmt: skip


def corpus() -> list[Path]:
    """The corpus files: corpus/<target>/<description>."""
    return sorted(Path(__file__).with_name("corpus").glob("*/*"))


def use(trace: Trace, folder: Path) -> None:
    """Use a trace: print it, and export it in a format selected by its size."""
    assert len(trace) or trace.problems
    str(trace.summary())
    for question in (trace.gaps, trace.overlap, trace.occupancy):
        with suppress(KscopeError):
            str(question())
    suffix = EXPORTS[(len(trace) + len(trace.warps)) % len(EXPORTS)]
    path = folder / f"x{suffix}"
    with suppress(KscopeError):
        trace.export(path)
    path.unlink(missing_ok=True)


def with_head(text: bytes) -> bytes:
    """The beginning of a capture with this head."""
    return FIRST_LINE + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little") + text


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Change into a folder with FILES; existing ones are kept."""
    for name, content in _files().items():
        if not (folder / name).exists():
            (folder / name).write_bytes(content)
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _files() -> dict[str, bytes]:
    if not _MADE:
        records = [
            synth.Rec(name, at, at + 100, synth.Kind.SPAN_VALUE, 7) for name, at in (("load", 2000), ("dot", 2200))
        ]
        small = synth.capture(synth.slab(records), names=(("load", "i32"), ("dot", "i32")))
        event = {"name": "load", "ph": "X", "pid": "k Core0 CTA0", "tid": "warp 0", "ts": 1.0, "dur": 0.1}
        _MADE.update({
            "a.kscope": saved(small),
            "hist.csv": b"warp_id,region_id,instruction,count\n0,0,MOV,3\n0,1,FFMA,7\n0,2,FADD,9\n0,3,EXIT,1\n",
            "log.txt": b"LAUNCH - Kernel name k - kernel hash 0x1f - grid size 1,1,1 - block size 128,1,1\n",
            "trace.json": json.dumps({"traceEvents": [event]}).encode(),
            "code.sass": b"\t.section .text.matmul,\n /*0000*/ CS2R.32 R4, SR_CLOCKLO ;\n /*0010*/ EXIT ;\n",
        })  # fmt: skip
        _MADE["b.kscope"] = _MADE["a.kscope"]
    return _MADE


_MADE: dict[str, bytes] = {}


def saved(what: Capture) -> bytes:
    """The bytes of its file."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        what.save(Path(folder, "x.kscope"))
        return Path(folder, "x.kscope").read_bytes()


def _ipc(folder: Path, name: str, data: bytes, words: list[str]) -> None:
    with inside(folder):
        Path(name).write_bytes(data)
        command(["trust", "ipc", *words])
        Path(name).write_bytes(_files()[name])


def command(words: list[str]) -> int:
    """Runs it with the streams of a terminal: UTF-8, strict on stdout. Fails where it leaves without a code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=how) for how in ("strict", "backslashreplace"))
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, {"COLUMNS": "100"}):
        try:
            left = cli.main(words)
        except SystemExit as exit:
            left = exit.code if isinstance(exit.code, int) else 2
    out.flush()
    assert left in (0, 1, 2, 3), left
    return left
