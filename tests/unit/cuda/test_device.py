"""kscope::clock() and its like: right in every thread, in every state of the header, and nothing where unused."""

from __future__ import annotations

import struct

import pytest
from nvcc import HEADER, IN_PLACE, MARKS, PLAIN, compiled, needs_nvcc
from ptxvm.host import Host, Pool, Ring
from ptxvm.machine import Grid, Launch
from ptxvm.machine import run as run_threads

from kscope.ptx import READINGS

pytestmark = needs_nvcc

PLACES = r"""
extern "C" __global__ void k(int* out) {
  const int size = blockDim.x * blockDim.y * blockDim.z;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int* mine = out + 4 * (kscope::block_id() * size + thread);
  mine[0] = kscope::warp_id();
  mine[1] = kscope::lane_id();
  mine[2] = kscope::block_id();
  mine[3] = kscope::smid();
}
"""


@pytest.mark.parametrize("state", [PLAIN, IN_PLACE, MARKS])
def test_every_thread_gets_its_position(state: str) -> None:
    grid, block = (3, 2, 2), (5, 4, 3)
    blocks = [(x, y, z) for z in range(2) for y in range(2) for x in range(3)]
    host = Host(Pool((Ring(12), Ring(12))))
    out = host.memory.allocate("out", 16 * 60 * 12)
    program = host.load(compiled(HEADER + PLACES, state).decode())
    sm = {at: 7 * n for n, at in enumerate(blocks)}
    run_threads(
        Launch(program, host.memory, "k", Grid(grid, block), [out.base], blocks, smid=sm.__getitem__).start(),
        "random",
        1,
    )
    rows = list(struct.iter_unpack("<4i", bytes(out.data)))
    assert rows == [(t // 32, t % 32, b, 7 * b) for b in range(12) for t in range(60)]


CLOCKS = r"""
extern "C" __global__ void k(long long* out) {
  const unsigned int low = kscope::clock();
  const long long began = kscope::clock64(), at = kscope::globaltimer();
  out[0] = began;
  out[1] = kscope::clock64();
  out[2] = at;
  out[3] = kscope::globaltimer();
  out[4] = low;
}
"""


def test_clock_helpers_keep_their_place() -> None:
    host = Host(Pool((Ring(12), Ring(12))))
    out = host.memory.allocate("out", 40)
    program = host.load(compiled(HEADER + CLOCKS, PLAIN).decode())
    launch = Launch(program, host.memory, "k", Grid((1, 1, 1), (1, 1, 1)), [out.base], [(0, 0, 0)])
    run_threads(launch.start(), "random", 1)
    began, ended, at, later, low = struct.unpack("<5q", bytes(out.data))
    assert 0 < ended - began < 100
    assert 0 < later - at < 100
    assert 0 < (began & 0xFFFFFFFF) - low < 100


@pytest.mark.parametrize("state", [PLAIN, MARKS])
def test_helpers_that_are_not_used_leave_nothing(state: str) -> None:
    body = 'extern "C" __global__ void k(int* out) { out[0] = 1; }'
    assert compiled(HEADER + body, state) == compiled("\n" + body, state)


@pytest.mark.parametrize("arch", ["75", "80", "90", "100"])
@pytest.mark.parametrize("state", [PLAIN, IN_PLACE])
def test_every_helper_assembles(state: str, arch: str) -> None:
    calls = " + ".join(f"kscope::{name}()" for name in READINGS)
    body = f'extern "C" __global__ void k(long long* out) {{ out[0] = {calls}; }}'
    assert compiled(HEADER + body, state, f"-arch=sm_{arch}", to="cubin")
