"""The doctor's peaks: the machine code of each kernel does the work that the measurement divides by."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kscope.instrument.peaks import Peaks
from kscope.machine_code import disassembly, tools
from kscope.machine_code.work import _flops, _global
from kscope_runtime import peaks

KERNELS = [
    ("ks_read", peaks.READ, "sm_90", 4 * 16 * 32, 0),
    ("ks_fma", peaks.fma(), "sm_90", 0, 2 * 32 * peaks.FMAS * peaks.CHAINS),
    ("ks_mma", peaks.mma(), "sm_90", 0, peaks.MMAS * peaks.MMA_FLOPS),
    ("ks_wgmma", peaks.wgmma(), "sm_90a", 0, peaks.WGMMAS * peaks.WGMMA_FLOPS // 4),
]


@pytest.mark.parametrize(("name", "ptx", "arch", "moved", "computed"), KERNELS, ids=[one[0] for one in KERNELS])
def test_an_iteration_of_the_loop_does_the_work(
    tmp_path: Path, name: str, ptx: str, arch: str, moved: int, computed: int
) -> None:
    backends = pytest.importorskip("triton.backends.nvidia")
    (tmp_path / "x.ptx").write_text(ptx)
    command = [Path(backends.__path__[0], "bin", "ptxas"), f"-arch={arch}", "-o", "x.cubin", "x.ptx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [function] = disassembly.functions(tools.disassembly(tmp_path / "x.cubin"))
    assert function.name == name
    loops = [(to, at) for at, to in function.jumps.items() if to < at]
    first, last = min(loops, key=lambda one: one[1] - one[0])
    turn = [one for one in function.instructions if first <= one.at <= last]
    if computed:  # the longest loop: wgmma fills its memory in one before
        first, last = max(
            loops, key=lambda one: sum(_flops(i) for i in function.instructions if one[0] <= i.at <= one[1])
        )
        turn = [one for one in function.instructions if first <= one.at <= last]
    assert sum(map(_global, turn)) == moved
    assert sum(map(_flops, turn)) == computed


class Device:
    """A driver whose launches take no time."""

    def __init__(self) -> None:
        self.freed = False
        self.launched = list[tuple[str, int, int]]()

    def facts(self) -> object:
        return type("Facts", (), {"name": "GPU", "sms": 132})

    def allocate(self, size: int) -> object:
        return type("Memory", (), {"address": 1 << 20, "size": size})

    def load(self, ptx: str) -> int:
        if "sm_90a" in ptx:
            from kscope.errors import DriverError

            raise DriverError("cuModuleLoadData", "CUDA_ERROR_INVALID_PTX", 218, "")
        return 1

    def stream(self) -> int:
        return 2

    def launch(self, module: int, name: str, argument: int, stream: int, blocks: int, threads: int) -> None:
        self.launched.append((name, blocks, threads))

    def synchronize(self, stream: int) -> None: ...

    def free(self, memory: object) -> None:
        self.freed = True


def test_a_gpu_without_wgmma_is_measured_with_mma_and_memory_is_freed() -> None:
    device = Device()
    found = peaks.peaks(device)  # type: ignore[arg-type]  # what it uses of a driver
    assert isinstance(found, Peaks) and found.matrix > 0 and device.freed
    assert {name for name, _, _ in device.launched} == {"ks_read", "ks_fma", "ks_mma"}
    [(blocks, threads)] = {(blocks, threads) for name, blocks, threads in device.launched if name == "ks_read"}
    assert peaks.SIZE % (4 * 16 * blocks * threads) == 0
    assert Peaks.from_json(found.to_json(), "x") == found
