"""`kscope run SCRIPT [args]`: record an unchanged program. It runs as with `python SCRIPT args`: as __main__, with its
own argv, its folder first on the path, its threads awaited, and its exit code.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..instrument.options import COMPILED
from ..instrument.selection.auto import KINDS
from ..instrument.selection.catalog import listing
from ..session import capture_path, job
from ..session.job import Job
from ..session.launcher import expanded
from ..session.profile import profile
from ..session.session import Session
from ..session.states import SURVIVE_VARIABLE, disable, dry, enable, recording
from .common import outputs, recording_flags
from .common.command_parser import Command
from .common.outputs import STRICT
from .running import launched, program, supervised

if TYPE_CHECKING:
    from ..trace import Trace


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "run", run,
        description="Runs an unchanged Python script and records its kernels that have kscope marks.",
        usage="kscope run [options] SCRIPT [args ...]\n       kscope run [options] -m MODULE [args ...]",
    )  # fmt: skip
    program.add_output(parser, "records")
    parser.add_argument(
        "--ranks", metavar="FOLDER", type=Path,
        help="under torchrun, mpirun or srun: write FOLDER/rank=0007/SCRIPT.kscope of each rank, and .parquet with "
        "pyarrow; all ranks begin together and compare clocks",
    )  # fmt: skip
    about = "with --ranks: also gather distributions of durations, a few kB per rank, for kscope ranks --sketch"
    parser.add_argument("--sketch", action="store_true", help=about)
    supervised.add(parser)
    recording_flags.add(parser)
    program.add(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises UsageError before the script starts if it cannot be recorded."""
    execute = program.of(options)
    if options.sketch and options.ranks is None:
        raise UsageError("--sketch: expected --ranks FOLDER beside it")
    if options.sketch:
        from ..merging.ranks import sketches  # loaded on first use

        sketches.empty()
    if not launched.is_launcher(options.script, options.module):
        program.take_output(options)
    if options.dry_run:
        return _dry(execute, options)
    if launched.is_launcher(options.script, options.module):
        return program.launch(execute, options)
    if supervised.is_required(options):
        return supervised.run(options)
    if options.timeout and options.survive is None and not os.environ.get(SURVIVE_VARIABLE):
        options.survive = "shm"
    typed = program.output(options) if options.ranks is None else _of_rank(options)
    path = Path(expanded(str(typed)))
    for flag, output in (("-o", path), *(("--export", file) for file in options.export or ())):
        outputs.check_distinct(flag, output, None if options.module else options.script)
    session = profile(typed, **recording_flags.profile_arguments(options))
    if options.ranks is None:
        code = program.in_session(execute, session, path, options)
    else:
        with closing(Job(options.ranks, program.note)) as made:
            code = program.in_session(partial(made.run, execute), session, path, options)
            if not code:
                _together(made, session, path, options)
    if code:
        return code
    trace = session.trace
    if trace.problems or not options.quiet:
        program.note(_report(program.saved_path(session, path), trace, _selective_flags(options)))
        for problem in trace.problems:
            program.note(problem.text)
    return STRICT if options.strict and trace.problems else 0


def _of_rank(options: argparse.Namespace) -> Path:
    """The capture of this rank in the folder of --ranks."""
    if options.output:
        raise UsageError(
            f"-o {options.output}: --ranks {options.ranks} already sets where captures go; give one of them"
        )
    stem = options.script if options.module else Path(options.script).stem
    folder = str(job.check(options.ranks)).replace("%", "%%")
    return Path(folder, f"{stem.replace('%', '%%')}{capture_path.SUFFIX}")


def _together(made: Job, session: Session, path: Path, options: argparse.Namespace) -> None:
    """Write the files of all ranks."""
    from ..session import job_files  # loaded on first use

    job_files.write(made, session.capture, session.trace, program.saved_path(session, path), sketch=options.sketch)


def _dry(execute: Callable[[], object], options: argparse.Namespace) -> int:
    """Compile the script's kernels with the selected marks, record nothing, and print the marked sites."""
    if options.output:
        raise UsageError(f"-o {options.output}: a dry run records nothing, and writes nothing")
    compiled = {name: value for name, value in recording_flags.profile_arguments(options).items() if name in COMPILED}
    if not {"auto", "mark"} & compiled.keys():
        compiled["auto"] = tuple(KINDS)
    from .running import dry_run  # imports analyses

    process = os.getpid()
    with listing() as kernels:
        enable(**compiled)
        selection = recording().selection
        try:
            with dry():
                raised = program.run_plain(execute, options)
        finally:
            disable()
    program.leave_to(process, raised)
    print(dry_run.show(kernels, selection))
    return program.exit_code(raised)


def _selective_flags(options: argparse.Namespace) -> str:
    """The typed flags that narrow the recording."""
    flags = ("strategy", "block", "warp", "sm", "kernel")
    return " ".join(f"--{name}" for name in flags if getattr(options, name) is not None)


def _report(path: Path, trace: Trace, narrowed: str) -> str:
    count, problems = len(trace.samples or ()), len(trace.problems)
    records = f"{len(trace):,} records" if len(trace) else "no records"
    if count and problems:
        records += f", {count:,} samples (kscope stalls {path})"
    elif count:
        records += f", {count:,} samples"
    if not len(trace):
        return f"{path}: {records}{narrowed and f'; {narrowed} may have excluded every kernel'}:"
    if problems:
        return f"{path}: {records}, {problems} problem{'s' * (problems > 1)}:"
    return f"{path}: {records}; kscope summary {path}" + f", kscope stalls {path}" * bool(count)
