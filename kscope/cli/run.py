"""`kscope run SCRIPT [args]`: record an unchanged program.

The program runs as `python SCRIPT args` runs it: as __main__, with its own argv, its folder first on the path, its
threads awaited, and its exit code. A child that it forks runs likewise and is not recorded.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from ..errors import UsageError
from ..instrument.options import COMPILED
from ..instrument.selection.auto import KINDS
from ..instrument.selection.catalog import listing
from ..session import capture_path
from ..session.launcher import expanded, place
from ..session.profile import profile
from ..session.session import Session
from ..session.states import disable, enable, recording, taken
from . import launched, outputs, script_threads
from . import options as flags
from .command import Command
from .outputs import STRICT

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell reports it."""


def add(command: Command) -> None:
    """Add the command to the parser."""
    parser = command(
        "run", run, "record a script with annotated kernels",
        description="Runs an unchanged Python script and records its kernels that have kscope marks.",
        usage="kscope run [options] SCRIPT [args ...]\n       kscope run [options] -m MODULE [args ...]",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"the capture to write (default: SCRIPT{capture_path.SUFFIX}, here)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing unless there are problems")
    parser.add_argument("--strict", action="store_true", help=f"exit code {STRICT} if records were lost or doubtful")
    flags.add(parser)
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or with -m a module")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="args", help="the script's arguments")


def run(options: argparse.Namespace) -> int:
    """Runs the command. Raises UsageError, before the script starts, for what cannot work."""
    execute = _module(options.script) if options.module else _script(options.script)
    if options.dry_run:
        return _dry(execute, options)
    if launched.is_launcher(options.script, options.module):
        return _launch(execute, options)
    typed, process = _output(options), os.getpid()
    path = Path(expanded(str(typed)))
    for flag, output in (("-o", path), *(("--export", file) for file in options.export or ())):
        outputs.apart(flag, output, None if options.module else options.script)
    session = profile(typed, **flags.given(options))
    raised: list[BaseException] = []
    try:
        with _as_interpreter(options), session:
            _watch(execute, raised)
    except BaseException as error:
        if error not in raised:  # raised by the session: show the script's error too
            for one in raised:
                _show(one)
            if not isinstance(error, KeyboardInterrupt):
                raise
            _note(f"interrupted; {_kept(session, path) or 'nothing was saved'}")
            return INTERRUPTED
    _leave_to(process, raised)
    if code := _ended(raised, _kept(session, path)):
        return code
    trace = session.trace
    if trace.problems or not options.quiet:
        _note(_report(_saved(session, path), len(trace), len(trace.problems), _selective_flags(options)))
        for problem in trace.problems:
            _note(problem.text)
    return STRICT if options.strict and trace.problems else 0


def _saved(session: Session, path: Path) -> Path:
    """The written file, as typed by the user."""
    return path if session.saved == session.path else capture_path.failed(path)


def _kept(session: Session, path: Path) -> str:
    return f"the recording up to then is in {_saved(session, path)}" if session.saved else ""


def _launch(execute: Callable[[], object], options: argparse.Namespace) -> int:
    """Run a launcher, whose children record."""
    raised: list[BaseException] = []
    before = dict(os.environ)
    os.environ.update(launched.environment(options.typed, options.args))
    try:
        with _as_interpreter(options):
            _watch(execute, raised)
    except BaseException as error:
        if error not in raised:
            raise
    finally:
        os.environ.clear()
        os.environ.update(before)
    return _ended(raised)


def _dry(execute: Callable[[], object], options: argparse.Namespace) -> int:
    """Compile the script's kernels with the selected marks, record nothing, and print the marked sites."""
    if options.output:
        raise UsageError(f"-o {options.output}: a dry run records nothing, and writes nothing")
    compiled = {name: value for name, value in flags.given(options).items() if name in COMPILED}
    if not {"auto", "mark"} & compiled.keys():
        compiled["auto"] = tuple(KINDS)
    from . import sites  # imports analyses

    raised: list[BaseException] = []
    process = os.getpid()
    with listing() as kernels:
        enable(**compiled)
        selection = recording().selection
        try:
            with _as_interpreter(options), taken():
                _watch(execute, raised)
        except BaseException as error:
            if error not in raised:
                raise
        finally:
            disable()
    _leave_to(process, raised)
    print(sites.show(kernels, selection))
    return _ended(raised)


def _leave_to(process: int, raised: list[BaseException]) -> None:
    """Exit a child that the script forked, as Python does: its parent reports the recording."""
    if os.getpid() != process:
        sys.exit(_ended(raised))


def _ended(raised: list[BaseException], kept: str = "") -> int:
    """The exit code of a script that ended; shows its error as the interpreter does."""
    error = raised[0] if raised else SystemExit()
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return 0
        if kept:
            _note(kept)
        raise error
    _show(error)
    if kept and not hasattr(error, "add_note"):  # before Python 3.11 errors carry no notes
        _note(kept)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _show(error: BaseException) -> None:
    """Show an uncaught error as the interpreter does, without kscope's frames."""
    shown = error.with_traceback(_script_frames(error.__traceback__))
    sys.excepthook(type(shown), shown, shown.__traceback__)


def _note(text: str) -> None:
    print(f"kscope: {text}\n", end="", file=sys.stderr)  # one write: unbuffered lines of ranks would mix


def _selective_flags(options: argparse.Namespace) -> str:
    """The typed flags that narrow the recording."""
    flags = ("strategy", "block", "warp", "sm", "kernel")
    return " ".join(f"--{name}" for name in flags if getattr(options, name) is not None)


def _report(path: Path, records: int, problems: int, narrowed: str) -> str:
    if not records:
        return f"{path}: no records{narrowed and f'; {narrowed} may have excluded every kernel'}:"
    more = f", {problems} problem{'s' * (problems > 1)}:" if problems else f"; kscope summary {path}"
    return f"{path}: {records:,} records{more}"


def _output(options: argparse.Namespace) -> Path:
    stem = options.script if options.module else Path(options.script).stem
    rank = ".rank%r" if place().world > 1 else ""
    path = Path(options.output or f"{stem.replace('%', '%%')}{rank}{capture_path.SUFFIX}")
    if path.suffix != capture_path.SUFFIX:
        raise UsageError(
            f"-o {path}: run writes a capture, so the name must end in {capture_path.SUFFIX}; "
            "kscope export converts it to other formats"
        )
    return path


def _script(name: str) -> Callable[[], object]:
    path = Path(name)
    if not path.exists():
        raise UsageError(f"{name}: no such file; a module is run with kscope run -m {name}")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{name}: a folder without a __main__.py cannot be run")
    return lambda: runpy.run_path(name, run_name="__main__")


def _module(name: str) -> Callable[[], object]:
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    finally:
        sys.path.pop(0)
    if found is None:
        raise UsageError(f"-m {name}: no such module; a file is run with kscope run {name}")
    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)


@contextmanager
def _as_interpreter(options: argparse.Namespace) -> Generator[None]:
    """sys.argv and sys.path as the script's own, for as long as it runs."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [options.script, *options.args]
    sys.path.insert(0, os.getcwd() if options.module else str(Path(options.script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _watch(execute: Callable[[], object], raised: list[BaseException]) -> None:
    """Runs the script, and notes what it raised: an error of the script, not of kscope."""
    try:
        script_threads.to_the_end(execute)
    except BaseException as error:
        raised.append(error)
        raise


def _script_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on; all of it if the script never began (a syntax error)."""
    start = trace
    ours = (__file__, script_threads.__file__, runpy.__file__, "<frozen runpy>")
    while start is not None and start.tb_frame.f_code.co_filename in ours:
        start = start.tb_next
    return start
