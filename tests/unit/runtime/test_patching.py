"""The copy of a cubin that a frontend loads: it has the address of the control block of its context."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from control_addresses import addresses
from unit.sass.kernels import ASSEMBLERS, needs_tools
from unit.sass.test_recording import made

from kscope.errors import UsageError
from kscope.instrument.subset import Subset
from kscope.machine_code.control_words import UNPATCHED

from .conftest import MODULE, Bench
from .fake import FakeDriver, Gpu, Lane

pytestmark = needs_tools
Make = Callable[..., Bench]


@pytest.fixture(scope="module")
def cubin() -> bytes:
    return made(ASSEMBLERS[0], moved=True).data


def address(bench: Bench, cubin: bytes) -> int:
    """The address in the copy for the current context."""
    (found,) = addresses(bench.backend.patched(cubin))
    return found


def holding(gpu: Gpu, handle: int, word: int) -> int:
    """A module whose constant holds a word when it is loaded."""
    symbol = gpu.modules[gpu.module(handle)]["kscope_ctl"]
    gpu.view(*symbol).view("<u8")[0] = word
    return handle


def test_the_address_is_the_one_that_other_modules_of_the_context_have(bench: Make, cubin: bytes) -> None:
    rig = bench()
    found = address(rig, cubin)
    rig.backend.module_loaded(MODULE)
    assert rig.gpu.bound(MODULE) == found
    assert rig.gpu.memory(MODULE).gate["epoch"] == 0


def test_it_stays_in_all_sessions_and_the_gate_is_shut_between_them(bench: Make, cubin: bytes) -> None:
    """The pool is replaced by a larger one meanwhile."""
    rig = bench()
    found = address(rig, cubin)
    rig.backend.module_loaded(holding(rig.gpu, 9, found))
    memory, blocks = rig.gpu.memory(9), list[int]()
    for epoch, pool in ((1, rig.pool), (2, rig.pool), (3, 2 * rig.pool)):
        rig.backend.arm(epoch, Subset(), pool)
        assert memory.gate["epoch"] == epoch
        Lane(memory, block=epoch).run()
        rig.backend.disarm()
        assert memory.gate["epoch"] == 0
        (device,) = rig.backend.collect(wait=True)
        blocks.append(len(device.lines))
        assert address(rig, cubin) == found == rig.gpu.bound(9)
    assert all(blocks)


def test_each_context_has_its_own(cubin: bytes, by_hand: None) -> None:
    rig = Bench(Gpu(0), Gpu(1))
    first = address(rig, cubin)
    rig.driver.current = 2
    second = address(rig, cubin)
    rig.driver.current = 1
    assert first != second and address(rig, cubin) == first
    for gpu, context, found in zip(rig.driver.gpus, (1, 2), (first, second), strict=True):
        rig.driver.current = context
        rig.backend.module_loaded(gpu.module(20))
        assert gpu.bound(20) == found


def test_other_code_costs_nothing(bench: Make) -> None:
    rig = bench()
    for code in (b"a plain kernel", made(ASSEMBLERS[0]).data):
        assert rig.backend.patched(code) is code
    assert "allocate" not in rig.driver.calls


def test_a_thread_without_a_context_gets_the_devices_primary_one(
    bench: Make, cubin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Bench(Gpu(0), Gpu(1))
    rig.driver.current = 0
    monkeypatch.setattr(FakeDriver, "use", lambda self, ordinal: self.set_context(ordinal + 1), raising=False)
    (found,) = addresses(rig.backend.patched(cubin, 1))
    assert rig.driver.current == 2 and found == address(rig, cubin)


def test_it_is_safe_while_a_graph_is_captured(bench: Make, cubin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, modes, call = bench(), list[int](), FakeDriver._call

    def noted(driver: FakeDriver, name: str) -> Gpu:
        modes.append(driver.strict[-1])
        return call(driver, name)

    monkeypatch.setattr(FakeDriver, "_call", noted)
    rig.backend.patched(cubin)
    assert set(modes) == {1} and rig.driver.strict == [0]


def test_a_module_that_was_loaded_without_an_address_is_not_armed(bench: Make) -> None:
    rig = bench().arm()
    holding(rig.gpu, 9, UNPATCHED)
    assert rig.backend.module_loaded(9) == ()
    (problem,) = rig.backend.problems()
    assert problem.kind == "metadata" and "was not loaded by the frontend that compiled them" in problem.text
    assert rig.gpu.bound(9) == UNPATCHED
    rig.driver.libraries[5] = 9
    with pytest.raises(UsageError, match="load it with that, or compile with placement='fence'"):
        rig.backend.bind(5, ())
