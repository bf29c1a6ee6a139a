"""The Backend interface: the memory that kernels record into, and the launches that a simulator records for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from ..capture.capture_data import DeviceCapture
    from ..capture.model import ModuleMeta, Problem
    from ..capture.pools.pool_file import PoolDevice, PoolFile
    from ..marks.grammar import Mark
    from .peaks import Peaks
    from .peer_side import PeerSide
    from .raw_samples import SampledCode
    from .recording import Recording
    from .subset import Subset

Triple = tuple[int, int, int]
OpenPool = Callable[["PoolDevice", int], "PoolFile"]
"""Creates the pool of a device, of a number of bytes, in memory that outlives the program."""


class Backend(ABC):
    """The memory that kernels record into, on every device of one kind."""

    @abstractmethod
    def module_loaded(self, module: int) -> tuple[ModuleMeta, ...]:
        """A module was loaded on the current device: arm it if it was compiled for recording.

        Safe during CUDA graph capture.

        Args:
            module: the driver's handle. It is not kept: the module may be unloaded at any time.

        Returns:
            The metadata of an armed module.
        """

    def arm_control_block(self, control: int, metas: Sequence[ModuleMeta]) -> None:
        """Arm the modules of a library that loads its own, on the current device.

        Args:
            control: device address of the library's constant ``wire.CTL_SYMBOL``.
            metas: the metadata of the library's modules.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot arm modules that a library has loaded")

    def patched(self, cubin: bytes, ordinal: int = 0) -> bytes:
        """The copy of a cubin that is loaded in the current context: kernels in it have the control block's address, if
        they were compiled for that. Other code comes back unchanged. The copy is not for caches.

        Args:
            cubin: the code.
            ordinal: the device whose primary context becomes current if this thread has none.
        """
        return cubin

    def relaxed(self) -> AbstractContextManager[None]:
        """A context manager in which this thread may load modules while any thread captures a graph."""
        return nullcontext()

    def copy_attributes(self, of: int, to: int) -> None:  # noqa: B027  # a backend without attributes
        """Give a loaded kernel the attributes that a program has set on its other form.

        Args:
            of, to: the driver's handles of functions of the current device.
        """

    def bind(self, code: Any, metas: Sequence[ModuleMeta]) -> tuple[ModuleMeta, ...]:
        """Arm the module behind the driver handle `code` on the current device.

        Args:
            code: a handle of a module, library, function or kernel.
            metas: metadata for a module that carries none.

        Returns:
            The module's metadata.

        Raises:
            UsageError: the module was not compiled for recording.
        """
        raise UnsupportedError(f"{type(self).__name__} has no driver handles")

    def survive(self, open_pool: OpenPool | None) -> None:
        """Set where the pools of the next session are: called before arm(), once per session.

        Args:
            open_pool: creates them; None for memory that ends with the program.

        Raises:
            UnsupportedError: this backend cannot record into other memory than its own.
        """
        if open_pool is not None:
            raise UnsupportedError(
                f"survive: {type(self).__name__} cannot record into memory that outlives the program"
            )

    @abstractmethod
    def arm(self, epoch: int, subset: Subset, pool_bytes: int | None, folder: Path | None = None) -> None:
        """Start recording: allocate pools on first use, open every gate.

        Args:
            epoch: number of the session.
            subset: which blocks, warps and SMs record.
            pool_bytes: device memory to record into; None for the default.
            folder: for a temporary file with records that do not fit into host memory; None for the folder of
                temporary files.
        """

    def begin_samples(self, period: int) -> None:
        """Sample all warps from now on, on every device in use, until end_samples(). Earlier samples are dropped. Makes
        a GPU ready for this process if none is used yet.

        Args:
            period: cycles between two samples of an SM sub-partition.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot sample stalls")

    def pause_samples(self, paused: bool) -> None:  # noqa: B027  # a backend that does not sample
        """Stop sampling for now, or continue.

        Args:
            paused: True to stop.
        """

    def end_samples(self, *, wait: bool) -> None:  # noqa: B027  # a backend that does not sample
        """Stop sampling; the samples stay.

        Args:
            wait: True if all launches have ended; else only samples that have arrived are kept.
        """

    def sampling_problems(self) -> tuple[str, ...]:
        """Reasons why devices were not sampled."""
        return ()

    def samples(self) -> tuple[SampledCode, ...]:
        """Samples since begin_samples(), per device; final after end_samples()."""
        return ()

    def pace(self, kernel: Hashable = None) -> None:  # noqa: B027  # a backend that cannot fall behind has nothing to do
        """Called before a launch; may wait briefly while little memory is left to record into.

        Args:
            kernel: identifies the kernel or its library, so that the backend learns how much a launch records.
        """

    def is_open(self) -> bool:
        """True if a session is open, so that launches record now."""
        return False

    def capture(self, stream: int) -> int | None:
        """The id of a stream's graph capture; 0 for none, None if it is unknown.

        Args:
            stream: the driver's handle of a stream of the current device.
        """
        return None

    def wait(self) -> None:
        """Return when everything launched so far has finished; at once where launches are synchronous."""
        return

    def read_timers(self, when: str) -> None:  # noqa: B027  # a backend whose clock is the host's
        """Launch kernels on each device that only read its timer: another profiler's times of them bound its clock.

        Args:
            when: "begin" or "end", of the session.
        """

    @abstractmethod
    def disarm(self) -> None:
        """Stop recording; warps that already claimed a slab keep it."""

    @abstractmethod
    def resume(self) -> None:
        """Record again under the epoch that disarm() closed."""

    @abstractmethod
    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        """Everything recorded under the armed epoch so far, per device.

        Args:
            wait: synchronize with all work first.
        """

    @abstractmethod
    def modules(self) -> tuple[ModuleMeta, ...]:
        """Every module compiled for recording whose kernels may have recorded, including unloaded ones."""

    def problems(self) -> tuple[Problem, ...]:
        """Problems since arm() for readers of the capture."""
        return ()

    def describe(self) -> Iterator[tuple[str, str]]:
        """(subject, sentence) about each device, its timer and the cost of a region, for ``kscope doctor``."""
        return iter(())

    def region_cost(self) -> tuple[float, float]:
        """Measure the cost of a region on the first device.

        Returns:
            SM cycles that a region adds to its warp, and the part of them between its two clock readings.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot measure the cost of a region")

    def peaks(self) -> Peaks:
        """Measure the peak rates of the first device."""
        raise UnsupportedError(f"{type(self).__name__} cannot measure peaks")

    def peer_side(self, ordinal: int) -> PeerSide:
        """A device's side of comparisons with other processes' devices.

        Args:
            ordinal: of the device; beyond those that this process sees, it counts from 0 again.
        """
        raise UnsupportedError(f"{type(self).__name__} cannot compare timers")


class BlockLaunch(Protocol):
    """A launch that another DSL's interpreter runs block after block, and the simulator records.

    Each block counts as one warp on SM 0, on the host's clock.
    """

    def block(self, index: Triple) -> None:
        """End the current block and begin the next.

        Args:
            index: the block's (x, y, z).
        """

    def mark(self, mark: Mark, value: Any, when: Any = None) -> None:
        """Execute a mark in the current block.

        Args:
            mark: the mark.
            value: a number to record; None for none.
            when: a bool: True to record; None is always.
        """

    def end(self) -> None:
        """End the last block and the launch."""

    def abandon(self) -> None:
        """Stop the launch; the current block never finishes."""


class ThreadLaunch(Protocol):
    """A launch that another DSL's simulator runs thread by thread, and the simulator records.

    Each thread records like one lane of a warp, on the host's clock. Any host thread may call any method.
    """

    def begin(self, key: object, block: Triple, thread: Triple) -> None:
        """Begin a thread.

        Args:
            key: identifies the thread from now on.
            block, thread: its (x, y, z) indices.
        """

    def mark(self, key: object, mark: Mark, value: Any, when: Any = None) -> bool:
        """Execute a mark in a thread.

        Args:
            key: the thread.
            mark, value, when: as for BlockLaunch.mark().

        Returns:
            False if the thread did not begin in this launch.
        """
        ...

    def leave(self, key: object) -> None:
        """Return from a thread.

        Args:
            key: the thread.
        """

    def end(self) -> None:
        """End the launch. Threads that did not leave never finish."""


class Simulator(Protocol):
    """A backend that records launches run by another DSL's interpreter."""

    def launch_by_block(
        self, name: str, kernel: Callable[..., object], grid: Triple, recording: Recording
    ) -> BlockLaunch:
        """Begin a launch.

        Args:
            name: the kernel's name.
            kernel: the kernel, which identifies its module.
            grid: blocks, (x, y, z).
            recording: the options to record with.
        """
        ...

    def launch_by_thread(
        self, name: str, kernel: Callable[..., object], grid: Triple, block: Triple, recording: Recording
    ) -> ThreadLaunch:
        """Begin a launch.

        Args:
            name, kernel, grid, recording: as for launch_by_block().
            block: threads per block, (x, y, z).
        """
        ...
