"""The program of a command line, run as the interpreter runs it: `python SCRIPT args` or `python -m MODULE args`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import pkgutil
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from ...errors import UsageError
from ...session import capture_path
from ...session.launcher import place
from ...session.session import Session
from ...util.text import nearest
from ..common.outputs import STRICT
from . import launched, script_threads
from .launched import is_launcher

_OUTPUT = ("-o", "--output")
INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell reports it."""


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    """Add -o, -q and --strict to a command that records `what`."""
    about = f"the capture to write (default: SCRIPT{capture_path.SUFFIX}, here); also after SCRIPT"
    parser.add_argument(*_OUTPUT, metavar="FILE", help=about)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing unless there are problems")
    parser.add_argument("--strict", action="store_true", help=f"exit code {STRICT} if {what} were lost or doubtful")


def add(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add SCRIPT, its arguments and -m, after all other flags. also: what SCRIPT may be besides, for its help."""
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help=f"a Python file, or with -m a module{also}")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="args", help="the script's arguments")


def take_output(options: argparse.Namespace) -> None:
    """Take `-o FILE.kscope` from behind the script, where it is easily typed, if the command has no other output.

    Behind -- it is the script's own.
    """
    if options.output is not None or "--" in options.typed[: len(options.typed) - len(options.args)]:
        return
    args: list[str] = options.args
    for at, word in enumerate(args):
        if word == "--":
            return
        flag, joined, value = word.partition("=")
        length = 1 if joined else 2
        if flag in (("--output",) if joined else _OUTPUT):
            value = value if joined else "".join(args[at + 1 : at + 2])
            if value.endswith(capture_path.SUFFIX):
                options.output, options.args = value, args[:at] + args[at + length :]
                return


def of(options: argparse.Namespace) -> Callable[[], object]:
    """Runs the program of a command line. Raises UsageError if there is none of that name."""
    return module(options.script) if options.module else script(options.script)


def in_session(execute: Callable[[], object], session: Session, path: Path, options: argparse.Namespace) -> int:
    """Run the program while a session records.

    Args:
        execute: runs it.
        session: the session, not begun.
        path: of the capture, as the user typed it.
        options: the command line.

    Returns:
        The exit code; 0 if the program and the session ended normally.
    """
    raised: list[BaseException] = []
    process = os.getpid()
    try:
        with as_interpreter(options), session:
            watch(execute, raised)
    except BaseException as error:
        if error not in raised:  # raised by the session: show the script's error too
            for one in raised:
                show(one)
            if not isinstance(error, KeyboardInterrupt):
                raise
            note(f"interrupted; {_kept(session, path) or 'nothing was saved'}")
            return INTERRUPTED
    leave_to(process, raised)
    return exit_code(raised, _kept(session, path))


def launch(execute: Callable[[], object], options: argparse.Namespace) -> int:
    """Run a launcher, whose children record."""
    before = dict(os.environ)
    os.environ.update(launched.environment(options.typed, options.args))
    try:
        return exit_code(run_plain(execute, options))
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_plain(execute: Callable[[], object], options: argparse.Namespace) -> list[BaseException]:
    """Run the program without a session; returns what it raised."""
    raised: list[BaseException] = []
    try:
        with as_interpreter(options):
            watch(execute, raised)
    except BaseException as error:
        if error not in raised:
            raise
    return raised


def saved_path(session: Session, path: Path) -> Path:
    """The written file, as typed by the user."""
    return path if session.saved == session.path else capture_path.failed_path(path)


def _kept(session: Session, path: Path) -> str:
    return f"the recording up to then is in {saved_path(session, path)}" if session.saved else ""


def script(name: str) -> Callable[[], object]:
    """Runs a file, or a launcher that is on the PATH, such as torchrun. Raises UsageError if there is none."""
    path = Path(name)
    if not path.exists() and is_launcher(name, module=False) and (found := shutil.which(name)):
        path = Path(found)
    if not path.exists():
        raise UsageError(f"{name}: no such file{_instead_of(path)}")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{name}: a folder without a __main__.py cannot be run")
    return partial(_run, path.absolute())


def _run(path: Path) -> None:
    """Run a file as __main__. runpy.run_path() would replace sys.argv[0], which is the name as typed."""
    if path.suffix == ".pyc" or pkgutil.get_importer(str(path)) is not None:  # a folder, or a zip file
        runpy.run_path(str(path), run_name="__main__")
        return
    loader = SourceFileLoader("__main__", str(path))
    code = compile(loader.get_data(str(path)), str(path), "exec", dont_inherit=True)
    module, before = ModuleType("__main__"), sys.modules["__main__"]
    vars(module).update(__file__=str(path), __loader__=loader, __cached__=None)
    sys.modules["__main__"] = module
    try:
        exec(code, vars(module))
    finally:
        sys.modules["__main__"] = before


def _instead_of(path: Path) -> str:
    """What to type instead of a file that does not exist."""
    name = path.name
    if re.fullmatch(r"python[\d.]*", name):
        return "; leave out the interpreter: kscope run SCRIPT"
    if is_launcher(name, module=False):
        return ", and no such launcher on the PATH"
    try:
        scripts = sorted(str(one) for one in path.parent.glob("*.py"))
    except OSError:
        scripts = []
    if hint := nearest(str(path), scripts):
        return hint
    return f"; for a module: kscope run -m {name}" if name.isidentifier() else ""


def module(name: str) -> Callable[[], object]:
    """Runs a module. Raises UsageError if there is none."""
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    finally:
        sys.path.pop(0)
    if found is None:
        raise UsageError(f"-m {name}: no such module{'; for a file leave out -m' * Path(name).exists()}")
    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)


def output(options: argparse.Namespace) -> Path:
    """The capture to write, with %r where each rank writes its own. Raises UsageError for other files."""
    stem = options.script if options.module else Path(options.script).stem
    rank = ".rank%r" if place().world > 1 else ""
    path = Path(options.output or f"{stem.replace('%', '%%')}{rank}{capture_path.SUFFIX}")
    if path.suffix != capture_path.SUFFIX:
        raise UsageError(
            f"-o {path}: the command writes a capture, so the name must end in {capture_path.SUFFIX}; "
            "kscope export converts it to other formats"
        )
    return path


@contextmanager
def as_interpreter(options: argparse.Namespace) -> Generator[None]:
    """sys.argv and sys.path as the script's own, for as long as it runs."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [options.script, *options.args]
    sys.path.insert(0, os.getcwd() if options.module else str(Path(options.script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def watch(execute: Callable[[], object], raised: list[BaseException]) -> None:
    """Runs the script, and notes what it raised: an error of the script, not of kscope."""
    try:
        script_threads.to_the_end(execute)
    except BaseException as error:
        raised.append(error)
        raise


def leave_to(process: int, raised: list[BaseException]) -> None:
    """In a child that the script forked, exit as Python does: the parent reports the recording."""
    if os.getpid() != process:
        sys.exit(exit_code(raised))


def exit_code(raised: list[BaseException], kept: str = "") -> int:
    """The exit code of a script that ended; shows its error as the interpreter does."""
    error = raised[0] if raised else SystemExit()
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return 0
        if kept:
            note(kept)
        raise error
    show(error)
    if kept and not hasattr(error, "add_note"):  # before Python 3.11 errors carry no notes
        note(kept)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def show(error: BaseException) -> None:
    """Show an uncaught error as the interpreter does, without kscope's frames."""
    shown = error.with_traceback(script_frames(error.__traceback__))
    sys.excepthook(type(shown), shown, shown.__traceback__)


def note(text: str) -> None:
    """Print a line of kscope's to stderr."""
    print(f"kscope: {text}\n", end="", file=sys.stderr)  # one write: unbuffered lines of ranks would mix


def script_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on; all of it if the script never began (a syntax error)."""
    start = trace
    package, others = Path(__file__).parents[2], (runpy.__file__, "<frozen runpy>")
    while start is not None:
        file = start.tb_frame.f_code.co_filename
        if file not in others and package not in Path(file).parents:
            break
        start = start.tb_next
    return start
