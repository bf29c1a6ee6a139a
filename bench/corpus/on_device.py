"""Runs entry points of checked-out projects on a GPU, recorded with both placements: results, records, time.

    python -m corpus.on_device FOLDER --out FILE.jsonl             checks, several processes side by side
    python -m corpus.on_device FOLDER --out FILE.jsonl --time      times, one process after the other
    python -m corpus.on_device FOLDER --out FILE.jsonl --dry       without a GPU: compiles for sm_90, launches nothing
    python -m corpus.on_device FOLDER --out FILE.jsonl --table     prints what the file holds

FOLDER has the packages: liger_kernel, fla, flag_gems, unsloth. An entry that ends its process, or does not end, is
named, and the next process continues after it.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECTS = ("liger", "fla", "gems", "unsloth")
SLOW = {"fla": 4, "liger": 3, "unsloth": 3}
"""An entry takes so many times as long as one of FlagGems."""


@dataclass
class Job:
    """Entries of a project that one process runs."""

    project: str
    names: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="results, one a line; those that it holds are kept")
    parser.add_argument("--projects", nargs="+", default=PROJECTS, choices=PROJECTS)
    parser.add_argument("--only", nargs="+", default=[], help="entries, as PROJECT.NAME")
    parser.add_argument("--jobs", type=int, default=12, help="processes side by side")
    parser.add_argument("--seconds", type=float, default=600, help="for all")
    parser.add_argument("--each", type=float, default=60, help="seconds for one entry")
    parser.add_argument("--configurations", type=int, default=1, help="of an autotuner at most")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--results", type=Path, help="write what is kept of each entry to this file, too")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    parser.add_argument("--names", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.within:
        within(given)
    elif not given.table:
        run(given)
    if not given.within:
        from . import device_table

        found = read(given.out)
        print(device_table.text(found))
        if given.results:
            devices = sorted({one["device"] for one in found if "device" in one})
            about = {"machine": ", ".join(devices), "command": "python -m corpus.on_device FOLDER --out FILE [--time]"}
            given.results.write_text(json.dumps({**about, "rows": device_table.rows(found)}, indent=1) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """A summary of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(given: argparse.Namespace) -> None:
    """Every entry without a result, in processes."""
    what = "time" if given.time else "dry" if given.dry else "check"
    done = {(one["project"], one["name"]) for one in read(given.out) if one["what"] == what}
    until = time.monotonic() + given.seconds
    todo = [one for one in jobs(given) if one.names]
    for one in todo:
        one.names = [name for name in one.names if (one.project, name) not in done]
    with ThreadPoolExecutor(1 if given.time else given.jobs) as pool:
        list(pool.map(lambda job: follow(job, given, until, what), [one for one in todo if one.names]))


def jobs(given: argparse.Namespace) -> list[Job]:
    """Entries in groups: as many as there are processes, each of one project, every nth entry."""
    found = {one: list(importlib.import_module(f"corpus.entries.{one}").ENTRIES) for one in given.projects}
    if given.only:
        found = {p: [n for n in names if f"{p}.{n}" in given.only or p in given.only] for p, names in found.items()}
    total = sum(len(names) * SLOW.get(project, 1) for project, names in found.items()) or 1
    made = []
    for project, names in found.items():
        parts = 1 if given.time else max(1, round(given.jobs * len(names) * SLOW.get(project, 1) / total))
        made += [Job(project, names[i::parts]) for i in range(parts)]
    return made


def follow(job: Job, given: argparse.Namespace, until: float, what: str) -> None:
    """Run a group in a process; after an entry that ends or blocks it, in another one."""
    left = list(job.names)
    while left and time.monotonic() < until:
        command = [sys.executable, "-m", "corpus.on_device", str(given.folder), "--out", str(given.out)]
        command += ["--within", job.project, "--configurations", str(given.configurations), "--names", *left]
        command += [f"--{what}"] if what != "check" else []
        with (
            tempfile.TemporaryFile("w+", errors="replace") as log,
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as process,
        ):
            why = _watch(process, given, until, job.project, set(left), what)
            log.seek(0)
            last = " / ".join(line.strip() for line in log.read().strip().splitlines()[-12 if why else -3 :])
        done = {one["name"] for one in read(given.out) if (one["project"], one["what"]) == (job.project, what)}
        left = [name for name in left if name not in done]
        if left and why and why != "no time left":
            _write(given.out, job.project, left.pop(0), what, {"failed": f"{why}: {last}"[:1200]})


def _watch(process: Any, given: argparse.Namespace, until: float, project: str, names: set[str], what: str) -> str:
    """Reason why a process ended early; empty if it did not."""
    seen, since = 0, time.monotonic() + 30  # for imports
    while process.poll() is None:
        time.sleep(0.2)
        count = sum(
            one["project"] == project and one["name"] in names and one["what"] == what for one in read(given.out)
        )
        if count > seen:
            seen, since = count, time.monotonic()
        late = time.monotonic() > until
        if late or time.monotonic() - since > given.each:
            os.kill(process.pid, signal.SIGUSR1)
            time.sleep(0.5)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "no time left" if late else f"took more than {given.each:.0f} s"
    return f"the process ended with {process.returncode}" if process.returncode else ""


def _write(path: Path, project: str, name: str, what: str, found: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"project": project, "name": name, "what": what, **found}) + "\n")


def within(given: argparse.Namespace) -> None:
    """In a process: entries one after the other."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # says where it is when its time is up
    what, project = "time" if given.time else "dry" if given.dry else "check", given.within
    if given.dry:
        from . import dry

        dry.prepare()
    from . import running

    running.with_few_configurations(given.configurations)
    running.serve(given.folder, project)
    made = importlib.import_module(f"corpus.entries.{project}").ENTRIES
    for name in given.names:
        begun = time.monotonic()
        try:
            found = _one(what, project, name, made)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            found = {
                "failed": f"{type(error).__name__}: {error}"[:500] + f" at {Path(last.filename).name}:{last.lineno}"
            }
            if "CUDA error" in str(error) or "illegal" in str(error):
                _write(given.out, project, name, what, found)
                os._exit(0)  # the context is gone
        _write(given.out, project, name, what, {**found, "seconds": round(time.monotonic() - begun, 1)})


def _one(what: str, project: str, name: str, made: Any) -> dict[str, Any]:
    if what == "dry":
        from . import dry

        return dry.check(project, name)
    import torch

    from . import checking, timing

    found = (timing.measure if what == "time" else checking.check)(made[name]())
    return {**found, "device": torch.cuda.get_device_name()}


if __name__ == "__main__":
    main()
