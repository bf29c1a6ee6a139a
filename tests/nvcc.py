"""Compiles sources with kscope.cuh through nvcc, for tests of the header."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch
from ptxvm.machine import run as run_threads

import kscope
from kscope.capture import layout
from kscope.capture.layout import Kind
from kscope.capture.model import ModuleMeta
from kscope_cuda.binary_metadata import describe

HEADER = "#include <kscope.cuh>\n"
IN_PLACE, MARKS, PLAIN = "-DKSCOPE=1", "-DKSCOPE_MARKS=1", "-DKSCOPE=0"
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")

STORE = Path(__file__).resolve().parents[1] / ".cache" / "nvcc"
_KINDS = {"so": ("-shared", "-Xcompiler", "-fPIC"), "o": ("-dc",)}


def _made(source: str, arguments: tuple[str, ...], to: str) -> tuple[bytes | None, str]:
    """The file that nvcc makes, None if it refuses the source, and its messages; kept on disk for all workers."""
    header = Path(kscope.cuda_include(), "kscope.cuh").read_text()
    key = sha256("\0".join([_version(), header, source, *arguments, to]).encode()).hexdigest()
    kept = STORE / key
    if not kept.exists():
        STORE.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(pickle.dumps(_compile(source, arguments, to)))
        part.replace(kept)
    made: tuple[bytes | None, str] = pickle.loads(kept.read_bytes())
    return made


@cache
def _version() -> str:
    return subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout


def _compile(source: str, arguments: tuple[str, ...], to: str) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory(prefix="kscope-") as folder:
        Path(folder, "unit.cu").write_text(source)
        arch = () if any("-arch" in argument or "-gencode" in argument for argument in arguments) else ("-arch=sm_90",)
        command = ["nvcc", *_KINDS.get(to, (f"-{to}",)), *arch, f"-I{kscope.cuda_include()}", *arguments]
        command += ["unit.cu", "-o", f"unit.{to}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        made = Path(folder, f"unit.{to}").read_bytes() if done.returncode == 0 else None
    return made, done.stdout + done.stderr


def compiled(source: str, *arguments: str, to: str = "ptx") -> bytes:
    """The file that nvcc makes of a source, without a warning. to: its suffix; so = a shared library."""
    made, message = _made(source, ("-Werror", "all-warnings", *arguments), to)
    assert made is not None, message
    return made


def refused(source: str, *arguments: str, to: str = "cubin") -> str:
    """The compiler's message for a source that it must refuse."""
    made, message = _made(source, arguments, to)
    assert made is None, "it was compiled"
    return message


def kernel(body: str, *, before: str = "", options: str = "") -> str:
    """A source with one kernel `k`, preceded by `before`."""
    head = f'{HEADER}{before}\nextern "C" __global__ void k(int* out, int n) {{'
    return f"{head}\n  KSCOPE_KERNEL({options});\n{body}\n}}\n"


def without_macros(source: str) -> str:
    """The source without kscope's marks; lines keep their numbers."""
    return re.sub(r"KSCOPE_\w+\([^;]*\);", "", source.replace("#include <kscope.cuh>", ""))


def recorded(
    ptx: bytes, n: int = 0, *, threads: int = 32, metas: tuple[ModuleMeta, ...] = (), name: str = "k"
) -> list[list[tuple[str, str, int]]]:
    """The records of each lane of one block of a kernel: (region, kind, value), lanes in thread order. metas: the
    metadata, if the text has no notes."""
    metas = metas or describe(ptx)
    regions = {layout.name_hash(region.name): region.name for meta in metas for region in meta.regions}
    host = launched(ptx, n, threads, name)
    return [
        [(regions[int(r["id"]) >> 4], Kind(int(r["id"]) & 15).name, int(r["value"])) for r in slab.records()]
        for slab in sorted(host.slabs(), key=lambda slab: slab.key)
    ]


def launched(ptx: bytes, n: int = 0, threads: int = 32, name: str = "k") -> Host:
    """The device's memory after a launch of one block of a kernel."""
    host = Host(Pool((Ring(12), Ring(12))))
    program = host.load(ptx.decode())
    out = host.memory.allocate("out", 256)
    launch = Launch(program, host.memory, name, Grid((1, 1, 1), (threads, 1, 1)), [out.base, n], [(0, 0, 0)])
    run_threads(launch.start(), "random", 1)
    return host
