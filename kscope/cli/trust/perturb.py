"""`kscope trust perturb SCRIPT` and `kscope trust perturb OFF ON`: how marks change a kernel."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...analysis.trust.perturbation import Perturbation, perturbation
from ...errors import UsageError
from ...util.terminal import cut, grid, terminal_width, time_text, wrapped
from ..common import filters, json_output, recording_flags
from ..common.command_parser import Command
from ..running import program
from .perturbed_program import perturbed, within

NOTHING = 1
"""Exit code if no kernel of the script could be compared."""
_WITHIN = "--into"


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "perturb", perturb,
        description="Runs a script without marks and with them, under Nsight Compute where it is installed, and"
        " compares its kernels. Or compares two cubins of a kernel, or what nvdisasm and cuobjdump print"
        " of them.",
        usage="kscope trust perturb [options] SCRIPT [args ...]\n"
        "       kscope trust perturb [options] -m MODULE [args ...]\n"
        "       kscope trust perturb [options] OFF ON",
    )  # fmt: skip
    _compare(parser)
    recording_flags.add(parser)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the capture and the kernels' builds there")
    parser.add_argument(_WITHIN, type=Path, help=argparse.SUPPRESS)  # set by perturbed_program.py
    program.add(parser, "; or a cubin without marks")


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", metavar="N", type=int, help="per block, for occupancy, if the launch is unknown")
    parser.add_argument("--shared", metavar="BYTES", type=int, help="dynamic shared memory per block, likewise (0)")
    parser.add_argument("--times", metavar="OFF,ON", help="the kernel's time, measured elsewhere: 27.6us,31us")
    json_output.add(parser)


def perturb(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    command = [*(["-m"] if options.module else []), options.script, *options.args]
    if options.into is not None:
        return within(options.into, [*_typed(options), *command])
    if not options.module and not _python(options.script):
        return _cubins(options)
    if options.times is not None or options.dry_run:
        raise UsageError("--times and --dry-run apply to cubins, not scripts")
    program.of(options)  # an error if there is none
    report = perturbed(
        options.script, options.args, module=options.module, flags=_typed(options), kernels=options.kernel or (),
        threads=options.threads, dynamic_shared=options.shared, keep=options.keep,
    )  # fmt: skip
    code = 0 if report.kernels else NOTHING
    if options.json:
        print(
            json_output.answer(
                options, {"kernels": [_dict(one) for one in report.kernels], "problems": report.problems}
            )
        )
        return code
    parts = ["\n".join(_report(one, terminal_width())) for one in report.kernels] or ["no kernel was compared"]
    problems = [line for one in report.problems for line in wrapped(f"! {one}", terminal_width())]
    print("\n\n".join(parts + (["\n".join(problems)] if problems else [])))
    return code


def _python(name: str) -> bool:
    return Path(name).suffix == ".py" or Path(name).is_dir()


def _cubins(options: argparse.Namespace) -> int:
    """Compare two builds; flags may follow them."""
    grammar = argparse.ArgumentParser(
        prog="kscope trust perturb", usage="kscope trust perturb [options] OFF ON", allow_abbrev=False
    )
    _compare(grammar)
    grammar.add_argument("--kernel", metavar="NAME", action="append", help="if the cubins have several kernels")
    grammar.add_argument("off", metavar="OFF", type=Path)
    grammar.add_argument("on", metavar="ON", type=Path)
    grammar.parse_args([options.script, *options.args], options)
    kernels: list[str] = options.kernel or []
    times = None
    if len(kernels) > 1:
        raise UsageError(f"--kernel {' --kernel '.join(kernels)}: expected one kernel of the cubins")
    if options.times is not None:
        parts = options.times.split(",")
        if len(parts) != 2:
            raise UsageError(f"--times {options.times}: expected two times, such as 27.6us,31us")
        times = filters.nanoseconds("--times", parts[0]), filters.nanoseconds("--times", parts[1])
    found = perturbation(
        options.off, options.on, kernel=kernels[0] if kernels else None, threads=options.threads,
        dynamic_shared=options.shared or 0, times_ns=times,
    )  # fmt: skip
    json_output.show(options, lambda: _dict(found), lambda: "\n".join(_report(found, terminal_width())))
    return 0


def _dict(found: Perturbation) -> dict[str, Any]:
    return {**asdict(found), "slowdown": found.slowdown, "warnings": found.warnings}


class _Flags:
    """Collects the flags of recording_flags.py: (flag, attribute)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def add_argument_group(self, title: str) -> _Flags:
        return self

    def add_argument(self, flag: str, *, dest: str | None = None, **rest: object) -> None:
        self.found.append((flag, dest or flag.lstrip("-").replace("-", "_")))


def _typed(options: argparse.Namespace) -> list[str]:
    """The given flags of `kscope run`, without --kernel."""
    flags, words = _Flags(), list[str]()
    recording_flags.add(flags)  # type: ignore[arg-type]  # what it needs of a parser
    for flag, attribute in flags.found:
        value = getattr(options, attribute)
        if attribute == "kernel" and options.into is None:
            continue
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
    return words


def _report(found: Perturbation, width: int) -> list[str]:
    off, on = found.off, found.on
    rows: list[tuple[str, int | None, int | None]] = [
        ("registers", off.registers, on.registers),
        ("stack, bytes", off.stack_bytes, on.stack_bytes),
        ("spill instructions", off.spill_instructions, on.spill_instructions),
        ("static shared, bytes", off.shared_bytes, on.shared_bytes),
        ("dynamic shared, bytes", found.dynamic_shared or None, found.dynamic_shared),
        ("warps that fit on an SM", off.warps_per_sm, on.warps_per_sm),
        ("instructions", off.instructions, on.instructions),
        ("executed in a launch", found.off_executed, found.on_executed),
    ]
    known = [(name, before, after) for name, before, after in rows if before is not None and after is not None]
    columns = {
        "off": [f"{before:,}" for _, before, _ in known],
        "on": [f"{after:,}" for _, _, after in known],
        "change": [f"{after - before:+,}" if after != before else "" for _, before, after in known],
    }
    names = [name for name, _, _ in known]
    if found.off_ns is not None and found.on_ns is not None and found.slowdown is not None:
        names.append("kernel time")
        for column, text in zip(("off", "on"), (found.off_ns, found.on_ns), strict=True):
            columns[column].append(time_text(text))
        columns["change"].append(f"{found.slowdown:+.1%}")
    block = "" if found.threads is None else f", blocks of {found.threads} threads"
    lines = [cut(f"{on.kernel}, sm_{on.arch}{block}", width), *grid("", names, columns, width)]
    return [*lines, *(line for one in found.warnings for line in wrapped(f"! {one}", width))]
