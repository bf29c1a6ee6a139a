"""Every frontend refuses a region that is never entered, with the file and the line, and a bool as a value."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from contract import frontend_sim, joined
from contract.programs import Program

from kscope import UsageError
from kscope.instrument import registry

MISTAKES = {
    "forgotten": r"kscope\.region\('load'\) is a statement by itself and records nothing: expected `with",
    "dropped": r"PAIR\(\) is a statement by itself and records nothing: expected `with PAIR\(\):`",
    "kept": r"region = kscope\.region\('load'\) creates a region that is never entered",
    "in_helper": r"kscope\.region\('load'\) is a statement by itself",
}
"""Kernels in REFUSED, and the error."""
MACRO = r"KSCOPE_REGION_needs_braces_around_it_and_the_code_to_measure_\w+.? is undefined"
"""Mistakes in C++ frontends, whose compiler refuses the macro."""
BOOLS = {
    "boolean": r"value= of kscope region 'bool' is the bool True: .*; pass value=1",
    "numpy_boolean": r"value= of kscope region 'numpy bool' is the bool False: .*; pass value=0",
}
"""Kernels in REFUSED whose region has a bool as its value, and the error."""
CAST = "the value is an integer, a float, a double or a pointer; cast it"
"""The error of C++ frontends."""


def place(module: ModuleType, kernel: str) -> str:
    """The end of file:line of the mistake."""
    name = {"in_helper": "forgets" if hasattr(module, "forgets") else "forgotten"}.get(kernel, kernel)
    source = Path(inspect.getfile(module))
    if hasattr(module, "triton_programs"):
        source = Path(inspect.getfile(module.triton_programs))
    lines = source.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if re.match(rf"\s*def {name}\(", line))
    return f"{source.name}:{next(n for n in range(first, len(lines)) if lines[n].endswith('# refused')) + 1}: "


def refusal(module: ModuleType, kernel: str) -> Exception:
    """The error of compiling a kernel in REFUSED. Skips if the language has none of that name."""
    if kernel not in module.REFUSED:
        pytest.skip("a macro has no such mistake")
    program = Program(kernel, "a mistake", (kernel,), n=1)
    frontend = registry.frontend(module.FRONTEND)
    frontend.enable(program.recording)
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # C++ compilers have their own
            module.compile(program, 90)
    finally:
        frontend.disable()
    return caught.value


@pytest.mark.parametrize("kernel", MISTAKES)
@pytest.mark.parametrize("name", joined.COMPILERS)
def test_a_region_that_is_never_entered_does_not_compile(name: str, kernel: str) -> None:
    module = joined.load(name)
    caught = refusal(module, kernel)
    message = str(caught)
    if isinstance(module.REFUSED[kernel], str):
        assert re.search(MACRO, message)
        line = module.source_of(kernel).splitlines().index('    if (n) KSCOPE_REGION("load");  // refused') + 1
        assert f"({line}): error" in message
    else:
        assert isinstance(caught, UsageError)
        assert re.search(MISTAKES[kernel], message)
        assert place(module, kernel) in message


@pytest.mark.parametrize("kernel", BOOLS)
@pytest.mark.parametrize("name", joined.COMPILERS)
def test_a_bool_as_a_value_does_not_compile(name: str, kernel: str) -> None:
    module = joined.load(name)
    message = str(refusal(module, kernel))
    assert re.search(CAST if isinstance(module.REFUSED[kernel], str) else BOOLS[kernel], message)


@pytest.mark.parametrize("kernel", BOOLS)
def test_the_simulator_refuses_a_bool_as_a_value(kernel: str) -> None:
    with pytest.raises(UsageError, match=BOOLS[kernel]):
        frontend_sim.run(Program(kernel, "a bool", (kernel,), n=1))


@pytest.mark.parametrize("kernel", MISTAKES)
def test_the_simulator_refuses_it_at_the_launch(kernel: str) -> None:
    with pytest.raises(UsageError, match=MISTAKES[kernel]) as caught:
        frontend_sim.run(Program(kernel, "a mistake", (kernel,), n=1))
    assert place(frontend_sim, kernel) in str(caught.value)


@pytest.mark.parametrize("name", sorted({*joined.COMPILERS, "sim"}))
def test_every_frontend_has_every_mistake_of_its_language(name: str) -> None:
    refused: dict[str, Any] = joined.load(name).REFUSED
    macros = isinstance(refused["forgotten"], str)
    assert {*refused} == ({"forgotten", "boolean"} if macros else {*MISTAKES, *BOOLS})
