"""Mistakes in a kernel's marks are refused with the line; everything that may be right is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kscope
from kscope import UsageError
from kscope.language.mistakes import refuse_mistakes

LOAD = kscope.scope("load")


class Stages:
    LOAD = kscope.scope("stage")

    def kernel(self) -> None:
        Stages.LOAD()


class Mine(kscope.region):
    """A user's own kind of region."""


def bare(x: int) -> None:
    work(x)
    kscope.region("load", value=x)
    work(x)


def bare_name() -> None:
    LOAD  # noqa: B018


def bare_attribute() -> None:
    Stages.LOAD  # noqa: B018


def called() -> None:
    LOAD(value=3)


def subclass() -> None:
    Mine("mine")


def in_branch(x: int) -> None:
    if x:
        for _ in range(x):
            kscope.region("deep")


def kept() -> None:
    load = kscope.region("load")  # noqa: F841
    work(1)


def kept_and_called() -> None:
    load: Any = kscope.region("load")
    load()


def entered_and_dropped() -> None:
    load = kscope.region("load")
    with load:
        work(1)
    load  # noqa: B018


def nested() -> Callable[[], None]:
    def inner() -> None:
        kscope.region("inner")

    return inner


REFUSED = [
    (bare, 2, "kscope.region('load', value=x) is a statement by itself"),
    (
        bare_name,
        1,
        "LOAD is a statement by itself and records nothing: expected `with LOAD:` (in Triton `with LOAD():`)",
    ),
    (bare_attribute, 1, "expected `with Stages.LOAD:`"),
    (called, 1, "expected `with LOAD(value=3):`"),
    (subclass, 1, "Mine('mine') is a statement by itself"),
    (in_branch, 3, "kscope.region('deep')"),
    (kept, 1, "load = kscope.region('load') creates a region that is never entered, and records nothing"),
    (kept_and_called, 1, "is never entered"),
    (entered_and_dropped, 4, "load is a statement by itself"),
    (nested, 2, "kscope.region('inner')"),
    (Stages.kernel, 1, "Stages.LOAD() is a statement by itself"),
]


@pytest.mark.parametrize(("kernel", "line", "message"), REFUSED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_region_that_is_never_entered_is_refused_with_its_line(kernel: Any, line: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_mistakes(kernel)
    assert str(caught.value).startswith(f"{__file__}:{kernel.__code__.co_firstlineno + line}: ")
    assert message in str(caught.value)


def work(x: object) -> object:
    return x


def helper(x: int) -> None:
    kscope.region("in a helper")


def through_a_helper() -> None:
    with LOAD:
        helper(1)


def test_a_helper_is_checked_with_its_kernel() -> None:
    with pytest.raises(UsageError, match="in a helper"):
        refuse_mistakes(through_a_helper)


def test_objects_that_are_not_to_be_followed_are_not_checked() -> None:
    refuse_mistakes(through_a_helper, lambda thing: thing if thing is through_a_helper else None)


def every_way_to_enter(x: int) -> Any:
    with kscope.region("a") as a, LOAD, LOAD(value=x):
        a.pin(x)
    b = kscope.region("b")
    with b:
        work(x)
    c = kscope.scope("c")
    c.enter()
    c.exit()
    kscope.region("d").enter()
    kscope.region("d").exit()
    e = kscope.region("e")
    work(e)
    f = LOAD  # noqa: F841  # names a scope, and creates none
    kscope.instant("point")
    kscope.counter("number", x)
    work(kscope.region("g"))
    return kscope.region("h")


def shadows(LOAD: Any, kscope: Any) -> None:
    LOAD()
    kscope.region("not ours")


@pytest.mark.parametrize("kernel", [every_way_to_enter, shadows])
def test_code_that_may_enter_its_regions_is_accepted(kernel: Any) -> None:
    refuse_mistakes(kernel)


def test_a_function_without_source_is_not_checked() -> None:
    space: dict[str, Any] = {"kscope": kscope}
    exec("def kernel():\n    kscope.region('load')\n", space)
    refuse_mistakes(space["kernel"])


def with_class() -> None:
    with kscope.region:  # type: ignore[attr-defined]  # the mistake
        work(1)


def without_name(x: int) -> None:
    with LOAD, kscope.region(value=x):  # type: ignore[call-arg]  # the mistake
        work(1)


def with_instant() -> None:
    with kscope.instant("here"):  # type: ignore[func-returns-value, attr-defined]  # the mistake
        work(1)


def value_without_name(x: int) -> None:
    with kscope.region("load", x):  # type: ignore[misc]  # the mistake
        work(1)


def misspelled() -> None:
    with kscope.regoin("load"):  # type: ignore[attr-defined]  # the mistake
        work(1)


def not_in_kscope() -> None:
    with kscope.stopwatch("load"):  # type: ignore[attr-defined]  # the mistake
        work(1)


@pytest.mark.parametrize(("kernel", "message"), [
    (misspelled, "with kscope.regoin('load'): kscope has no regoin; did you mean region?"),
    (not_in_kscope, "with kscope.stopwatch('load'): kscope has no stopwatch"),
    (with_class, 'with kscope.region: a region needs a name, as in `with kscope.region("load"):`'),
    (without_name, "with kscope.region(value=x): a region needs a name"),
    (with_instant, "with kscope.instant('here'): it records a point in time, not a span"),
    (value_without_name, "with kscope.region('load', x): a region takes its value by name: value=x"),
])  # fmt: skip
def test_a_with_on_what_is_no_named_region_is_refused_with_its_line(kernel: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_mistakes(kernel)
    assert str(caught.value).startswith(f"{__file__}:{kernel.__code__.co_firstlineno + 1}: {message}")


def scope_without_call() -> None:
    with LOAD:
        work(1)


def test_a_scope_is_called_where_with_takes_only_calls() -> None:
    refuse_mistakes(scope_without_call)
    with pytest.raises(UsageError, match=r"takes only calls; `with LOAD\(\):`"):
        refuse_mistakes(scope_without_call, with_calls_only=True)


def named_by_keyword() -> None:
    arguments: dict[str, Any] = {"name": "b"}
    with kscope.region(name="a"), kscope.region(**arguments), open("x"):
        work(1)


def test_names_given_by_keyword_are_accepted() -> None:
    refuse_mistakes(named_by_keyword)
