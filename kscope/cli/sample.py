"""`kscope sample SCRIPT [args]`: sample every kernel of an unchanged program, marked or not, including kernels of
libraries.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..instrument.options import OPTIONS
from ..session.launcher import expanded
from ..session.sample_session import sample as sampled
from ..util.text import counted
from .common import outputs, recording_flags
from .common.command_parser import Command
from .common.outputs import STRICT
from .running import launched, program


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "sample", sample,
        description="Runs an unchanged Python script and samples where the warps of all its kernels wait, and why.",
        usage="kscope sample [options] SCRIPT [args ...]\n       kscope sample [options] -m MODULE [args ...]",
    )  # fmt: skip
    program.add_output(parser, "samples")
    about = {option.name: option.metadata for option in OPTIONS}
    parser.add_argument("--period", metavar=about["period"]["metavar"], help=about["period"]["help"])
    parser.add_argument("--kernel", metavar="GLOB", action="append", help="kernels to keep, by name: 'attn_*'")
    named = "keep these source lines as a region in the capture, in kernels without marks; may be repeated"
    parser.add_argument("--mark", metavar=about["mark"]["metavar"], action="append", default=[], help=named)
    program.add(parser)


def sample(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises UsageError before the script starts if it cannot be sampled."""
    execute = program.of(options)
    if launched.is_launcher(options.script, options.module):
        return program.launch(execute, options)
    program.take_output(options)
    typed = program.output(options)
    path = Path(expanded(str(typed)))
    outputs.check_distinct("-o", path, None if options.module else options.script)
    period = None if options.period is None else recording_flags.period(options.period)
    session = sampled(typed, period=period, kernel=options.kernel, mark=options.mark)
    if code := program.in_session(execute, session, path, options):
        return code
    capture = session.capture
    if capture.problems or not options.quiet:
        found = capture.samples
        functions = len({int(one) for one in found.rows["function"]}) if found is not None else 0
        count = 0 if found is None else len(found)
        more = f"; kscope stalls {path}" if count else ""
        program.note(f"{program.saved_path(session, path)}: {count:,} samples of {counted(functions, 'kernel')}{more}")
        for problem in capture.problems:
            program.note(problem.text)
    return STRICT if options.strict and capture.problems else 0
