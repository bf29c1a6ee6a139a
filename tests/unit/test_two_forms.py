"""Of a kernel in two forms, one gets the other's attributes; a grid whose blocks may wait for one another runs the form
that it was sized by."""

from __future__ import annotations

from typing import Any

import pytest

from kscope.instrument.two_forms import CARVEOUT, CLUSTER, MAX_DYNAMIC_SHARED, Grid, Mirror, runs_plain_problem

OURS, OTHER, SMS = 1, 2, 132


class Driver:
    """Attributes by function. unknown: those that this driver does not have."""

    def __init__(self, *unknown: int) -> None:
        self.values = {OURS: dict[int, int](), OTHER: dict[int, int]()}
        self.unknown, self.set_calls = unknown, list[tuple[int, int, int]]()

    def get(self, attribute: int, function: int) -> int:
        if attribute in self.unknown:
            raise RuntimeError("CUDA_ERROR_INVALID_VALUE")
        return self.values[function].get(attribute, 0)

    def set(self, function: int, attribute: int, value: int) -> None:
        self.set_calls.append((function, attribute, value))
        self.values[function][attribute] = value


@pytest.mark.parametrize("unknown", [(), CLUSTER])
def test_attributes_that_a_program_sets_reach_the_other_form(unknown: tuple[int, ...]) -> None:
    driver = Driver(*unknown)
    driver.set(OURS, MAX_DYNAMIC_SHARED, 100_000)  # before there was another form
    mirror = Mirror(driver.get, driver.set, OURS, OTHER)
    mirror.update()
    for attribute, value in ((CARVEOUT, 50), (MAX_DYNAMIC_SHARED, 60_000), (MAX_DYNAMIC_SHARED, 100_000)):
        driver.set(OURS, attribute, value)
        mirror.update()
        assert driver.values[OTHER] == driver.values[OURS]
    if not unknown:
        for axis in CLUSTER:
            driver.set(OURS, axis, 2)
        mirror.update()
        assert driver.values[OTHER] == driver.values[OURS]


def test_attributes_that_did_not_change_are_not_set_again() -> None:
    driver = Driver()
    mirror = Mirror(driver.get, driver.set, OURS, OTHER)
    for _ in range(2):
        mirror.update()
    assert driver.set_calls == []


@pytest.mark.parametrize(
    ("blocks", "cooperative", "by_other"),
    [
        ((2 * SMS,), False, True),  # one wave of the other form
        ((SMS, 2), False, True),
        ((2 * SMS,), True, True),
        ((SMS + 1,), True, True),
        ((SMS + 1,), False, False),  # no grid for whole SMs
        ((SMS,), True, False),  # fits in both
        ((3 * SMS,), False, False),  # fits in neither: its blocks cannot wait for one another
    ],
)
def test_a_grid_that_fits_only_in_one_form_was_sized_by_it(
    blocks: tuple[int, ...], cooperative: bool, by_other: bool
) -> None:
    grid = Grid(blocks, SMS, cooperative)
    assert grid.is_sized_by(lambda: 2, instead_of=lambda: 1) == by_other
    assert not grid.is_sized_by(lambda: 1, instead_of=lambda: 2)
    assert not grid.is_sized_by(lambda: 2, instead_of=lambda: 2)


def test_the_occupancy_of_the_other_form_is_read_only_if_a_grid_exceeds_ours() -> None:
    def fail() -> Any:
        raise AssertionError("loaded for nothing")

    assert not Grid((2 * SMS,), SMS).is_sized_by(fail, instead_of=lambda: 2)
    assert not Grid((2 * SMS + 1,), SMS).is_sized_by(fail, instead_of=fail)
    assert not Grid((33 * SMS,), SMS).is_sized_by(fail, instead_of=fail)  # no GPU runs so many at once


def test_a_refused_launch_names_its_kernel() -> None:
    problem = runs_plain_problem("reduce")
    assert problem.kind == "cooperative" and problem.kernel == "reduce" and "kernel reduce: " in problem.text
