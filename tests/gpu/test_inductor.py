"""torch.compile, on and off across processes: neither state finds the other's kernels in Inductor's caches.

Each chain is three processes, one after the other; the chains run concurrently. How they share compiled code:

    folder      one cache folder, as by default: FX graphs, kernels for Inductor's own launcher, Triton's cache
    artifacts   separate folders, and the previous process's torch.compiler.save_cache_artifacts
    launcher    one folder, with Inductor's own launcher off: then on and off share FX graphs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .checks import run

CHAINS = {
    (how, order): order.split("-")
    for how, order in (
        ("folder", "on-off-on"),
        ("folder", "off-on-off"),
        ("artifacts", "on-off-on"),
        ("artifacts", "off-on-off"),
        ("launcher", "on-off-on"),
        ("folder", "off-off-off"),  # never on: Inductor's own behavior
    )
}
WARPS = 4
Message = dict[str, Any]
Table = Callable[[str, str], None]


def process(how: str, state: str, cache: Path, result: Path, artifacts: list[Path]) -> Message:
    """Run tests/gpu/inductor_process.py and return its result."""
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton" / "0"),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0" if how == "launcher" else "1",
        "TRITON_DISABLE_LINE_INFO": "1",  # lines name the file that Inductor writes, and that the folder
        "KSCOPE": "",
    }
    command = [sys.executable, "-m", "gpu.inductor_process", state, str(result), *map(str, artifacts)]
    done = run(command, timeout=180, **env)
    assert done.returncode == 0, done.stderr
    message: Message = json.loads(result.read_text())
    return message


def chain(how: str, states: list[str], folder: Path) -> list[Message]:
    """Three processes, one after the other."""
    message: list[Message] = []
    artifacts: list[Path] = []
    for number, state in enumerate(states):
        result = folder / f"{number}.json"
        cache = folder / (f"cache{number}" if how == "artifacts" else "cache")
        message.append(process(how, state, cache, result, artifacts))
        if how == "artifacts":
            artifacts.append(result.with_suffix(".bin"))
    return message


@pytest.fixture(scope="module")
def message(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Message]]:
    """The results of the processes of each chain."""
    folders = [tmp_path_factory.mktemp("inductor") for _ in CHAINS]
    with ThreadPoolExecutor(len(CHAINS)) as pool:
        runs = [
            pool.submit(chain, how, states, at) for ((how, _), states), at in zip(CHAINS.items(), folders, strict=True)
        ]
        return dict(zip(CHAINS, [run.result() for run in runs], strict=True))


def processes(message: dict[tuple[str, str], list[Message]], state: str) -> list[tuple[str, Message]]:
    """(name, result) of the processes in that state."""
    return [
        (f"{how} {order} {number}", what)
        for (how, order), whats in message.items()
        for number, (mine, what) in enumerate(zip(CHAINS[how, order], whats, strict=True))
        if mine == state
    ]


def test_a_recorded_process_has_every_record_of_its_launches(message: dict[tuple[str, str], list[Message]]) -> None:
    from .inductor_process import BLOCKS, LAUNCHES

    expected = dict.fromkeys(("load", "half", "store"), BLOCKS * WARPS * LAUNCHES)
    for which, what in processes(message, "on"):
        assert (what["regions"], what["launches"], what["doubts"]) == (expected, LAUNCHES, []), which
        marked = {name for name, _, marked in what["loaded"] if marked}
        assert len(marked) == 1 and marked.pop().startswith("halved"), which


def test_plain_processes_load_the_same_cubins_after_recording(
    message: dict[tuple[str, str], list[Message]], table: Table
) -> None:
    alone = message["folder", "off-off-off"][0]["loaded"]
    assert len(alone) > 1 and any(name.startswith("halved") for name, *_ in alone)
    for which, what in processes(message, "off"):
        assert not any(marked for *_, marked in what["loaded"]), which
        assert what["loaded"] == alone, which
    table(
        "torch.compile on and off across processes", f"{len(processes(message, 'off'))} plain ones with the same cubins"
    )


@pytest.mark.parametrize(("how", "order"), CHAINS)
def test_the_third_process_hits_the_cache_of_the_first(
    message: dict[tuple[str, str], list[Message]], how: str, order: str
) -> None:
    first, second, third = (what["hits"] for what in message[how, order])
    assert first == 0 and third > 0
    # with Inductor's own launcher each state has its graphs; otherwise one graph whose kernels Triton's keys separate
    assert (second > 0) == (how == "launcher" or order == "off-off-off")
