"""The stall samples of a session, joined with the code in which they were taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..capture.capture_data import LaunchCount
from ..capture.model import KernelMeta, ModuleMeta, Problem
from ..capture.samples import SampledFunction, Samples, joined_samples
from ..capture.wire import CTL_SYMBOL
from ..errors import DriverError, FormatError, MissingError, UnsupportedError, UsageError
from ..instrument import loaded_code
from ..instrument.backend import Backend
from ..instrument.raw_samples import SampledCode
from ..util.grouping import grouped
from ..util.parallel import map_ahead
from .kernel_filter import Patterns
from .sources import with_sources

_LEAST_ELSEWHERE = 0.01
_UNNAMED = (
    "the driver's own kernels, or modules loaded before their GPU was sampled, while another profiler or another GPU "
    "already used CUPTI in this process; use each GPU once before the session"
)


class Stalls:
    """Stall sampling of a session's backends; does nothing without a period.

    Args:
        period: cycles between two samples; None for a session that does not sample.
    """

    def __init__(self, period: int | None) -> None:
        self._period, self._epoch, self._paused = period, 0, False
        self._problems, self._backends = list[Problem](), list[Backend]()
        self.options: dict[str, object] = {"stalls": None if period is None else True, "period": period}

    def begin(self, backend: Backend, epoch: int) -> None:
        """Let a backend sample from now on. If it cannot, the session continues without samples. A new epoch
        starts over.
        """
        if self._period is None:
            return
        if epoch != self._epoch:
            self._epoch, self._problems, self._backends = epoch, [], []
        try:
            backend.begin_samples(self._period)
        except (MissingError, UnsupportedError, UsageError, DriverError) as error:
            self._problems.append(_unsampled(str(error)))
        else:
            self._backends.append(backend)
            backend.pause_samples(self._paused)

    def pause(self, paused: bool) -> None:
        """Stop for now, or continue."""
        self._paused = paused
        for backend in self._backends:
            backend.pause_samples(paused)

    def wait(self) -> None:
        """Return when everything launched so far has finished."""
        for backend in self._backends:
            backend.wait()

    def end(self, *, wait: bool) -> None:
        """Stop; if `wait`, all launches have ended."""
        for backend in self._backends:
            backend.end_samples(wait=wait)

    def collected(
        self, modules: Sequence[ModuleMeta], kernels: Patterns, launches: Mapping[int, LaunchCount]
    ) -> tuple[Samples | None, tuple[Problem, ...]]:
        """The samples, or None; and problems for readers.

        Args:
            modules: of kernels with marks.
            kernels: those to keep.
            launches: by kernel id.
        """
        if self._period is None:
            return None, ()
        samples = collect_samples(self._backends, modules, kernels)
        reported = [_unsampled(text) for backend in self._backends for text in backend.sampling_problems()]
        missed = () if samples is None else _missed(samples, modules, kernels, launches)
        found = tuple(dict.fromkeys((*self._problems, *reported, *problems(samples), *missed)))
        if code := _unsampled_code(samples, modules, kernels, launches):
            base = Samples(self._period) if samples is None else samples
            samples = replace(base, functions=(*base.functions, *code))
        return samples, found


def _unsampled(text: str) -> Problem:
    return Problem("unsampled", f"stalls were not sampled: {text}")


def collect_samples(backends: Iterable[Backend], modules: Sequence[ModuleMeta], kernels: Patterns) -> Samples | None:
    """The backends' samples, with the code's instructions, for the kernels that are kept."""
    found = joined_samples([_described(one, modules) for backend in backends for one in backend.samples()])
    if found is None:
        return None
    if kernels.globs:
        found = found.of(
            number
            for number, function in enumerate(found.functions)
            if kernels.match(function.name, -1 if function.kernel is None else function.kernel)
        )
    functions, sources = with_sources(found.functions)
    return replace(found, functions=functions, sources=sources)


def problems(samples: Samples | None) -> list[Problem]:
    """Problems of the samples for readers."""
    if samples is None:
        return []
    found = list[Problem]()

    def note(text: str, count: int = 1, kernel: str | None = None) -> None:
        found.append(Problem("unsampled", text, count, kernel=kernel))

    if not len(samples) and not samples.elsewhere:
        note("no stall was sampled: no kernel ran on a sampled GPU for longer than a period")
    if samples.dropped:
        note(f"the hardware dropped {samples.dropped:,} samples: pass a longer period=", samples.dropped)
    if samples.full:
        note("the hardware's buffer for samples was full, which loses samples: pass a longer period=", samples.full)
    if samples.elsewhere > _LEAST_ELSEWHERE * (len(samples) + samples.elsewhere):
        text = f"{samples.elsewhere:,} samples are of kernels without a name, {len(samples):,} of named ones"
        note(f"{text}: {_UNNAMED}", samples.elsewhere)
    if samples.left_out:
        text = f"{samples.left_out:,} samples exceed the table's limit and were left out"
        note(f"{text}: sample fewer kernels at a time", samples.left_out)
    for one in samples.functions:
        if one.why_unknown and one.kernel is not None:
            note(f"kernel {one.name}: its samples have no regions: {one.why_unknown}", kernel=one.name)
    return found


def _missed(
    samples: Samples, modules: Sequence[ModuleMeta], kernels: Patterns, launches: Mapping[int, LaunchCount]
) -> Iterator[Problem]:
    """Problems of kernels that were launched but have no samples."""
    sampled = {one.kernel for one in samples.functions} | {one.name for one in samples.functions}
    unknown = [one.name for one in samples.functions if one.why_unknown]
    for kernel in (kernel for module in modules for kernel in module.kernels):
        count = launches.get(kernel.id, LaunchCount())
        if (times := count.direct + count.replayed) and not sampled & {kernel.id, kernel.name}:
            if any(_is_of(name, kernel) for name in unknown) or not kernels.match(kernel.name, kernel.id):
                continue
            why = "it ran for less than a period, or in a context that is not sampled"
            if samples.elsewhere:
                why = "its samples may be among those without a name"
            text = f"kernel {kernel.name}: launched, but none of its stalls was sampled: {why}"
            yield Problem("unsampled", text, times, kernel=kernel.name)


def _unsampled_code(
    samples: Samples | None, modules: Sequence[ModuleMeta], kernels: Patterns, launches: Mapping[int, LaunchCount]
) -> list[SampledFunction]:
    """The machine code of kernels with marks that were launched and have no samples, for a crosscheck without them."""
    sampled = set() if samples is None else {one.kernel for one in samples.functions}
    launched = {number for number, count in launches.items() if count.direct + count.replayed} - sampled
    known = (kernel for module in modules for kernel in module.kernels)
    sought = {one.id for one in known if one.id in launched and kernels.match(one.name, one.id)}
    if not sought:
        return []
    from ..machine_code import tools  # loaded on first use

    found = list[tuple[bytes, list[SampledFunction]]]()
    for cubin in loaded_code.kept_cubins():
        own = [SampledFunction(symbol, number) for symbol, number in tools.builds_in(cubin).items() if number in sought]
        if own:
            found.append((cubin, own))
            sought -= {one.kernel for one in own}
    described = map_ahead(lambda one: _of_one_cubin(one[1], one[0], modules), found)
    return [function for functions in described for function in functions]


def _described(raw: SampledCode, modules: Sequence[ModuleMeta]) -> Samples:
    """The samples with the instructions of their functions."""
    functions = list(raw.samples.functions)
    by_cubin = grouped((cubin, function) for function, cubin in raw.cubin_of.items())

    def read(item: tuple[int, list[int]]) -> list[tuple[int, SampledFunction]]:
        cubin, members = item
        found = _of_one_cubin([functions[one] for one in members], raw.cubins[cubin], modules)
        return list(zip(members, found, strict=True))

    for number, one in enumerate(functions):
        if number not in raw.cubin_of and one.kernel is None:  # its code is unknown
            functions[number] = replace(one, kernel=_kernel(one.name, {}, modules, True))
    for rows in map_ahead(read, by_cubin.items()):
        for number, one in rows:
            functions[number] = one
    return replace(raw.samples, functions=tuple(functions))


def _of_one_cubin(
    sampled: Sequence[SampledFunction], cubin: bytes, modules: Sequence[ModuleMeta]
) -> list[SampledFunction]:
    from ..machine_code import code_map, tools  # loaded on first use

    try:
        builds = tools.builds_in(cubin)
    except FormatError:
        builds = {}
    marked = CTL_SYMBOL.encode() in cubin
    named = [replace(one, kernel=_kernel(one.name, builds, modules, marked)) for one in sampled]
    numbers = {one.kernel for one in named}
    own = [module for module in modules if any(kernel.id in numbers for kernel in module.kernels)]
    return code_map.with_instructions(named, cubin, *code_map.marks_of(own or modules))


def _kernel(symbol: str, builds: dict[str, int], modules: Sequence[ModuleMeta], mangled: bool) -> int | None:
    """The id of a kernel with marks: from the module's metadata, else of the only kernel to which the symbol may
    belong.

    mangled: it may have marks, so its symbol may be the mangled name.
    """
    if symbol in builds:
        return builds[symbol]
    if len(builds) == 1:
        return next(iter(builds.values()))
    kernels = [kernel for module in modules for kernel in module.kernels]
    known = {one.id for one in kernels if (_is_of(symbol, one) if mangled else symbol == (one.symbol or one.name))}
    return next(iter(known)) if len(known) == 1 else None


def _is_of(symbol: str, kernel: KernelMeta) -> bool:
    """True if a symbol is a kernel's. For code from nvcc, only the C++ name is known: a mangled symbol contains the
    identifier after its length.
    """
    if kernel.symbol or symbol == kernel.name:
        return symbol == (kernel.symbol or kernel.name)
    identifier = kernel.name.partition("<")[0].rpartition("::")[2]
    mangled = rf"_Z.*(?<!\d){len(identifier)}{re.escape(identifier)}"
    return re.match(mangled, symbol) is not None
