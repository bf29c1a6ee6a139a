"""PTX of kernels in CUDA C++ files, compiled by nvcc -O3: marks are around bodies, loads and stores."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from . import keeping

FLAGS = ("-lineinfo", "--gpu-name=sm_90a")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("source", help="the name of where the files are from")
    asked.add_argument("files", nargs="+", type=Path)
    asked.add_argument("-I", dest="include", action="append", default=[])
    given = asked.parse_args()
    for path in given.files:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "k.ptx")
            command = [
                "nvcc",
                "-O3",
                "-std=c++17",
                "-lineinfo",
                "--expt-relaxed-constexpr",
                "-arch=compute_90a",
                "-ptx",
            ]
            command += [f"-I{one}" for one in given.include] + [str(path), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{path}: {done.stderr[:300]}", flush=True)
                continue
            for name, alone in keeping.split(out.read_text()):
                about = keeping.Kept(f"{path.stem}.{name}", "cuda", FLAGS)
                keeping.keep(given.folder / given.source, about, "", alone)
                print(f"{path.stem} {name}: compiled", flush=True)


if __name__ == "__main__":
    main()
