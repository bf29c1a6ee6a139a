"""kscope for toylang: the example of docs/design/writing-a-frontend.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import toylang

from kscope.errors import UnsupportedError, UsageError
from kscope.instrument import registry
from kscope.instrument.frontend import Frontend
from kscope.instrument.recording import Recording
from kscope.language.mistakes import refuse_mistakes
from kscope.lowering import plan
from kscope.marks.constants import with_constant
from kscope.marks.grammar import NEVER, Mark
from kscope.marks.names import ValueType
from kscope.marks.refusals import value_refused
from kscope.ptx import READINGS

HOOKS = ("TRACING", "PASSES", "KEYS", "LOADED", "LAUNCHING")


class ToylangFrontend(Frontend):
    """Places marks in the text as comments; a compiler pass lowers them."""

    name = "toylang"

    def __init__(self) -> None:
        self._recording: Recording | None = None

    def enable(self, recording: Recording) -> None:
        """Kernels compiled from now on carry marks lowered for `recording`."""
        missing = [name for name in HOOKS if not hasattr(toylang.hooks, name)]
        if missing:
            raise UnsupportedError(f"this toylang has no hooks.{missing[0]}, which kscope needs")
        if self._recording is None:
            for name, function in self._functions().items():
                getattr(toylang.hooks, name).append(function)
        self._recording = recording

    def disable(self) -> None:
        """Kernels compiled from now on are plain."""
        if self._recording is not None:
            for name, function in self._functions().items():
                getattr(toylang.hooks, name).remove(function)
        self._recording = None

    def emit(self, mark: Mark, context: Any, value: Any = None, when: Any = None) -> bool:
        """Adds a comment to the kernel being traced, unless it is compiled plain."""
        tracer = toylang.tracing()
        if tracer is None:
            return False
        if self._recording is not None:
            kind, operand = (None, None) if value is None else _operand(mark, value)
            tracer.add(replace(mark, type=kind, operand=operand, when=_predicate(mark, when)).comment())
        return True

    def read(self, name: str, context: Any) -> Any:
        """The value of a device helper in the kernel being traced."""
        tracer, reading = toylang.tracing(), READINGS[name]
        if tracer is None:
            return None
        if reading.type == "i64":
            raise UnsupportedError(f"kscope.{name}() has 64 bits, and toylang's values have 32")
        return tracer.made(reading.text("@@"))

    def _functions(self) -> dict[str, Any]:
        return dict(zip(HOOKS, (refuse_mistakes, self._lower, self._tag, self._loaded, self._launching), strict=True))

    def _lower(self, text: str) -> str:
        assert self._recording is not None
        return plan.lower(text, self._recording, frontend=self.name).text

    def _tag(self) -> str:
        return self._recording.tag(Path(__file__).parent) if self._recording else ""

    def _loaded(self, module: int) -> None:
        registry.backend(self.backend).module_loaded(module)

    def _launching(self) -> None:
        registry.backend(self.backend).pace()


def _predicate(mark: Mark, when: object) -> str | None:
    """The mark's predicate: a register that is nonzero if the mark is recorded, or NEVER."""
    if when is None or when is False:
        return None if when is None else NEVER
    if isinstance(when, toylang.Value):
        return when.register
    raise UsageError(f"when={when!r} of {mark.name!r}: expected a toylang value, True or False")


def _operand(mark: Mark, value: object) -> tuple[ValueType, str]:
    """A value's type, and its operand in PTX."""
    if isinstance(value, toylang.Value):
        return "i32", value.register
    constant = with_constant(mark, value)
    if constant is None or constant.type is None or constant.operand is None:
        raise value_refused(mark, repr(value), "a toylang value, or a number")
    return constant.type, constant.operand
