"""The forms of a session besides `with`: a decorator, and start() and stop()."""

from __future__ import annotations

import atexit
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from ..errors import UsageError
from .states import STATE

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Forms")


class Forms(ABC):
    """The ways to use a session other than `with`."""

    @abstractmethod
    def __enter__(self) -> Any: ...

    @abstractmethod
    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def _within(self, what: str) -> bool:
        """True if the session records. Raises UsageError outside its body."""

    @abstractmethod
    def _renew(self) -> None:
        """Forget the last recording."""

    def start(self: S) -> S:
        """Begin to record without a `with` statement. A session that is not stopped ends with the process.

        Returns:
            The session.

        Raises:
            UsageError: a session is active, or this one has recorded already.
        """
        self.__enter__()
        atexit.register(self._stop)
        return self

    def stop(self) -> None:
        """End what start() began: wait for the kernels, save and export.

        Raises:
            UsageError: the session is not recording, or a file cannot be written.
        """
        if self._within("stop"):
            self._stop()

    def _stop(self) -> None:
        atexit.unregister(self._stop)
        if STATE.active is self:
            self._leave(None, None, None)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call is recorded, and the session keeps the last recording.

        Args:
            function: a function or a coroutine function. Nested calls are part of the outer recording.

        Raises:
            UsageError: not a function, or a generator function.
        """
        return _decorated(function, self._once_more)

    def _once_more(self) -> AbstractContextManager[object]:
        """The session, ready to record again; no session if it records already."""
        if STATE.active is self:
            return nullcontext()
        self._renew()
        return cast("AbstractContextManager[object]", self)


def _decorated(function: Callable[P, R], recorded: Callable[[], AbstractContextManager[object]]) -> Callable[P, R]:
    """The function, called inside recorded()."""
    if not callable(function):
        raise UsageError(f"@kscope.profile(...) on {function!r}: expected a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"@kscope.profile(...) on {function.__qualname__}: a generator runs after its call; "
            "use `with kscope.profile(...):` around the loop over it"
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> object:
            with recorded():
                return await function(*args, **kwargs)

        return cast(Callable[P, R], awaited)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with recorded():
            return function(*args, **kwargs)

    return called
