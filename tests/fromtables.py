"""The tables of docs/from: their code is run, or looked up. Each row is | theirs | here | note |.

Backquoted code in the middle column is

    kscope export run.kscope ...       a command: run in a folder with the files below; it must exit with 0
    tests/unit/x.py::test_y            a test: it must exist
    KSCOPE_REGION                      a macro of the CUDA header: it must be defined there
    with kscope.region("load"): ...    code of a kernel: run in a simulated kernel, and its marks must be recorded
    trace.export("x.json")             anything else is Python of the host, and is run

A row that begins with "not offered" must explain why in its note. A command whose note contains "needs a GPU" (or
another missing requirement) is parsed and not run.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foreign
import numpy as np
from foreign import Group

import kscope
import kscope_sim
from kscope import cli, readers
from kscope.analysis import gaps, histogram, imbalance, occupancy, overlap
from kscope.analysis.trust import cutracer, overhead
from kscope.tracedata import transforms

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "from").glob("*.md"))
HEADER = ROOT / "frontends" / "kscope_cuda" / "include" / "kscope.cuh"
NOT_OFFERED, NEEDS = "not offered", "needs a"
KERNEL_WORDS = {
    "region", "scope", "instant", "counter",
    "clock", "clock64", "globaltimer", "smid", "warp_id", "lane_id", "block_id",
}  # fmt: skip
_MARKS = KERNEL_WORDS & {"region", "scope", "instant", "counter"}
SCRIPT = """import kscope, kscope_sim

def kernel(warp):
    for k in range(2):
        with kscope.region("load", value=k):
            warp.work(700)
        with kscope.region("dot", value=k):
            warp.work(400)

kscope_sim.launch(kernel, grid=4, block=128)
"""


@dataclass(frozen=True)
class Row:
    """A row of a table: its page and line, its cells."""

    page: str
    line: int
    theirs: str
    here: str
    note: str

    @property
    def code(self) -> list[str]:
        """The backquoted code of the middle column."""
        return [found.replace("\\|", "|") for found in re.findall(r"`([^`]+)`", self.here)]


def rows(page: Path) -> list[Row]:
    """The rows of all three-column tables whose middle column is called kscope."""
    found, inside = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 3:
            inside = False
        elif cells[1] == "kscope":
            inside = True
        elif inside and not set(cells[0]) <= set("-: "):
            found.append(Row(page.stem, number, *cells))
    return found


def check(row: Row) -> None:
    """Run or look up the row's code. Raises AssertionError if something is missing, and any error of the code."""
    if row.here.startswith(NOT_OFFERED):
        assert len(row.note) > 20, f"{row.page}:{row.line}: not offered, and no reason"
        return
    assert row.code, f"{row.page}:{row.line}: nothing to run, and not marked as {NOT_OFFERED}"
    for code in row.code:
        one(code, parse_only=NEEDS in row.note)


def one(code: str, *, parse_only: bool = False) -> None:
    """Runs or looks up one piece."""
    if code.startswith("tests/"):
        path, _, name = code.partition("::")
        assert re.search(rf"^def {re.escape(name)}\(", (ROOT / path).read_text(), re.M), f"no test {code}"
    elif code.startswith("KSCOPE_"):
        macro = re.match(r"\w+", code)
        assert macro and re.search(rf"#\s*define {macro[0]}\b", HEADER.read_text()), f"no macro {code}"
    elif code.startswith("kscope ") or code == "kscope":
        argv = shlex.split(code)[1:]
        parsed = cli.parser(argv[0] if argv else "").parse_args(argv)
        assert callable(parsed.command)
        assert parse_only or cli.main(argv) == 0, f"{code} did not end with 0"
    else:
        python(code)


def python(code: str) -> None:
    """Run a line of Python, inside a kernel if it uses kernel functions."""
    tree = ast.parse(code)
    words = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kscope"
    }
    if not words & KERNEL_WORDS or words - KERNEL_WORDS & {"profile"}:
        exec(compile(tree, "docs/from", "exec"), host())
        return
    program = compile(tree, "docs/from", "exec")

    def kernel(warp: kscope_sim.Warp) -> None:
        names = {"kscope": kscope, "warp": warp, "k": 1, "tag": 2, "x": 3, "leader": warp.index == 0}
        exec(program, names)
        warp.work(60_000)  # long enough for the clock's rate to be known

    with kscope.profile() as prof:
        kscope_sim.launch(kernel, grid=2, block=64)
    assert len(prof.trace) or not words & _MARKS, f"{code!r} recorded nothing"
    assert not [problem for problem in prof.trace.problems if problem.kind != "blank"], prof.trace.problems


def train(step: int = 0) -> None:
    """A program that launches a kernel."""
    exec(compile(SCRIPT, "script.py", "exec"), {"__name__": "script"})


def host() -> dict[str, Any]:
    """Names that a line of the host may use."""
    trace = kscope.load("run.kscope")
    return {
        "kscope": kscope, "np": np, "trace": trace, "capture": kscope.load_capture("run.kscope"),
        "train": train, "step": 0,
        "transforms": transforms, "readers": readers, "overhead": overhead, "occupancy": occupancy, "gaps": gaps,
        "overlap": overlap, "cutracer": cutracer, "histogram": histogram, "imbalance": imbalance, "Path": Path,
        "buffer": np.load("buffer.npy"), "names": ["load", "dot", "store"],
    }  # fmt: skip


def files(folder: Path) -> None:
    """The files that lines may read, in the current folder."""
    (folder / "script.py").write_text(SCRIPT)
    with kscope.profile(folder / "run.kscope"):
        train()
    for name in ("before", "after"):
        shutil.copy(folder / "run.kscope", folder / f"{name}.kscope")
    spans = [(0, 1000, 1400), (1, 1500, 1700), (2, 1800, 1900)]
    groups = [Group.of(spans, block=block, group=group, sm=block % 2) for block in range(3) for group in range(2)]
    np.save(folder / "buffer.npy", foreign.flashinfer(groups, 3, 2))
    np.save(folder / "mirage.npy", foreign.mirage(groups, 3, 2))
    np.save(folder / "slots.npy", foreign.triton_distributed(groups, 3, 2))
    (folder / "sm.bin").write_bytes(foreign.sm_profiler(groups, 3, 2))
    events = [[(1 << 40, 50, 0, 0), ((1 << 40) + 60, 20, 1, 1)]] * 3
    np.save(folder / "nuggets.npy", foreign.nuggets(events, 8))
    np.save(folder / "first.npy", foreign.nuggets(events[:1], 8))
    np.save(folder / "compact.npy", foreign.nuggets_compact(events, 8, [1 << 40] * 3))
    proton = [("matmul", block, block, 1000, 9000, [(0, "load", 10, 300), (0, "dot", 400, 200)]) for block in range(3)]
    (folder / "fa.chrome_trace").write_bytes(foreign.proton(proton))
    data = ROOT / "tests" / "data" / "ipc"
    for name in ("capture.kscope", "chrome.json", "cutracer.log"):
        shutil.copy(data / name, folder / name)
    shutil.copy(data / "kernel_7fa21c3_add_kernel_hist.csv", folder / "kernel_7fa21c3_add_kernel_hist.csv")
    shutil.copy(data / "kernel_abc_matmul_hist.csv", folder / "kernel_abc_matmul_hist.csv")
