"""One process of tests/gpu/test_sanitizer.py: records every program of the contract in one kernel language.

python -m gpu.contract_process NAME [PROGRAM...]      the programs are left out
"""

from __future__ import annotations

import sys

from contract import joined
from contract.device import record
from contract.programs import PROGRAMS
from contract.reader import Lane, read
from contract.verdict import definition


def regions(lanes: list[Lane]) -> set[str]:
    """Names with a record."""
    return {record.region for lane in lanes for record in lane.records}


def main(name: str, *without: str) -> None:
    frontend = joined.load(name)
    assert not frontend.available()  # which is also where some wake the driver
    covered = records = 0
    for program in PROGRAMS:
        if program.name in without or joined.absent(frontend, program):
            continue
        print(f"program {program.name}", flush=True)
        capture = record(program, frontend.ready)
        lanes, (defined, _) = read(capture), definition(program)
        found, expected = regions(lanes), regions(defined)
        assert found == expected or (program.some and found <= expected), (
            f"{program.name}: {found}, expected {expected}"
        )
        covered, records = covered + 1, records + sum(len(lane.records) for lane in lanes)
    print(f"covered {covered} programs, {records} records", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
