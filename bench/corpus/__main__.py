"""Judges the kernels of a corpus; what was judged before is kept, unless --again says which verdicts are not."""

from __future__ import annotations

import argparse
import json
import re
import zlib
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from kscope.lowering import assembler

from . import judging, table
from .keeping import Kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, help="verdicts, one a line")
    parser.add_argument("--again", default="", help="judge anew the verdicts in which this pattern is found")
    parser.add_argument("--only", default="", help="judge kernels with this pattern in their path")
    parser.add_argument("--results", type=Path, help="write the counts to this file, too")
    parser.add_argument("--strict", action="store_true", help="fail if a kernel crashed or failed the strip test")
    parser.add_argument("--table", action="store_true", help="judge nothing")
    parser.add_argument("--ptxas", default="", help="the newest at hand by default")
    given = parser.parse_args()
    ptxas = given.ptxas or max(_found(), key=lambda path: assembler.release(path) or (0, 0))
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.again:
        known = [one for one in known if not re.search(given.again, json.dumps(one))]
        given.out.write_text("".join(json.dumps(one) + "\n" for one in known))
    done = {(one["source"], one["name"]) for one in known}
    for path in sorted(given.folder.glob("*/*.json"), key=lambda one: zlib.crc32(one.name.encode())):
        about = json.loads(path.read_text())
        kept, source = Kept(**{**about, "flags": tuple(about["flags"])}), path.parent.name
        if given.table or (source, kept.name) in done or not re.search(given.only, str(path)):
            continue
        stem = str(path)[: -len(".json")]
        plain = Path(f"{stem}.plain")
        found = judging.judge(
            source, kept, Path(f"{stem}.marked").read_text(), plain.read_text() if plain.exists() else "", ptxas
        )
        with given.out.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(f"{source} {kept.name}: {found.schedule} {found.why[:150]} {found.stripped[:200]}", flush=True)
    verdicts = [json.loads(line) for line in given.out.read_text().splitlines()]
    print(table.text(verdicts))
    if given.results:
        release = ".".join(map(str, assembler.release(ptxas) or ()))
        about = {
            "machine": f"no GPU, ptxas {release}, sm_90",
            "command": "python -m corpus FOLDER VERDICTS --results FILE",
        }
        found = {**about, "rows": table.rows(verdicts), "reasons": dict(table.reasons(verdicts))}
        given.results.write_text(json.dumps(found, indent=1) + "\n")
    if given.strict and (wrong := table.wrong(verdicts)):
        raise SystemExit(f"{len(wrong)} kernels crashed or failed the strip test: {', '.join(wrong)}")


def _found() -> tuple[str, ...]:
    """Every ptxas at hand, also Triton's own."""
    triton = find_spec("triton")
    own = Path(triton.origin).parent / "backends/nvidia/bin" if triton is not None and triton.origin else Path()
    return (*assembler.installed(), *map(str, own.glob("ptxas*")))


if __name__ == "__main__":
    main()
