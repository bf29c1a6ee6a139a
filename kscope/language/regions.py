"""Region, scope, instant and counter: marks inside a kernel. They emit marks through the frontend that is tracing;
outside kernels they do nothing.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from ..instrument import registry
from ..marks.grammar import Act, How, Mark
from ..marks.names import BEGIN_TRACK, END_TRACK, ROLE_TRACK, check_name
from ..marks.predicates import constant_predicate
from ..marks.strategies import Strategy, strategy_of
from ..marks.work import with_work


def _spec(strategy: Any) -> str | None:
    strategy = getattr(strategy, "value", strategy)
    return None if strategy is None else strategy_of(strategy).spec


def _place(
    act: Act, name: str, spec: str | None, how: How, value: Any, context: Any, when: Any = None, open: bool = False
) -> None:
    mark = Mark(act, name, None, spec, how, open=open)
    constant = constant_predicate(when)
    predicate = () if constant else (False if constant is False else when,)
    if context is not None:
        registry.frontend(registry.COMPILER).emit(mark, context, value, *predicate)
        return
    for frontend in registry.loaded():
        if frontend.emit(mark, None, value, *predicate):
            return


class scope:  # noqa: N801  # lower case: it reads as a keyword in kernels
    """A named span of a kernel, declared once and entered anywhere, in any kernel language.

    Enter it with ``with LOAD:`` (in Triton, whose `with` takes only calls, ``with LOAD():``), or with
    ``LOAD.enter()`` and ``LOAD.exit()``. These must pair on every path, or compilation raises PairingError.

    Args:
        name: constant string, 1 to 512 bytes of UTF-8 including the track.
        strategy: which lanes record, such as AllThreads() or its text "all"; None for the session's strategy.
        value: integer or float of 32 or 64 bits to store with each record; evaluated on entry. None for no value.
        track: constant string; draw the scope on a row of that name, below its warp. None for the warp's own row.
        when: bool or integer, evaluated once, on entry; the scope is recorded if it is nonzero. A constant False
            emits no code. None for always.
        open: constant bool; in sessions with survive=, store the entry into the scope at once, so that ``kscope watch``
            shows it for a kernel that hangs or died. Scopes whose code waits do so by default.
        bytes: bytes that a block moves from and to memory in one execution, all its warps together, for ``kscope
            rates``: an integer, or a run-time value, which becomes the record's value. None to count them in the
            machine code.
        flops: floating-point operations, in the same way; a multiply-add counts as two.

    Raises:
        UsageError: the name or track is not a constant string, there is no such strategy, or both work and value are
            known only at run time.
    """

    __triton_builtin__ = True
    __dsl_trace_time_ctxmgr__ = True
    _how: How = "with"

    def __init__(
        self,
        name: Any,
        *,
        strategy: Strategy | str | None = None,
        value: Any = None,
        track: Any = None,
        when: Any = None,
        bytes: Any = None,
        flops: Any = None,
        open: Any = False,
        _semantic: Any = None,
    ) -> None:
        work, value = with_work(getattr(name, "value", name), value, bytes=bytes, flops=flops)
        self.name = check_name(name, track, work)
        self._open = bool(getattr(open, "value", open))
        self._spec, self._value, self._when, self._context = _spec(strategy), value, when, _semantic
        # Triton hashes a global aggregate into the kernel's cache key.
        vars(self).update(__triton_aggregate__=True, __annotations__={})

    @property
    def hash_attrs(self) -> list[Any]:
        """Fields that Triton hashes for a scope that is declared outside the kernel."""
        predicate = () if self._when is None else (self._when,)
        predicate = (*predicate, "open") if self._open else predicate
        return registry.frontend(registry.COMPILER).cache_key(self.name, self._spec, self._value, *predicate)

    def __call__(self, value: Any = None, *, when: Any = None, _semantic: Any = None) -> scope:
        """A copy to enter in place: ``with LOAD():`` or ``with LOAD(value=k):``.

        Args:
            value: replaces the scope's value unless None.
            when: replaces the scope's predicate unless None.
        """
        entered = copy(self)
        entered._value = self._value if value is None else value
        entered._when = self._when if when is None else when
        entered._context = _semantic or self._context
        return entered

    def __enter__(self) -> scope:
        if constant_predicate(self._when) is not False:
            _place("enter", self.name, self._spec, self._how, self._value, self._context, self._when, self._open)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and constant_predicate(self._when) is not False:
            _place("exit", self.name, self._spec, self._how, None, self._context)

    def enter(self, value: Any = None, *, when: Any = None, _semantic: Any = None) -> None:
        """Begin the scope; exit() ends it.

        Args:
            value: replaces the scope's value unless None.
            when: replaces the scope's predicate unless None.

        Raises:
            UsageError: the value is no number of 32 or 64 bits, or the predicate is not one bool or integer.
        """
        value, when = self._value if value is None else value, self._when if when is None else when
        _place("enter", self.name, self._spec, "call", value, _semantic or self._context, when, self._open)

    def exit(self, *, _semantic: Any = None) -> None:
        """End the scope begun by enter()."""
        _place("exit", self.name, self._spec, "call", None, _semantic or self._context)

    def pin(self, value: Any, *, _semantic: Any = None) -> None:
        """Force `value` to be computed before this point. Compilers may otherwise move arithmetic across marks.

        Costs one store that never executes per 32 bits of `value` in a thread.

        Args:
            value: scalar or tensor of the kernel language.
        """
        if constant_predicate(self._when) is not False:
            _place("pin", self.name, self._spec, "call", value, _semantic or self._context)


class region(scope):  # noqa: N801  # as scope
    """A scope that is declared where it is entered.

    ``with kscope.region("load", value=k, when=k % 8 == 0, track="loads"):``. Arguments and errors are those of scope.
    """


def instant(
    name: Any,
    value: Any = None,
    *,
    strategy: Strategy | str | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """Record a point in time.

    Args:
        name: constant string, 1 to 512 bytes of UTF-8 including the track.
        value: integer or float of 32 or 64 bits to store with the record; None for no value.
        strategy: which lanes record, such as AllThreads() or its text "all"; None for the session's strategy.
        track: constant string; draw it on a row of that name, below its warp. None for the warp's own row.
        when: bool or integer, recorded if nonzero. A constant False emits no code. None for always.

    Raises:
        UsageError: an argument is invalid; see scope.
    """
    if constant_predicate(when) is not False:
        _place("instant", check_name(name, track), _spec(strategy), "call", value, _semantic, when)


def counter(
    name: Any,
    value: Any,
    *,
    strategy: Strategy | str | None = None,
    track: Any = None,
    when: Any = None,
    _semantic: Any = None,
) -> None:
    """Record a number over time, drawn as a counter track.

    Args:
        name: constant string, 1 to 512 bytes of UTF-8 including the track.
        value: integer or float of 32 or 64 bits.
        strategy: which lanes record, such as AllThreads() or its text "all"; None for the session's strategy.
        track: constant string; draw it on a row of that name, below its warp. None for the warp's own row.
        when: bool or integer, recorded if nonzero. A constant False emits no code. None for always.

    Raises:
        UsageError: an argument is invalid; see scope.
    """
    if constant_predicate(when) is not False:
        _place("counter", check_name(name, track), _spec(strategy), "call", value, _semantic, when)


def role(name: Any, *, strategy: Strategy | None = None, _semantic: Any = None) -> None:
    """Name the role of the calling warp, such as ``producer``. Tables, the report and timelines group and label warps
    by it, instead of by the regions that they record.

    It stores one record, which is not part of the trace. Call it once, anywhere in the warp's code; where a ring
    overwrites the first records, at its end. Warps of the same number in other blocks of the kernel have the same role,
    unless they name another one.

    Args:
        name: constant string, 1 to 512 bytes of UTF-8 including the track.
        strategy: which lanes record; None for the session's strategy.

    Raises:
        UsageError: an argument is invalid; see scope.
    """
    _place("instant", check_name(name, ROLE_TRACK), _spec(strategy), "call", None, _semantic)


def begin(
    name: Any, key: Any = None, *, strategy: Strategy | str | None = None, when: Any = None, _semantic: Any = None
) -> None:
    """Begin a span of work that is in flight: end() with the same name and key ends it, in any warp of the block, in
    another iteration or another function.

    Any number may be open at once, also with one key: the oldest ends first. What never ends is a problem of the trace.

    Args:
        name: constant string, 1 to 512 bytes of UTF-8.
        key: integer or float of 32 or 64 bits that distinguishes spans of one name, such as a stage, an iteration or an
            address. None for no key.
        strategy: which lanes record, such as Elected(any_lane=True); None for the session's strategy.
        when: bool or integer, begins if nonzero. A constant False emits no code. None for always.

    Raises:
        UsageError: an argument is invalid; see scope.
    """
    if constant_predicate(when) is not False:
        _place("instant", check_name(name, BEGIN_TRACK), _spec(strategy), "call", key, _semantic, when)


def end(
    name: Any, key: Any = None, *, strategy: Strategy | str | None = None, when: Any = None, _semantic: Any = None
) -> None:
    """End the oldest open span that begin() began in this block with the same name and key.

    Args:
        name: constant string, as in begin().
        key: as in begin().
        strategy: which lanes record; None for the session's strategy.
        when: bool or integer, ends if nonzero. A constant False emits no code. None for always.

    Raises:
        UsageError: an argument is invalid; see scope.
    """
    if constant_predicate(when) is not False:
        _place("instant", check_name(name, END_TRACK), _spec(strategy), "call", key, _semantic, when)


MARKS_BY_CALL = (instant, counter, role, begin, end)
"""Functions that place a mark; a name comes first, then a value or a key."""
for _builtin in (*MARKS_BY_CALL, scope.enter, scope.exit, scope.pin):
    vars(_builtin)["__triton_builtin__"] = True  # read by the compiler's call protocol
