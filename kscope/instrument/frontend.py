"""The Frontend interface: one per kernel language, turns `with kscope.region(...)` into marks and lowers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from ..capture.capture_data import LaunchCount
    from ..capture.model import ModuleMeta, Problem
    from ..marks.grammar import Mark
    from .recording import Recording


class Demo(Protocol):
    """The module `demo` of a built-in frontend's package.

    Attributes:
        TITLE: names its kernel.
    """

    TITLE: str

    def obstacle(self) -> str:
        """Reason why the kernel cannot run here; empty if it can."""
        ...

    def run(self) -> None:
        """Launch the kernel."""
        ...


class Frontend(ABC):
    """One DSL. The registry creates it once, when the DSL is imported and recording is first enabled.

    Attributes:
        name: the frontend's name in the registry.
        backend: the name of the backend that its kernels record into.
        selects: kinds that it can mark in unannotated kernels, see Recording.selection; "pipeline" is one of them.
    """

    name: ClassVar[str]
    backend: ClassVar[str] = "cuda"
    selects: ClassVar[frozenset[Literal["kinds", "lines", "pipeline"]]] = frozenset()

    @abstractmethod
    def enable(self, recording: Recording) -> None:
        """Install hooks: kernels compiled from now on have a marked form. May be called again with other options.

        Args:
            recording: the options for which marked forms are lowered.

        Raises:
            UnsupportedError: the DSL lacks a hook point; the message names it and the DSL's version.
        """

    @abstractmethod
    def disable(self) -> None:
        """Remove every hook: kernels compiled from now on are plain."""

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Place a mark where the DSL is tracing now.

        Args:
            mark: the mark, without its operands.
            context: the DSL's argument of builtins (Triton's ``_semantic``), None for other DSLs.
            value: a constant or the DSL's run-time value to record; None for none.
            when: the DSL's run-time predicate; None is always, False is never.

        Returns:
            False if the DSL is not tracing.
        """
        return False

    def read(self, name: str, context: Any) -> Any:
        """A device helper in the kernel that the DSL is tracing or running; works without enable().

        Args:
            name: a key of ``ptx.READINGS``, such as "clock".
            context: as for emit().

        Returns:
            The DSL's own value; None if the DSL is not tracing.
        """
        return None

    def cache_key(self, *parts: object) -> list[Any]:
        """Objects that the DSL hashes into its cache keys for a scope declared outside a kernel (Triton).

        Args:
            *parts: the scope's fields.
        """
        return []

    def bind(self, code: Any, image: Any) -> tuple[ModuleMeta, ...]:
        """Arm code that was loaded without the frontend's hooks.

        Args:
            code, image: as for ``kscope.bind()``.

        Returns:
            The metadata that the code carries.
        """
        raise UnsupportedError(f"the {self.name} frontend cannot bind code that was loaded elsewhere")

    def described(self, code: bytes) -> tuple[ModuleMeta, ...]:
        """Metadata in a loaded module, in a form that only this frontend can read; empty without any.

        Args:
            code: the module's cubin.
        """
        return ()

    def limitation(self) -> str:
        """A limitation of this installation and how to lift it, for `kscope doctor`; empty if there is none."""
        return ""

    def prepare(self) -> None:  # noqa: B027  # a frontend that compiles nothing in the background
        """Called before a session begins: wait for background compilations. A signal may interrupt it."""

    def begin(self) -> None:  # noqa: B027  # a frontend that observes no launches keeps no problems
        """Called when a session begins, or begins again: launches run marked kernels from now on.

        Clears the problems of earlier launches.
        """

    def end(self) -> None:  # noqa: B027  # a frontend that does not exchange kernels
        """Called when a session ends and recording stays enabled: launches run plain kernels where possible."""

    def launches(self) -> dict[int, LaunchCount]:
        """Launches since begin() that certainly record, by kernel id."""
        return {}

    def tuning_launches(self) -> int:
        """Launches since begin() by which an autotuner timed configurations: they run plain and record nothing."""
        return 0

    def problems(self) -> tuple[Problem, ...]:
        """Problems since begin(), to be stored with the capture."""
        return ()
