"""A capture lists the devices that recorded, not every device that the process has used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import synth
from noted import NotedBackend, attention, launch

import kscope
from kscope.capture.capture_data import BegunLaunch, DeviceCapture, TimerReading
from kscope.instrument import registry
from kscope.instrument.registry import Entry
from kscope.session.used_devices import used_devices


def gpu_of(epoch: int) -> DeviceCapture:
    """A GPU with one slab of a session."""
    lines = synth.slab(synth.EVERY_KIND, epoch=epoch)
    return replace(synth.device([lines]), ordinal=1, name="NVIDIA H200")


GPU = gpu_of(1)
IDLE = synth.device([])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU beside the simulator, which records in each session."""
    epochs: list[int] = []
    monkeypatch.setitem(registry.TABLE, "noted", Entry("json", "noted:Noted", ""))
    monkeypatch.setitem(registry.BACKENDS, "noted", "noted:NotedBackend")
    monkeypatch.setattr(registry, "_backends", {})
    monkeypatch.setattr(NotedBackend, "arm", lambda self, epoch, *others: epochs.append(epoch))
    monkeypatch.setattr(NotedBackend, "collect", lambda self, *, wait: [gpu_of(epochs[-1])])


def names(devices: tuple[DeviceCapture, ...]) -> set[str]:
    return {device.name for device in devices}


def test_an_idle_simulator_is_not_in_the_recording_of_a_gpu(gpu: None) -> None:
    with kscope.profile() as before:
        launch()
    with kscope.profile() as prof:
        assert names(prof.capture.devices) == {"NVIDIA H200"}
    assert names(before.capture.devices) == {"NVIDIA H200", "simulated"}
    assert names(prof.capture.devices) == {"NVIDIA H200"}
    assert prof.trace.devices == (1,) and prof.trace.recorded.clock == "gpu"


def test_a_device_without_selected_kernels_is_not_listed(gpu: None) -> None:
    with kscope.profile(kernel="attention*") as prof:
        launch()
        launch(attention)
    assert names(prof.capture.devices) == {"simulated"}


def test_an_empty_capture_lists_every_device() -> None:
    with kscope.profile() as prof:
        pass
    assert names(prof.capture.devices) == {"simulated"}
    assert used_devices([IDLE, IDLE]) == (IDLE, IDLE) and used_devices([]) == ()


@pytest.mark.parametrize(
    "fact", [{"lost": 1}, {"begun": (BegunLaunch(1, 1, 1),)}, {"readings": (TimerReading("k", 1, 2),)}, {}]
)
def test_a_device_without_data_is_listed_if_facts_about_its_launches_are_known(fact: dict[str, object]) -> None:
    device = replace(IDLE, **fact)  # type: ignore[arg-type]  # by name
    assert [one.ordinal for one in used_devices([device, GPU])] == ([0, 1] if fact else [1])
