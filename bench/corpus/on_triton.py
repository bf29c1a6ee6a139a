"""PTX of a checkout's Triton kernels, unmodified: marks are selected by kind, arguments are guessed."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.driver import driver

from kscope.errors import KscopeError
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.selection.auto import Selection
from kscope_triton import assembler
from kscope_triton import compile as compiling

from . import keeping, loading, signatures

TARGET = GPUTarget("cuda", 90, 32)
_PLAIN = 4
"""Every fourth kernel is compiled without kscope, too."""
_OTHER = frozenset({"backends", "runtime", "test", "tests", "cutile", "cutedsl"})
"""Folders with kernels for other devices, and no kernels."""
_STORES = ("st.global", "atom.", "red.", "bulk")
_SECONDS, _IMPORT, _LONGEST = 12, 40, 120_000
"""CPU time for a kernel, time for a module; characters of a kernel's text."""


class _EnoughError(Exception):
    """The rest of a compilation is not needed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkouts", nargs="+", type=Path, help="ROOT:FOLDER: packages of ROOT in FOLDER are tried")
    parser.add_argument("--most", type=int, default=10_000, help="kernels of a checkout at most")
    given = parser.parse_args()
    _as_with_a_gpu()
    signal.signal(signal.SIGALRM, _too_slow)
    for checkout in given.checkouts:
        root, _, below = str(checkout).partition(":")
        _collect(given.folder, Path(root), Path(root) / below, given.most)


class _TooSlow(BaseException):  # which no statement of a module catches
    pass


def _too_slow(*_: Any) -> None:
    raise _TooSlow


def _collect(folder: Path, root: Path, below: Path, most: int) -> None:
    source = root.name if root.name != "src" else root.parent.name
    loading.serve([root])
    found = Counter[str]()
    seen, known = set[str](), folder / f"{source}.failed"
    failed = set(known.read_text().splitlines()) if known.exists() else set[str]()
    for name, kernel in _kernels(root, below):
        digest = hashlib.sha256(kernel.src.encode()).hexdigest()
        if digest in seen or len(seen) >= most:
            continue
        seen.add(digest)
        if name in failed:
            found["failed before"] += 1
            continue
        if any((folder / source).glob(f"*{name[-100:]}.json")):
            found["compiled"] += 1
            continue
        found["tried"] += 1
        before = time.monotonic()
        outcome = _apart(folder / source, name, kernel)
        found[outcome] += 1
        if outcome != "compiled":
            with known.open("a") as file:
                file.write(f"{name}\n")
        print(f"{source} {name}: {outcome} ({time.monotonic() - before:.0f} s)", flush=True)
    (folder / source).mkdir(parents=True, exist_ok=True)
    (folder / f"{source}.tried").write_text(json.dumps(found))


def _kernels(root: Path, below: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(below.rglob("*.py"), key=lambda one: zlib.crc32(one.name.encode())):  # some of everything first
        if _OTHER & set(path.parts):
            continue
        text = path.read_text(errors="replace")
        if "triton.jit" not in text and "@jit" not in text:
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        signal.alarm(_IMPORT)  # a stand-in may keep a loop turning
        try:
            names = vars(importlib.import_module(module))
        except BaseException as error:  # whatever it is
            print(f"{module}: {error!r}"[:200], flush=True)
            continue
        finally:
            signal.alarm(0)
        for name, kernel in signatures.kernels(names, module):
            yield f"{module}.{name}", kernel


def _apart(folder: Path, name: str, kernel: Any) -> str:
    """Try a kernel in a child, which may die or take too long."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        try:
            os._exit(_try(folder, name, kernel))
        except BaseException:
            os._exit(9)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "too slow" if number in (signal.SIGXCPU, signal.SIGKILL) else f"died of signal {number}"
    return {0: "compiled", 1: "no guess compiled", 2: "error with marks"}.get(os.WEXITSTATUS(status), "error")


def _try(folder: Path, name: str, kernel: Any) -> int:
    for guess in signatures.GUESSES:
        try:
            form = signatures.signature(kernel, guess)
            source = ASTSource(kernel, form.types, form.constants, form.attributes)
            kept = list[tuple[str, dict[str, Any]]]()
            _compile(source, guess.warps, kept)
        except Exception as error:
            if _is_ours(error):
                (folder.parent / "errors").mkdir(parents=True, exist_ok=True)
                (folder.parent / "errors" / name).write_text("".join(traceback.format_exception(error)))
                return 2
            continue
        if kept and len(kept[0][0]) < _LONGEST and any(word in kept[0][0] for word in _STORES):
            marked, about = kept[0]
            plain = _plain(source, guess.warps) if zlib.crc32(name.encode()) % _PLAIN == 0 else ""
            keeping.keep(folder, keeping.Kept(name, "triton", **about), plain, marked)
            return 0
    return 1


def _is_ours(error: BaseException) -> bool:
    """True if kscope raised it, not Triton of what it was given."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, KscopeError) or "/kscope" in last


def _options(warps: int) -> dict[str, Any]:
    return {"num_warps": warps, "num_stages": 3, "enable_fp_fusion": True}


def _plain(source: Any, warps: int) -> str:
    """The PTX that Triton makes of a kernel without kscope."""
    kept: list[str] = []

    def hook(backend: Any = None, stages: Any = None, *_: Any, **__: Any) -> Any:
        if stages is None:
            return "", ""
        inner = stages["ptx"]

        def ptx(given: Any, metadata: Any) -> str:
            kept.append(inner(given, metadata))
            raise _EnoughError

        stages["ptx"] = ptx
        return None

    with patch.object(triton.knobs.runtime, "add_stages_inspection_hook", hook), suppress(_EnoughError):
        triton.compile(source, target=TARGET, options=_options(warps))
    return kept[0]


def _compile(source: Any, warps: int, kept: list[tuple[str, dict[str, Any]]]) -> None:
    """Put the PTX with the marks of the usual kinds into `kept`, and how Triton would assemble it."""
    frontend = registry.frontend("triton")

    def lower(text: str, *_: Any, measure: Any, shared: int, **__: Any) -> Any:
        flags = assembler._flags(measure.keywords["backend"], measure.keywords["options"])
        kept.append((text, {"flags": flags, "shared": shared}))
        raise _EnoughError

    selection = Selection.of(True)
    assert selection is not None
    frontend.enable(Recording(selection=selection))
    try:
        with patch.object(compiling.register_budget, "lower_to_fit", lower), suppress(_EnoughError):
            triton.compile(source, target=TARGET, options=_options(warps))
    finally:
        frontend.disable()


def _as_with_a_gpu() -> None:
    """Replies to modules that query the device while they are imported, and to Triton while it compiles."""
    triton.knobs.compilation.always_compile = True
    driver._active = SimpleNamespace(
        get_current_target=lambda: TARGET,
        get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
        utils=SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232448, "multiprocessor_count": 132}),
    )
    cuda: Any = torch.cuda
    cuda.is_available, cuda.device_count, cuda.current_device = (lambda: True), (lambda: 1), (lambda: 0)
    cuda.get_device_name = lambda *_: "NVIDIA H100"
    cuda.get_device_capability = lambda *_: (9, 0)
    about = SimpleNamespace(multi_processor_count=132, major=9, minor=0, name="NVIDIA H100", warp_size=32)
    cuda.get_device_properties = lambda *_: about


if __name__ == "__main__":
    main()
