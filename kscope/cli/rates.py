"""`kscope rates CAPTURE`: bandwidth and compute rate of regions."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..analysis import rates as analysis
from ..analysis import rates_text
from ..capture.layout import Kind, record_id
from ..capture.samples import CodeWork
from ..errors import UsageError
from ..instrument.peaks import Peaks
from ..machine_code import disassembly, tools
from ..machine_code.work import region_work
from ..marks.work import VALUE, Work, parse
from ..trace import Trace
from ..tracedata.kernel_names import of_kernels
from ..util import bounded_reading
from ..util.text import nearest
from .common import filters, json_output
from .common.command_parser import Command

_SPANS = (Kind.SPAN, Kind.SPAN_VALUE)


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "rates", rates,
        description="Achieved GB/s and TFLOP/s of each region, and what part of the GPU's peak that is. "
        "Amounts are those that marks declare with bytes= and flops=, else those of the machine code, which a capture "
        "with samples has.",
    )  # fmt: skip
    filters.add(parser)
    group = parser.add_argument_group("amounts")
    about = "of a block in one execution of a region, all its warps together; `value` for the record's value"
    for kind in ("bytes", "flops"):
        group.add_argument(
            f"--{kind}", metavar="REGION=N", action="append", default=[], help=f"{kind} {about}; may be repeated"
        )
    group.add_argument("--code", metavar="CUBIN", type=Path, help="count in this machine code")
    group.add_argument("--peaks", metavar="FILE", type=Path, help="the GPU's peaks, from kscope doctor --peaks FILE")
    json_output.add(parser)


def rates(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    trace = filters.filtered_trace(options)
    peaks = options.peaks and Peaks.from_json(bounded_reading.read_bytes(options.peaks), str(options.peaks))
    given = _given(options, trace)
    code = None if options.code is None else _of_code(trace, options.code)
    with filters.busy_bar(len(trace), "rates"):
        found = analysis.rates(trace, code, given, peaks)
    rows = [asdict(row) | {"intensity": row.intensity} for row in found.rows]
    data = asdict(found) | {"rows": rows}
    json_output.show(options, lambda: data, lambda: rates_text.text(found, top=options.top or 50), trace)
    return 0


def _given(options: argparse.Namespace, trace: Trace) -> dict[str, Work]:
    """The work given by flags, by region."""
    known = {region.name for region in trace.regions}
    found: dict[str, dict[str, object]] = {}
    for kind in ("bytes", "flops"):
        for typed in getattr(options, kind):
            region, _, amount = typed.rpartition("=")
            work = parse(f"{kind}={amount}")
            if not region or work is None:
                raise UsageError(f"--{kind} {typed}: expected REGION=N with a whole number, or REGION=value")
            if region not in known:
                raise UsageError(f"--{kind} {typed}: no region has this name{nearest(region, known)}")
            if getattr(work, kind) == VALUE and not _has_values(trace, region):
                raise UsageError(f"--{kind} {typed}: its records have no value; expected {region}=N with a number")
            found.setdefault(region, {})[kind] = getattr(work, kind)
    return {region: Work(**amounts) for region, amounts in found.items()}  # type: ignore[arg-type]  # of parse()


def _has_values(trace: Trace, region: str) -> bool:
    """True if a record of the region has a value, or none was recorded."""
    values = trace.value[trace.region_names()[trace.region] == region]
    return not len(values) or not bool(np.isnan(values).all())


def _of_code(trace: Trace, path: Path) -> dict[tuple[int, str], CodeWork]:
    code = {one.name: one for one in disassembly.functions(tools.disassembly(path))}
    builds = tools.builds(path)
    ids = {record_id(region.token, kind): region.name for region in trace.regions for kind in _SPANS}
    found: dict[tuple[int, str], CodeWork] = {}
    for name, number in zip(trace.kernels, of_kernels(trace), strict=True):
        if name in code and builds.get(name, number) == number:
            function = code[name]
            found |= {
                (number, region): work
                for region, work in region_work(function, disassembly.sites(function, ids, tools.layouts(path))).items()
            }
    if not found:
        names = ", ".join(sorted(code)) or "nothing"
        raise UsageError(f"--code {path}: has no region of this capture's kernels; it has {names}, or another build")
    return found
