"""A program on a stand-in of the driver: python core_dump_program.py DUMP. It makes the pipe that the environment
names, and when something is written there, it writes the dump and aborts."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def named(variable: str) -> Path:
    return Path(os.environ[variable].replace("%p", str(os.getpid())))


def hang(dump: Path) -> None:
    assert os.environ["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] == os.environ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
    pipe, file, content = named("CUDA_COREDUMP_PIPE"), named("CUDA_COREDUMP_FILE"), dump.read_bytes()
    os.mkfifo(pipe, 0o640)
    Path("hangs").touch()
    pipe.read_bytes()
    with file.open("wb", buffering=0) as out:
        out.write(content[: len(content) // 2])
        out.write(content[len(content) // 2 :])
    os.abort()


if __name__ == "__main__":
    hang(Path(sys.argv[1]))
