"""NVIDIA's disassemblers: on PATH, in a CUDA toolkit, or in a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ..capture import metadata
from ..capture.model import ModuleMeta, RowLayout
from ..errors import FormatError, MissingError
from ..util import bounded_reading
from ..util.cuda_home import cuda_folders
from .elf import is_elf

_PACKAGES = {"triton": "backends/nvidia/bin", "nvidia": "cu13/bin"}
"""Packages that ship the tools, and their folders; found without importing."""
_SECONDS = 120
_META = b'{"frontend":'


def find(tool: str) -> str:
    """The tool's path.

    Raises:
        MissingError: it is not installed; the message names the command that installs it.
    """
    for found in _all(tool):
        return found
    raise MissingError(
        f"{tool} is not installed: it comes with the CUDA toolkit, and with pip install nvidia-cuda-{tool}"
    )


def _all(tool: str) -> Iterator[str]:
    """The tool on PATH, in toolkits, and in packages; none twice."""
    folders = os.pathsep.join([*cuda_folders(), "/usr/local/cuda/bin"])
    places: list[str | None] = [None, folders]
    for package, folder in _PACKAGES.items():
        spec = find_spec(package)
        homes = (spec.submodule_search_locations or ()) if spec else ()
        places += [str(Path(home, folder)) for home in homes]
    yield from dict.fromkeys(found for place in places if (found := shutil.which(tool, path=place)))


def disassembly(path: Path) -> str:
    """The machine code of a cubin as text; a text file is returned unchanged."""
    return _text("nvdisasm", ("-c",), path)


def with_lines(path: Path, functions: Sequence[int] = ()) -> str:
    """The machine code of a cubin as text, with the source line of each instruction.

    Args:
        path: the cubin.
        functions: indices of the functions in its symbol table; none for all.
    """
    only = ("-fun", ",".join(map(str, functions))) if functions else ()
    return _text("nvdisasm", ("-c", "-gi", *only), path)


def with_live_registers(path: Path, functions: Sequence[int] = ()) -> str:
    """Same as with_lines(), with the number of live registers after each instruction instead of its source line.

    A disassembler counts them only in code of its major version, so all that are installed are tried.
    """
    only = ("-fun", ",".join(map(str, functions))) if functions else ()
    refused = FormatError(f"{path}: no nvdisasm")
    for program in _all("nvdisasm"):
        try:
            return _text(program, ("-c", "-plr", "-lrm", "count", *only), path)
        except FormatError as error:
            refused = error
    raise refused


def resources(path: Path) -> str:
    """The output of `cuobjdump -res-usage` for a cubin; a text file is returned unchanged."""
    return _text("cuobjdump", ("-res-usage",), path)


def builds(path: Path) -> dict[str, int]:
    """Kernel ids by symbol from a cubin's metadata; {} for text, or code without marks."""
    return builds_in(bounded_reading.read_bytes(path)) if binary(path) else {}


def builds_in(data: bytes) -> dict[str, int]:
    """Same as builds(), for the bytes of a cubin."""
    return {kernel.symbol or kernel.name: kernel.id for module in modules_in(data) for kernel in module.kernels}


def layouts(path: Path) -> tuple[RowLayout, ...]:
    """The rows with three clocks that the kernels of a cubin may write, by its metadata; () for text."""
    described = modules_in(bounded_reading.read_bytes(path)) if binary(path) else ()
    return tuple(about for module in described for about in module.layouts)


def modules_in(data: bytes) -> tuple[ModuleMeta, ...]:
    """The metadata in the bytes of a cubin that was compiled for recording."""
    found = list[ModuleMeta]()
    at = data.find(_META)
    while at >= 0:
        with suppress(FormatError):  # other text that begins so
            found.append(metadata.from_json(data[at : at + metadata.MAX_BYTES]))
        at = data.find(_META, at + 1)
    return tuple(found)


def binary(path: Path) -> bool:
    """True if the file is an ELF."""
    with path.open("rb") as file:
        return is_elf(file.read(4))


def _text(tool: str, flags: Sequence[str], path: Path) -> str:
    if not binary(path):
        return bounded_reading.read_bytes(path).decode("utf-8", "replace")
    command = [tool if os.sep in tool else find(tool), *flags, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, errors="replace")
    except subprocess.TimeoutExpired:
        raise FormatError(f"{path}: {tool} took more than {_SECONDS} s") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise FormatError(f"{path}: {tool} refused it: {output[0] if output else 'no output'}")
    return done.stdout
