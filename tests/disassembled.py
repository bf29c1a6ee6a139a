"""nvdisasm's output, cached in .cache/nvdisasm for all workers and runs: each start of it takes half a second."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from kscope.machine_code import tools
from kscope.sass.cubin import reading

STORE = Path(__file__).resolve().parents[1] / ".cache" / "nvdisasm"
_of_bytes, _of_file = reading.disassembly, tools._text


def keep() -> None:
    """From now on, ask nvdisasm once for each code."""
    reading.disassembly, tools._text = _bytes, _file


def _bytes(data: bytes, *flags: str) -> str | None:
    kept = _place(data, "bytes", *flags)
    return _known(kept) if kept.exists() else _store(kept, _of_bytes(data, *flags))


def _file(tool: str, flags: Sequence[str], path: Path) -> str:
    if tool != "nvdisasm" or not tools.binary(path):
        return _of_file(tool, flags, path)
    kept = _place(path.read_bytes(), "file", *flags)
    return (_known(kept) if kept.exists() else _store(kept, _of_file(tool, flags, path))) or ""


def _known(kept: Path) -> str | None:
    text: str | None = pickle.loads(kept.read_bytes())
    return text


def _store(kept: Path, text: str | None) -> str | None:
    STORE.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(text))
    part.replace(kept)
    return text


def _place(data: bytes, *how: str) -> Path:
    """Where the answer of this machine's nvdisasm to a question is kept."""
    tool = tools.find("nvdisasm")
    question = [_digest(tool, Path(tool).stat().st_mtime_ns), *map(str.encode, how), data]
    return STORE / sha256(b"\0".join(question)).hexdigest()


@cache
def _digest(tool: str, changed: int) -> bytes:
    return sha256(Path(tool).read_bytes()).digest()
