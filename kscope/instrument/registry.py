"""The table of frontends and backends: kscope reaches them by name only, and only when they are needed.

A *frontend* (one package per DSL) turns `with kscope.region(...)` into marks and lowers them. A
*backend* owns the memory that kernels record into: the CUDA runtime, or the simulator's own. Third
parties add a DSL with an entry point in the group ``kscope.frontends``: name = "package:Frontend".
What lives here: the two small abstractions, the table, loading. What does not: any DSL.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..errors import MissingError, UnsupportedError, UsageError
from ..util.text import installs

if TYPE_CHECKING:
    from ..capture.model import DeviceCapture, ModuleMeta, Problem
    from ..marks.grammar import Mark
    from .recording import Recording
    from .sampling import Sampling

GROUP = "kscope.frontends"
COMPILER = "triton"
"""The frontend whose compiler hands builtins a `_semantic`; the others know by themselves that they trace."""


class Frontend(ABC):
    """One DSL. Instantiated once, when the DSL is imported and recording is first enabled."""

    name: ClassVar[str]
    backend: ClassVar[str] = "cuda"
    selects: ClassVar[frozenset[Literal["kinds", "lines"]]] = frozenset()
    """What it can mark without being annotated: kinds of operation, lines of source (Recording.selection)."""

    @abstractmethod
    def enable(self, recording: Recording) -> None:
        """Install hooks: kernels compiled from now on carry marks lowered for `recording`. May be called
        again with other options. Raises UnsupportedError naming the hook point and version that is missing."""

    @abstractmethod
    def disable(self) -> None:
        """Remove every hook: kernels compiled from now on are plain."""

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark where the DSL is tracing now; False when it is not tracing. `context` is what
        the DSL hands to builtins (Triton's _semantic), `value` the DSL's own run-time value, `when` its own
        predicate: the mark is recorded where it holds; None: always, False: known to be never."""
        return False

    def read(self, name: str, context: Any) -> Any:
        """One of ptx.READINGS in the kernel that the DSL traces or runs now, as the DSL's own value; None where it
        does not. Works in every state, also before enable()."""
        return None

    def spelling(self, *parts: object) -> list[Any]:
        """What the DSL's cache keys must know of a scope declared outside of a kernel (Triton)."""
        return []

    def bind(self, code: Any, image: Any) -> tuple[ModuleMeta, ...]:
        """Arm code that was loaded without its hooks, see binding.bind(); what it says of itself."""
        raise UnsupportedError(f"the {self.name} frontend knows no code that others have loaded")

    def lacks(self) -> str:
        """What the frontend works without, and worse, and what to do; nothing, where it has all."""
        return ""

    def begin(self) -> None:  # noqa: B027  # a frontend that sees no launches has none to forget
        """A session begins, or begins again: what was launched before is none of its problems."""

    def problems(self) -> tuple[Problem, ...]:
        """What went wrong since begin() that a reader of the capture must know."""
        return ()


class Backend(ABC):
    """The memory that kernels record into, on every device it knows."""

    @abstractmethod
    def module_loaded(self, module: int) -> None:
        """A module was loaded on the current device: arm it if it was prepared. Safe inside graph capture. Nothing
        is kept by its handle: it may be unloaded without a word."""

    def control_found(self, control: int, metas: Sequence[ModuleMeta]) -> None:
        """A module of a library that loads its own, on the current device: arm it. control: the address of its
        constant kscope_ctl; metas: what the library says of its modules."""
        raise UnsupportedError(f"{type(self).__name__} knows no modules that a library has loaded")

    def bind(self, code: Any, metas: Sequence[ModuleMeta]) -> tuple[ModuleMeta, ...]:
        """Arm the module behind the driver's handle `code` on the current device, as module_loaded() does, but raise
        UsageError where there is nothing to arm. metas: what is known of modules that cannot say it themselves.
        Returns what it says, or these."""
        raise UnsupportedError(f"{type(self).__name__} has no driver that gives out handles")

    @abstractmethod
    def arm(self, epoch: int, sampling: Sampling, pool_bytes: int | None) -> None:
        """Start recording: allocate pools on first use, write every gate."""

    def pace(self) -> None:  # noqa: B027  # a backend that cannot fall behind has nothing to do
        """Called before a launch: may wait a moment while there is little room left to record into."""

    def wait(self) -> None:
        """Return when everything that was launched so far has run: at once where launches are calls."""
        return

    @abstractmethod
    def disarm(self) -> None:
        """Stop recording; warps that already claimed keep their slabs."""

    @abstractmethod
    def resume(self) -> None:
        """Record again under the epoch that disarm() closed."""

    @abstractmethod
    def collect(self, *, wait: bool) -> list[DeviceCapture]:
        """Everything recorded under the armed epoch so far, per device; wait=True synchronises first."""

    @abstractmethod
    def modules(self) -> tuple[ModuleMeta, ...]:
        """Every prepared module whose kernels may have recorded, those unloaded since included."""

    def problems(self) -> tuple[Problem, ...]:
        """What went wrong since arm() that a reader of the capture must know."""
        return ()


@dataclass(frozen=True)
class Entry:
    """Where a frontend lives and which import makes it relevant."""

    dsl: str  # module whose presence in sys.modules makes the frontend active
    target: str  # "package:attribute"
    extra: str  # pip extra that installs the DSL


TABLE: dict[str, Entry] = {
    "triton": Entry("triton", "kscope_triton:TritonFrontend", "triton"),
    "cupy": Entry("cupy", "kscope_cuda.cupy:CupyFrontend", "cupy"),
    "cuda": Entry("kscope_cuda.libraries", "kscope_cuda:CudaFrontend", "cuda"),
    "cuda.core": Entry("cuda.core", "kscope_cuda.core:CoreFrontend", "core"),
    "cute": Entry("cutlass.cute", "kscope_cute:CuteFrontend", "cute"),
    "numba": Entry("numba.cuda", "kscope_numba:NumbaFrontend", "numba"),
    "sim": Entry("kscope_sim", "kscope_sim:SimFrontend", ""),
}
BACKENDS: dict[str, str] = {"cuda": "kscope_runtime:CudaBackend", "sim": "kscope_sim:SimBackend"}

_frontends: dict[str, Frontend] = {}
_backends: dict[str, Backend] = {}


def table() -> dict[str, Entry]:
    """Built-in frontends and those of installed distributions (entry point group ``kscope.frontends``).
    A third party's DSL is taken to be imported when its frontend's package is."""
    return {**_announced(tuple(sys.path)), **TABLE}


@cache
def _announced(path: tuple[str, ...]) -> dict[str, Entry]:
    """Those of distributions on `path`, which is sys.path. Asked once: with 50 distributions it takes 8 ms, and a
    session asks three times."""
    from importlib import metadata  # a quarter of the time that importing kscope would take

    points = metadata.entry_points(group=GROUP)
    return {point.name: Entry(point.value.partition(":")[0], point.value, "") for point in points}


def installed(entry: Entry) -> bool:
    """Whether the DSL is there, without importing it."""
    try:
        return find_spec(entry.dsl) is not None
    except ModuleNotFoundError:  # not even the package that it would lie in
        return False


def _resolve(target: str) -> Any:
    package, _, attribute = target.partition(":")
    return getattr(import_module(package), attribute)


def frontend(name: str) -> Frontend:
    """The frontend of that name, loaded on first use. Raises UsageError or MissingError."""
    if name not in _frontends:
        known = table()
        if name not in known:
            raise UsageError(f"frontend {name!r}: known ones are {', '.join(sorted(known))}")
        entry = known[name]
        try:
            _frontends.setdefault(name, _resolve(entry.target)())  # another thread may have been faster
        except MissingError:  # says already what is not there
            raise
        except ImportError as error:
            cure = installs(entry.extra) if entry.extra else f"check {entry.target}"
            raise MissingError(f"the {name} frontend cannot be loaded ({error}): {cure}") from error
    return _frontends[name]


def backend(name: str) -> Backend:
    """The backend of that name, loaded on first use. Raises MissingError when its driver is not there."""
    if name not in _backends:
        try:
            _backends.setdefault(name, _resolve(BACKENDS[name])())  # another thread may have been faster
        except MissingError:  # says already what is not there
            raise
        except ImportError as error:
            raise MissingError(f"recording on a GPU needs cuda-bindings ({error}): {installs('cuda')}") from error
    return _backends[name]


def imported() -> Iterator[str]:
    """Names of the frontends whose DSL this process has imported."""
    return (name for name, entry in table().items() if entry.dsl in sys.modules)


def loaded() -> tuple[Frontend, ...]:
    """The frontends that are in use now; a simulated kernel's threads may take others into use meanwhile."""
    return tuple(_frontends.values())
