"""PTX of the CUDA C++ that CuPy ships as modules, compiled by NVRTC: marks are around bodies, loads and stores."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import cupyx
from cupy_backends.cuda.libs import nvrtc

from . import keeping

OPTIONS = ("-arch=compute_90", "-std=c++17", "-lineinfo", "-default-device")
FLAGS = ("-lineinfo", "--gpu-name=sm_90")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder / "cupy"
    for module, name, raw in _modules():
        try:
            text = _compiled(raw)
        except Exception as error:
            print(f"{module}.{name}: {error!r}"[:300])
            continue
        for kernel, alone in keeping.split(text):
            keeping.keep(folder, keeping.Kept(f"{name}.{kernel}", "cupy", FLAGS), "", alone)
            print(f"{name}.{kernel}: compiled", flush=True)


def _modules() -> Iterator[tuple[str, str, Any]]:
    for module in pkgutil.walk_packages(cupyx.__path__, "cupyx."):
        try:
            names = vars(importlib.import_module(module.name))
        except BaseException:  # of what is not installed
            continue
        for name, one in names.items():
            if isinstance(one, cupy.RawModule) and one.code:
                yield module.name, name, one


def _compiled(raw: Any) -> str:
    own = Path(str(cupy.__file__)).parent / "_core/include"
    home = importlib.import_module("nvidia.cu13").__path__[0]
    program = nvrtc.createProgram(raw.code, "kernels.cu", (), ())
    for name in raw.name_expressions or ():
        nvrtc.addNameExpression(program, name)
    parts = [f"-I{own}/cupy/_cccl/{one}" for one in ("libcudacxx", "thrust", "cub")]
    own_options = [one for one in raw.options or () if not one.startswith("-std")]
    nvrtc.compileProgram(program, (*own_options, *OPTIONS, *parts, f"-I{own}", f"-I{home}/include"))
    return bytes(nvrtc.getPTX(program)).decode().rstrip("\0")


if __name__ == "__main__":
    main()
