"""Hooks on CuTe DSL launches: arm each library once per context, and report launches that record nothing. They see
every compiled function that runs, whether called directly, from a cache or from an object file; TVM-FFI calls arrive
through tvm_ffi.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from cutlass.base_dsl import jit_executor

from kscope.capture.model import Problem
from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument import compile_warnings, registry
from kscope.instrument.code_objects import reachable, uses_kscope
from kscope.instrument.hooks import Hook
from kscope.instrument.live_objects import live_objects
from kscope.util.text import counted

from . import hook_points, libraries
from .plain_form import PlainForms
from .tvm_ffi import TvmFfiHooks

_SEEN = "_kscope_contexts"
"""Attribute of CuTe's object for loaded libraries: context -> _Loaded."""
_SYMBOL = "kernel_cutlass_{name}_"
"""Prefix of a kernel's symbol, from the name of its function; its arguments follow."""
_DECORATED, _KIND = frozenset({"_dsl_object", "_dsl_cls", "_preprocess_enabled"}), "_decorator_kind"
"""Attributes of functions under CuTe's decorators: in some version each; which decorator (4.8)."""
_TENSOR = "tensor"
"""The text of a tensor in a symbol begins so."""
_TRACED = "_dsl_kernel_name"
"""Attribute of a kernel's function: the symbol that it was last traced to (4.8)."""


@dataclass
class _Loaded:
    """The libraries of a function in one context.

    Attributes:
        plain: kernels without marks.
        armed: libraries with marks.
        has_state: one of these uses variables, which another module would have again.
        others: options -> kernels that were compiled with other ones.
    """

    plain: list[str]
    armed: list[Any]
    has_state: bool = False
    others: dict[str, list[str]] = field(default_factory=dict)

    def compiled_otherwise(self, options: str) -> list[str]:
        """Kernels with marks that were not compiled with these options."""
        if options not in self.others:
            found = [one for one in self.armed if not libraries.has_symbol(one, options)]
            self.others[options] = [name for library in found for name in libraries.kernels(library)]
        return self.others[options]


class LaunchHooks:
    """The hooks, while recording is enabled."""

    def __init__(
        self, is_selected: Callable[[FunctionType], bool], in_caches: Callable[[], Container[int]] = frozenset
    ) -> None:
        """
        is_selected: True if the selection touches a function.
        in_caches: ids of compiled functions in caches that are bypassed in a session.
        """
        self._is_selected, self._in_caches = is_selected, in_caches
        self._options = ""
        self._bare: dict[str, set[tuple[str, str]]] = {}  # options -> kernels, files: traced with them, without marks
        self._plain: set[str] = set()  # kernels launched though compiled without marks
        self._unmarked: set[str] = set()  # functions without marks from files, of unknown kernels
        self._others: set[str] = set()  # kernels launched though compiled with other options
        self._tvm_ffi = TvmFfiHooks(self._launching)
        self.forms = PlainForms()
        self._run = Hook(jit_executor.JitExecutor, "run_compiled_program", self._run_program)

    def check(self) -> None:
        """Raises UnsupportedError naming a missing hook point."""
        hook_points.check(jit_executor.JitExecutor, "run_compiled_program", "base_dsl.jit_executor.JitExecutor")

    def install(self, options: str) -> None:
        """Idempotent. options: the symbol of modules that are compiled with the options in effect."""
        self._options = options
        self.begin()
        self._run.install()
        self.forms.install()
        self._tvm_ffi.install()

    def begin(self) -> None:
        """Forget the launches until now."""
        for found in (self._plain, self._unmarked, self._others):
            found.clear()

    def traced_without_marks(self, kernels: Iterable[tuple[str, str]]) -> None:
        """Symbols and files of kernels that got no marks though recording was enabled: tracing reached none."""
        self._bare.setdefault(self._options, set()).update(kernels)

    def module_compiled(self) -> None:
        """Hook TVM-FFI if CuTe has imported it for the compilation."""
        self._tvm_ffi.install()

    def remove(self) -> None:
        """Inverse of install()."""
        self._tvm_ffi.remove()
        self.forms.remove()
        self._run.remove()

    def _run_program(self, original: Callable[..., Any], executor: Any, exe_args: Any) -> Any:
        self._launching(executor.jit_module)
        found = vars(executor.jit_module).get(_SEEN, {}).values()
        if any(one.armed for one in found) and not any(one.has_state for one in found):
            executor = self.forms.form(executor, exe_args)
        return original(executor, exe_args)

    def _launching(self, loaded: Any) -> None:
        """Arm the libraries of a function that is about to run, and wait for room.

        loaded: as for _note().
        """
        if self._note(loaded):
            registry.backend("cuda").pace()

    def _note(self, loaded: Any) -> bool:
        """Arm the libraries of a function, and note the kernels that record nothing; False if it launches nothing.

        loaded: CuTe's object with the libraries in `cuda_library`, or a stand-in that also has `kernels`, names of
        kernels that cannot be armed, and `functions`, functions without marks from files.
        """
        self._plain.update(getattr(loaded, "kernels", ()))
        self._unmarked.update(getattr(loaded, "functions", ()))
        loaded_libraries = getattr(loaded, "cuda_library", None)
        if not loaded_libraries:
            return False
        context = libraries.context()
        seen: dict[int, _Loaded] = vars(loaded).setdefault(_SEEN, {})
        if context not in seen:
            seen[context] = _arm(loaded_libraries)
        self._plain.update(seen[context].plain)
        self._others.update(seen[context].compiled_otherwise(self._options))
        return True

    def problems(self) -> tuple[Problem, ...]:
        """Kernels and functions that were launched or loaded without marks, or with other options."""
        known, unseen = self._tvm_ffi.looked_up()
        for library in known:
            self._note(library)
        bare = self._bare.get(self._options, set())
        plain = (
            f"kernel {name} has regions in its source and none in its binary, most likely because it was compiled "
            "before recording was enabled: they are not recorded; compile it after kscope.enable(), or within "
            "kscope.profile()"
            for name in sorted(self._plain)
            if _has_marks(name, self._is_selected, {file for symbol, file in bare if symbol == name})
        )
        unmarked = (
            f"{function} was compiled without recording: its kernels are not recorded; compile it again after "
            "kscope.enable(), or within kscope.profile()"
            for function in sorted(self._unmarked)
        )
        others = (
            f"kernel {name} was compiled with other recording options, or by another version of kscope, and records "
            "as it was compiled; compile it again with this session's options"
            for name in sorted(self._others)
        )
        in_caches = self._in_caches() if unseen else frozenset[int]()
        unknown = [one for one in unseen if id(one) not in in_caches]
        early = (
            f"{counted(len(unknown), 'function')} from object files or of --enable-tvm-ffi, looked up before recording "
            "was enabled: kscope does not see their calls, and records nothing of them; look them up after "
            "kscope.enable(), or within kscope.profile()",
        )
        return (
            *(Problem("plain", text) for text in (*plain, *unmarked)),
            *(Problem("plain", text, len(unknown)) for text in early if unknown),
            *(Problem("options", text) for text in others),
        )


def _arm(loaded_libraries: Sequence[Any]) -> _Loaded:
    """Arm libraries in the current context."""
    found = _Loaded([], [])
    for library in loaded_libraries:
        if libraries.has_symbol(library, CTL_SYMBOL):
            metas = registry.backend("cuda").module_loaded(libraries.module(library))
            compile_warnings.warn_once(problem for meta in metas for problem in meta.problems)
            found.armed.append(library)
            found.has_state |= any(meta.variables for meta in metas)
        else:
            found.plain += libraries.kernels(library)
    return found


def _has_marks(symbol: str, is_selected: Callable[[FunctionType], bool], bare: Container[str]) -> bool:
    """True if the kernel's function, or one that it calls, uses kscope or is selected.

    True if the function no longer exists: it may have used kscope.

    Args:
        symbol: the kernel's symbol.
        is_selected: True if the selection touches a function.
        bare: files of kernels with this symbol that got no marks when they were traced for the current options.
    """
    candidates = _functions(symbol)
    unknown = [function for function in candidates if function.__code__.co_filename not in bare]
    if bare and not unknown:
        return False
    reached = (one for function in unknown for one in reachable(function, user_function))
    return not candidates or any(is_selected(one) or uses_kscope(one) for one in reached)


def _functions(symbol: str) -> list[FunctionType]:
    """The functions under @cute.kernel to which a symbol may belong."""
    found = [
        function
        for function in live_objects(FunctionType)
        if symbol.startswith(_SYMBOL.format(name=function.__name__))
        and not _DECORATED.isdisjoint(vars(function))
        and vars(function).get(_KIND, "kernel") == "kernel"
        and _takes(function, symbol)
    ]
    traced = [function for function in found if vars(function).get(_TRACED) == symbol]
    longest = max((len(function.__name__) for function in found), default=0)
    return traced or [function for function in found if len(function.__name__) == longest]


def _takes(function: FunctionType, symbol: str) -> bool:
    """True if the rest of a symbol, after the function's name, can begin with the function's first argument.

    An argument without annotation is taken for a tensor, or for what it was when the function was last traced.
    """
    rest, traced = _rest(function, symbol), vars(function).get(_TRACED, "")
    code = function.__code__
    if symbol == traced:
        return True
    if code.co_argcount == 0:
        return not rest.strip("_0123456789")
    first = code.co_varnames[0]
    if first == "self":  # the text of the object, by default "<module.Class object at 0x...>"
        return function.__qualname__.split(".")[-2].lower() in rest
    annotation = function.__annotations__.get(first)
    if annotation is None:
        (word,) = re.findall("^[a-z]*", _rest(function, traced))
        return rest.startswith((_TENSOR, word or _TENSOR))
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return not name.endswith("Tensor") or rest.startswith(_TENSOR)


def _rest(function: FunctionType, symbol: str) -> str:
    """The part of a symbol after the function's name, in lower case."""
    return symbol[len(_SYMBOL.format(name=function.__name__)) :].lower()


def user_function(thing: Any) -> Any:
    """The Python function inside a decorated one; None for CuTe's own functions."""
    inner = getattr(thing, "__wrapped__", thing)
    return None if str(getattr(inner, "__module__", "")).startswith("cutlass") else inner
