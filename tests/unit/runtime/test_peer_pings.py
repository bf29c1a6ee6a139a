"""The kernels by which two GPUs compare timers: the instructions between their clock readings in the machine code."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kscope.machine_code import disassembly, tools
from kscope_runtime import peer_pings


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_the_timer_is_read_before_the_signal_leaves_and_after_the_answer_came(tmp_path: Path, arch: str) -> None:
    backends = pytest.importorskip("triton.backends.nvidia")
    (tmp_path / "x.ptx").write_text(peer_pings.PTX)
    command = [Path(backends.__path__[0], "bin", "ptxas"), f"-arch={arch}", "-o", "x.cubin", "x.ptx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    order = {}
    for function in disassembly.functions(tools.disassembly(tmp_path / "x.cubin")):
        events = list[str]()
        for one in function.instructions:
            if "SR_GLOBALTIMERLO" in one.operands:
                events.append("timer")
            elif one.name == "STG":
                events.append("keep" if "128" in one.code else "signal")
            elif one.name == "LDG" and "64" not in one.code and events and events[-1] != "look":
                events.append("look")
        order[function.name] = events
    assert order["ks_ping_send"] == ["timer", "signal", "look", "timer", "keep"]
    assert order["ks_ping_reply"][-3:] == ["timer", "signal", "keep"]


class Driver:
    """A driver with 1 MiB of memory at address 0 and a kernel that answers each round."""

    def __init__(self) -> None:
        self.memory = np.zeros(1 << 20, np.uint8)
        self.launched = list[tuple[str, list[int]]]()
        self.current = 7
        self.is_relaxed = False

    def context(self) -> int:
        return self.current

    def set_context(self, context: int) -> None:
        self.current = context

    def use(self, ordinal: int) -> None:
        self.current = 100 + ordinal

    def facts(self) -> Any:
        return SimpleNamespace(uuid="GPU-1")

    def allocate(self, size: int) -> Any:
        return SimpleNamespace(address=0, size=1 << 20, file=9)

    def load(self, ptx: str) -> int:
        return 1

    def stream(self) -> int:
        return 2

    def pinned(self, size: int) -> Any:
        self.page = np.zeros(size, np.uint8)
        return self.page

    def map(self, file: int, size: int) -> int:
        assert self.current == 101
        return 0xF000

    def write(self, address: int, data: Any, stream: int) -> None:
        self.memory[address : address + len(data)] = data

    def read(self, into: Any, address: int, stream: int) -> None:
        into[:] = self.memory[address : address + len(into)]

    def synchronize(self, stream: int) -> None: ...

    def launch(self, module: int, name: str, argument: int, stream: int) -> None:
        assert self.current == 101 and self.is_relaxed and stream == 2
        words = self.page[:40].view("<u8").tolist()
        self.launched.append((name, words))
        rounds = np.arange(1, 1 + 10 * 2, dtype=np.uint64)  # the other side left after ten
        self.write(words[2], rounds.view(np.uint8), stream)

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        self.is_relaxed = True
        yield
        self.is_relaxed = False


def test_only_answered_rounds_count_and_the_program_s_context_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(peer_pings, "CudaDriver", lambda: driver)
    side = peer_pings.PeerPings(1)
    assert (side.uuid, side.file, driver.current) == ("GPU-1", 9, 7)
    driver.memory[:192] = 255
    side.clear(1)
    assert not driver.memory[64:128].any() and driver.memory[:64].all() and driver.memory[128:192].all()
    theirs = side.map(4)
    side.start(theirs, 2, 1, True, 100, 1 << 20)
    assert side.readings().tolist() == np.arange(1, 21).reshape(10, 2).tolist()
    assert driver.launched == [("ks_ping_send", [64, 0xF000 + 128, 4096, 100, 1 << 20])]
    side.start(theirs, 0, 0, False, 1 << 30, 1)
    assert driver.launched[1] == ("ks_ping_reply", [0, 0xF000, 4096, peer_pings.MOST_ROUNDS, 1])
    assert driver.current == 7


def test_a_comparison_in_a_thread_is_in_no_graph_that_another_thread_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(peer_pings, "CudaDriver", lambda: driver)
    side = peer_pings.PeerPings(1)
    seen = list[bool]()
    for name in ("write", "read", "synchronize", "map"):
        call = getattr(driver, name)
        monkeypatch.setattr(driver, name, lambda *given, call=call: (seen.append(driver.is_relaxed), call(*given))[1])
    side.clear(0)
    side.start(side.map(4), 0, 0, True, 100, 1 << 20)
    side.readings()
    assert len(seen) >= 6 and all(seen) and not driver.is_relaxed
