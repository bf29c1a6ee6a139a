"""`__exit__` for a `with` statement whose end no signal can skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

S = TypeVar("S")


class PerStatement(Generic[S]):
    """A method that each `with` statement gets as an object from `bind`, and drops when it ends.

    A signal may keep the first instruction of `__exit__` from running, but the statement drops the object even then:
    a weak reference to it shows whether the statement has ended.
    """

    def __init__(self, method: Callable[..., None], bind: Callable[[S], Callable[..., None]]) -> None:
        self._method, self._bind = method, bind

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Callable[..., None]: ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Callable[..., None]: ...
    def __get__(self, instance: S | None, owner: type[S]) -> Callable[..., None]:
        return self._method if instance is None else self._bind(instance)
