"""The names that a user writes inside a kernel: region, scope, instant, counter.

They work by placing Marks through whichever frontend is tracing now; outside of any kernel they do
nothing. What lives here: the user's surface, the same for every DSL. What does not: how a mark is
carried (frontends) and what it becomes (lowering/).
"""

from __future__ import annotations

from copy import copy
from types import TracebackType
from typing import Any, Literal

from ..errors import UsageError
from ..instrument import registry
from ..marks.grammar import Act, How, Mark, check_name
from ..marks.predicates import constant_predicate
from ..marks.strategies import Strategy


def _spec(strategy: Any) -> str | None:
    strategy = getattr(strategy, "value", strategy)
    if strategy is None:
        return None
    if not isinstance(strategy, Strategy):
        raise UsageError(f"strategy={strategy!r}: expected Lane0Warp0(), Elected(), TargetWarp(n) or AllThreads()")
    return strategy.spec


def _place(act: Act, name: str, spec: str | None, how: How, value: Any, context: Any, when: Any = None) -> None:
    mark = Mark(act, name, None, spec, how)
    held = constant_predicate(when)
    asked = () if held else (False if held is False else when,)
    if context is not None:
        registry.frontend(registry.COMPILER).emit(mark, context, value, *asked)
        return
    for frontend in registry.loaded():
        if frontend.emit(mark, None, value, *asked):
            return


class scope:  # noqa: N801  # lower case as it is used: a word of the kernel's language
    """A named scope of a kernel: declared once, entered anywhere, in any frontend.

    name: a constant string. strategy: who records it, where not the session's strategy.
    value: 32 bits that go with each record: an i32, u32 or f32 known when the scope is entered.
    track: a constant string; the scope is drawn on a row of that name, below its warp.
    when: a bool, or an integer that is not 0 where the scope is recorded; each recording lane asks when it enters.
        One that is known to be False when the kernel is compiled leaves nothing in it.

    Use as ``with LOAD:`` (in Triton, whose `with` takes calls only, ``with LOAD():``), or ``LOAD.enter()``
    and ``LOAD.exit()`` where a `with` does not fit.
    Raises UsageError for a name that is no constant string, PairingError when the kernel is compiled
    and an explicit enter has no exit on some path.
    """

    __triton_builtin__ = True
    __dsl_trace_time_ctxmgr__ = True
    _how: How = "with"

    def __init__(
        self,
        name: Any,
        *,
        strategy: Strategy | None = None,
        value: Any = None,
        track: Any = None,
        when: Any = None,
        _semantic: Any = None,
    ) -> None:
        self.name = check_name(name, track)
        self._spec, self._value, self._when, self._context = _spec(strategy), value, when, _semantic
        # A global that a Triton kernel uses: as an aggregate it is hashed into the kernel's cache key.
        vars(self).update(__triton_aggregate__=True, __annotations__={})

    @property
    def hash_attrs(self) -> list[Any]:
        """What Triton hashes of a scope that was declared outside of the kernel."""
        asked = () if self._when is None else (self._when,)
        return registry.frontend(registry.COMPILER).spelling(self.name, self._spec, self._value, *asked)

    def __call__(self, value: Any = None, *, when: Any = None, _semantic: Any = None) -> scope:
        """The scope, entered in place: ``with LOAD():`` or ``with LOAD(value=k):``."""
        entered = copy(self)
        entered._value = self._value if value is None else value
        entered._when = self._when if when is None else when
        entered._context = _semantic or self._context
        return entered

    def __enter__(self) -> scope:
        if constant_predicate(self._when) is not False:
            _place("enter", self.name, self._spec, self._how, self._value, self._context, self._when)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and constant_predicate(self._when) is not False:
            _place("exit", self.name, self._spec, self._how, None, self._context)

    def enter(self, value: Any = None, *, when: Any = None, _semantic: Any = None) -> None:
        """Begin the scope where a `with` does not fit."""
        value, when = self._value if value is None else value, self._when if when is None else when
        _place("enter", self.name, self._spec, "call", value, _semantic or self._context, when)

    def exit(self, *, _semantic: Any = None) -> None:
        """End the scope that enter() began."""
        _place("exit", self.name, self._spec, "call", None, _semantic or self._context)

    def pin(self, value: Any, *, _semantic: Any = None) -> None:
        """Keep the computation of `value` before this point of the scope: compilers move pure arithmetic
        across marks. Costs a store that never fires per 32 bits of `value` that a thread holds."""
        if constant_predicate(self._when) is not False:
            _place("pin", self.name, self._spec, "call", value, _semantic or self._context)


class region(scope):  # noqa: N801  # as scope
    """A scope entered in place: ``with kscope.region("load", value=k, when=k % 8 == 0, track="loads"):``."""


def selected(name: str, origin: Literal["auto", "lines"]) -> scope:
    """The scope of a region that auto= or regions= selected in code without annotations.

    Args:
        name: the region's name.
        origin: "auto" or "lines", see RegionMeta.origin.
    """
    made = scope(name)
    made._how = origin
    return made


def instant(
    name: Any,
    value: Any = None,
    *,
    strategy: Strategy | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """Mark a point in time, with 32 bits of the user's where `value` is given. The rest as for a scope."""
    if constant_predicate(when) is not False:
        _place("instant", check_name(name, track), _spec(strategy), "call", value, _semantic, when)


def counter(
    name: Any,
    value: Any,
    *,
    strategy: Strategy | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """Record a number over time: an i32, u32 or f32, drawn as a counter track. The rest as for a scope."""
    if constant_predicate(when) is not False:
        _place("counter", check_name(name, track), _spec(strategy), "call", value, _semantic, when)


for _builtin in (instant, counter, scope.enter, scope.exit, scope.pin):
    vars(_builtin)["__triton_builtin__"] = True  # read by the compiler's call protocol
