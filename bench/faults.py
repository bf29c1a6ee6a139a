"""Seeded faults: how many are explained by region, value, block and warp, by language and kind of fault.

    python bench/faults.py [--trials 5] [--languages triton cupy ...] [--faults arrive trap ...] [--survive shm]
                           [--seconds 440] [--at-once 8] [--json FILE] [--simulator] [--python cute=PYTHON ...]

A trial is a process (faults_program.py) whose kernel hangs or dies: a seed draws the block, warp and slot of the fault.
It is explained if `kscope watch` names the role, region, value and block of the culprit, while the kernel hangs and
after the process has ended; then also that it has ended, and the host's last launches. The last line is the time of a
new process of `kscope watch --once`, beside concurrent trials. Languages that are not installed are left out,
except those whose interpreter --python names; --simulator needs no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH), *(str(BENCH.parent / part) for part in ("", "frontends", "runtime"))]
from faults_program import FAULTS, HANGS, HOST, LANGUAGES, Place, place  # noqa: E402

from kscope.capture.pools.pool_reading import open_pool  # noqa: E402
from kscope.errors import KscopeError  # noqa: E402
from kscope.watching.verdict import IN, Group, Verdict, verdict  # noqa: E402

PROGRAM = BENCH / "faults_program.py"
NEEDS = {"cuda": "cuda.core", "numba": "numba.cuda", "gluon": "triton", "cute": "cutlass.cute"}
STACKED = ("triton", "gluon", "cupy", "numba", "simulator")
"""Languages whose launches the host sees, with their stack."""
_START_S, _SEEN_S, _END_S, _POLL_S = 120.0, 20.0, 60.0, 0.1


@dataclass(frozen=True)
class Trial:
    """One process.

    Attributes:
        language, fault: of LANGUAGES and FAULTS.
        seed: draws the place of the fault.
        survive: where records go.
        python: the interpreter.
    """

    language: str
    fault: str
    seed: int
    survive: str
    python: str = sys.executable

    @property
    def place(self) -> Place:
        return place(self.seed)

    def expected(self, group: Group) -> bool:
        """True if a group of warps is what the fault has made of them."""
        at = self.place
        region, role, value = {
            "arrive": ("wait_empty", "producer", at.slot + 1),
            "trap": ("check", "consumer", at.slot),
            "address": ("poke", "consumer", at.slot),
        }.get(self.fault, ("wait_full", "consumer", at.slot))
        block = at.block - 1 if role == "producer" and self.language == "triton" else at.block
        if (group.state, group.region, group.values, group.blocks) != (IN, region, (value, value), str(block)):
            return False
        if self.language == "triton":
            return True
        one_warp = region in ("check", "poke") and self.language != "gluon"  # a partition's warps go together
        return group.role == role and (not one_warp or group.warps == str(at.warp))


def wrong(trial: Trial, found: Verdict, *, gone: bool) -> str:
    """The missing facts of a verdict; empty if it explains the fault."""
    groups = [group for launch in found.launches for group in launch.groups]
    if not any(map(trial.expected, groups)):
        seen = [(one.role, one.state, one.region, one.values, one.warps, one.blocks) for one in groups[:6]]
        return f"{trial.place}: not among {seen}"
    if gone and found.running:
        return "a process that is gone seems to run"
    if trial.language in STACKED and not any(launch.stack for _, launch in found.host_launches):
        return "no launch of the host with its stack"
    return ""


def explained(trial: Trial, answers: list[float] | None = None) -> str:
    """Run a trial. Returns what was wrong, or nothing. Adds to answers how long `kscope watch` took, in seconds."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kscope-faults-") as folder:
        environment = {**os.environ, "KSCOPE_SURVIVE_FOLDER": folder, "PYTHONPATH": _paths()}
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [trial.python, str(PROGRAM), trial.language, trial.fault, str(trial.seed), trial.survive],
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            ) as program,
        ):  # fmt: skip
            try:
                found = _watched(trial, program, Path(folder), answers)
            finally:
                program.kill()
            errors.seek(0)
            return f"{found}; {errors.read()[-600:].strip()}" if found else ""


def _watched(trial: Trial, program: subprocess.Popen[str], folder: Path, answers: list[float] | None) -> str:
    assert program.stdin is not None and program.stdout is not None
    if "launched" not in program.stdout.readline():
        return "it did not launch"
    if trial.fault in HANGS:
        if found := _until_explained(trial, folder, gone=False, patience=_SEEN_S):
            return f"while it hangs: {found}"
        if answers is not None:
            answers.append(_answer_s([*folder.glob("*.pool")][-1]))
        if trial.fault in HOST:
            program.stdin.write("die\n")
            program.stdin.flush()
        else:
            program.kill()
    try:
        program.wait(_END_S)
    except subprocess.TimeoutExpired:
        return f"it did not end in {_END_S:.0f} s"
    found = _until_explained(trial, folder, gone=True, patience=_SEEN_S if trial.survive == "keeper" else 0.0)
    return found and f"when it is gone: {found}"


def _answer_s(pool: Path) -> float:
    """Seconds from the start of `kscope watch` to its end."""
    environment = {**os.environ, "PYTHONPATH": _paths()}
    began = time.monotonic()
    command = [sys.executable, "-m", "kscope", "watch", "--once", str(pool)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def _paths() -> str:
    """Where other processes find kscope and what it needs."""
    return os.pathsep.join([*sys.path[:4], os.environ.get("PYTHONPATH", "")])


def _until_explained(trial: Trial, folder: Path, *, gone: bool, patience: float) -> str:
    """The missing facts at the last observation."""
    until = time.monotonic() + patience
    while True:
        try:
            paths = sorted(folder.glob("*.pool"))
            found = wrong(trial, verdict(open_pool(paths[-1])), gone=gone) if paths else "no file"
        except (KscopeError, OSError) as error:
            found = str(error)
        if not found or time.monotonic() > until:
            return found
        time.sleep(_POLL_S)


def installed(languages: list[str]) -> Iterator[str]:
    """Those of the languages that can be imported here."""
    for language in languages:
        if language == "nvcc":
            if shutil.which("nvcc") and importlib.util.find_spec("cuda"):
                yield language
            continue
        try:
            if importlib.util.find_spec(NEEDS.get(language, language)) is not None:
                yield language
        except ModuleNotFoundError:
            continue


def interpreter(text: str) -> tuple[str, str]:
    """A language and its interpreter. Raises argparse.ArgumentTypeError."""
    language, _, path = text.partition("=")
    if language not in LANGUAGES or not shutil.which(path):
        raise argparse.ArgumentTypeError(f"{text}: expected LANGUAGE=PATH, such as cute=/opt/cute/bin/python")
    return language, path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5, help="of each language and fault")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=[*LANGUAGES])
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=[*FAULTS])
    parser.add_argument("--survive", choices=("shm", "keeper", "auto"), default="shm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=440.0, help="no trial begins later")
    parser.add_argument("--at-once", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--simulator", action="store_true", help="the simulator's kernel, without a GPU")
    parser.add_argument(
        "--python", nargs="+", type=interpreter, default=[], metavar="LANGUAGE=PATH", help="of another environment"
    )
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    pythons = dict[str, str](options.python)
    here = {*installed([one for one in options.languages if one not in pythons])}
    languages = [one for one in options.languages if one in here or one in pythons]
    languages = ["simulator"] if options.simulator else languages
    trials = [
        Trial(language, fault, options.seed + number, options.survive, pythons.get(language, sys.executable))
        for number in range(options.trials) for fault in options.faults for language in languages
    ]  # fmt: skip

    answers = list[float]()

    def run(trial: Trial) -> str | None:
        return None if time.monotonic() > until else explained(trial, answers)

    with ThreadPoolExecutor(options.at_once) as threads:
        results = dict(zip(trials, threads.map(run, trials), strict=True))
    return report(results, answers, options.json)


def report(results: dict[Trial, str | None], answers: list[float], path: Path | None) -> int:
    """Print how many were explained. Returns 0 if all were, and all were run."""
    done = Counter((one.language, one.fault) for one, found in results.items() if found is not None)
    good = Counter((one.language, one.fault) for one, found in results.items() if found == "")
    for language, fault in dict.fromkeys((one.language, one.fault) for one in results):
        print(f"{language:<10} {fault:<8} {good[language, fault]} of {done[language, fault]}")
    print(f"all        {'':<8} {good.total()} of {done.total()}, {len(results) - done.total()} not run")
    if answers:
        middle, worst = (f"{1e3 * one:.0f} ms" for one in (statistics.median(answers), max(answers)))
        print(f"kscope watch answered within {middle} (median), {worst} (worst) of {len(answers)}")
    for trial, found in [(trial, found) for trial, found in results.items() if found][:10]:
        print(f"! {trial.language} {trial.fault}, seed {trial.seed}: {found}")
    if path is not None:
        rows = [{**asdict(trial), "wrong": found} for trial, found in results.items()]
        for row in rows:
            del row["python"]  # a path of this machine
        path.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if good.total() == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
