"""The lowering pass: turns PTX with marks into PTX that records. Every frontend with PTX uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from .. import ptx
from ..capture import layout, wire
from ..capture import metadata as meta
from ..capture.model import KernelMeta, ModuleMeta, Problem, RegionMeta
from ..errors import PairingError, UnsupportedError
from ..instrument.recording import AUTO_RECORDS, Recording, log2_records
from ..instrument.selection.auto import unmatched_in_kernel
from ..marks.grammar import PREFIX, Mark
from ..marks.names import format_name
from ..marks.operations import PIPELINE
from ..marks.strategies import ANY_LANE, parse_strategy
from ..marks.wide_values import is_wide
from ..ptx import cfg
from . import (
    anchor_sites,
    async_issue,
    barrier_fences,
    dead_marks,
    hoist,
    loop_registers,
    pairing,
    pipeline,
    shared_reads,
    source_lines,
    waiting_regions,
)
from .deferred_stores import Deferral, deferral
from .emitting import Emitter, key_of
from .lowered import Lowered, SourceInfo
from .module_variables import uses_variables
from .names import ANY, check_hashes, region_rows, types_of, with_common_types
from .pipeline_marks import is_of_lane_0, numbers
from .text_edits import TARGET, check_all_read, edited, end_of_head

_APART = (
    "the function was compiled separately (noinline, debug, or relocatable code), and a region's state lives in its"
    " kernel's registers"
)
_ADVICE = (
    "a region may not span iterations or branches: begin and end it on the same path,"
    " or use value= or two names where parts overlap"
)


def lower(
    text: str,
    recording: Recording,
    *,
    frontend: str,
    known: Iterable[Problem] = (),
    source: SourceInfo | None = None,
    spare: bool = False,
) -> Lowered:
    """Lower every mark in a module's PTX.

    Args:
        text: PTX.
        recording: the options.
        frontend: its name, for the metadata.
        known: problems that already exist, for the metadata.
        source: names and places that the text does not show.
        spare: records in loops with memory accesses may have separate registers, see loop_registers.py.

    Raises:
        UnsupportedError: marks of regions in the source, in a function that was not inlined. Those of a selection
            are left out and become problems.
        PairingError: explicit enters and exits do not pair. Regions of a `with` that do not pair were broken by the
            compiler: they are left out and become problems.
        UsageError: two names have one hash, or a name has values of two types.
    """
    source, unknown = source or SourceInfo(), tuple[Problem, ...]()
    if PIPELINE in recording.selection.kinds:
        marked = pipeline.mark_operations(text, source.kernels, recording.selection)
        text, source, unknown = marked.text, source.with_places(marked.places), marked.problems
    if PREFIX not in text or PREFIX not in cfg.bare(text):
        return Lowered(text, recording.module(frontend))
    files = source_lines.files(text)
    edits: list[tuple[int, int, str]] = []
    kernels: list[tuple[str, str, ptx.Kernel]] = []  # its symbol, and its name
    kept = list[tuple[int, int, str]]()  # the edits that leave the text without the marks that are not lowered
    problems, notes = list(known), list(unknown)
    regions: dict[str, list[tuple[int, RegionMeta]]] = {}
    target = TARGET.search(cfg.bare(text))
    has_removed_marks = has_spare_registers = False
    functions = cfg.functions(text)
    check_all_read(text, functions)
    for found in functions:
        function = with_common_types(replace(found, name=source.kernels.get(found.name, found.name)))
        dead_names = dead_marks.dead_names(function)
        acts = {mark.act for mark in function.marks if mark.name not in dead_names}
        has_removed_marks = has_removed_marks or bool(dead_names)
        if acts <= {"kernel"}:
            edits += (gone := _without(function))
            kept += gone
            continue
        if function.kind == "func":
            if any(mark.origin == "source" for mark in function.marks):
                raise UnsupportedError(
                    f"regions in {function.name}: {_APART}; let it be inlined, or move the region to its caller"
                )
            edits += (gone := _without(function))
            kept += gone
            has_removed_marks = True
            problems.append(Problem("nothing", f"selected code in {function.name} is not recorded: {_APART}"))
            continue
        kernel_recording = _kernel_recording(function, recording)
        body = _Body.of(function, kernel_recording, files, source, spare)
        has_spare_registers = has_spare_registers or body.has_spare_registers
        number = len(kernels)
        kernel = ptx.Kernel(
            kernel_recording,
            body.specs,
            body.log2_records,
            (f"KS_ID{number}_LOW", f"KS_ID{number}_HIGH"),
            int(target[1]) if target else 0,
            bool(body.deferral.shadows) or any(mark.act == "pin" for mark in function.marks),
            function.has_flat_blocks,
            f"KS_SIZE{number}" if body.sized else None,
            body.anchored,
        )
        edits += body.edits(kernel)
        kept += _without(function, body.broken)
        kernels.append((found.name, function.name, kernel))
        problems += body.problems
        selected = [mark.name for mark in function.marks if mark.origin == "auto"]
        notes += unmatched_in_kernel(recording.selection, function.name, selected, problems)
        for region in body.regions:
            regions.setdefault(region.name, []).append((number, region))
    check_hashes(regions)
    code = edited(text, edits)
    if has_removed_marks and not kernels:
        return Lowered(code, recording.module(frontend), tuple(problems))
    digest = sha256(code.encode()).digest()
    ids = [layout.kernel_hash(f"{name}\0".encode() + digest) for _, name, _ in kernels]
    described = [
        KernelMeta(name, own, kernel.log2_records, source.roles, symbol if symbol != name else "")
        for own, (symbol, name, kernel) in zip(ids, kernels, strict=True)
    ]
    for number, kernel_meta in enumerate(described):
        code = code.replace(f"KS_ID{number}_LOW", str(kernel_meta.id & 0xFFFFFFFF))
        code = code.replace(f"KS_ID{number}_HIGH", str(kernel_meta.id >> 32))
        code = code.replace(f"[ks_ctl+KS_SIZE{number}]", f"[ks_ctl+{wire.size_offset(kernel_meta.id)}]")
    rows = tuple(region for name in sorted(regions) for region in region_rows(regions[name]))
    about = recording.module(frontend, tuple(described), rows, (*problems, *notes), uses_variables(text))
    return Lowered(
        _with_symbols(code, end_of_head(text), about),
        about,
        tuple(problems),
        has_spare_registers,
        _with_symbols(edited(text, kept), end_of_head(text), about),
        {symbol: kernel for symbol, _, kernel in kernels},
    )


def _without(function: cfg.Function, names: frozenset[str] | None = None) -> list[tuple[int, int, str]]:
    """The edits that leave a function without its marks of these names, and those of the kernel; None for all marks."""
    return [
        (s.start, s.end, "")
        for s in function.statements
        if s.mark is not None and (names is None or s.mark.name in names or s.mark.act == "kernel")
    ]


def without_marks(text: str) -> str:
    """The text without its marks, to compare registers and spills."""
    return re.sub(rf"{PREFIX}[^\n]*", "", text)


@dataclass(frozen=True)
class _Body:
    """One marked kernel, analyzed: what each of its statements needs."""

    function: cfg.Function
    recording: Recording
    slots: dict[tuple[str, str, int], ptx.Slot]
    depths: dict[int, int]
    broken: frozenset[str]
    specs: tuple[str, ...]
    log2_records: int
    sized: bool
    problems: tuple[Problem, ...] = ()
    regions: tuple[RegionMeta, ...] = field(default=())
    moves: tuple[tuple[int, int, str], ...] = ()
    behind: frozenset[int] = frozenset()
    loops: tuple[loop_registers.Loop, ...] = ()
    shared: frozenset[int] = frozenset()
    sites: frozenset[int] = frozenset()
    anchored: bool = False
    has_spare_registers: bool = False
    opens: frozenset[str] = frozenset()
    waits: frozenset[int] = frozenset()
    deferral: Deferral = field(default_factory=Deferral)

    @staticmethod
    def of(
        function: cfg.Function,
        recording: Recording,
        files: dict[int, str],
        source: SourceInfo,
        spare: bool = False,
    ) -> _Body:
        places = source.places
        graph = cfg.blocks(function)
        paired = pairing.check(function, graph)
        explicit = {m.name for m in function.marks if m.how == "call" and m.act in ("enter", "exit")}
        for fault in paired.faults:
            if fault.name in explicit:
                raise PairingError(
                    f"kernel {function.name}: region {format_name(fault.name)} {fault.text}"
                    f"{source_lines.of_fault(fault, files, places)}; {source.taken_apart or _ADVICE}"
                )
        problems = tuple(
            Problem(
                "pairing",
                f"kernel {function.name}: the compiler split region {format_name(fault.name)}, which {fault.text}"
                f"{source_lines.of_fault(fault, files, places)}; it is not recorded"
                f"{source.taken_apart and f'; {source.taken_apart}'}",
                kernel=function.name,
                region=fault.name,
            )
            for fault in paired.faults
        )
        out = {*(fault.name for fault in paired.faults), *dead_marks.dead_names(function)}
        kept = [
            (i, s, s.mark)
            for i, s in enumerate(function.statements)
            if s.mark is not None and s.mark.act != "kernel" and s.mark.name not in out
        ]
        types = types_of(
            function.name, [(mark, source_lines.where(s.source, files) or places.get(mark.name)) for _, s, mark in kept]
        )
        depths = paired.depths | numbers(function)
        keys = sorted({key_of(mark, depths.get(i, 0)) for i, _, mark in kept if mark.act != "pin"})
        conditional = {key_of(mark, depths.get(i, 0)) for i, _, mark in kept if _is_conditional(mark, recording)}
        looped = frozenset(i for block in graph if block.looped for i in range(block.first, block.last))
        stores = [i for i, _, mark in kept if mark.act in ("exit", "instant", "counter", "success")]
        wide = {name for (name, _), kind in types.items() if is_wide(kind)}
        sized = recording.records == "auto" and bool(looped.intersection(stores))
        rows = len(stores) + sum(
            mark.act in ("exit", "instant", "counter") and mark.name in wide for _, _, mark in kept
        )
        needed = AUTO_RECORDS if sized else max(1, rows)
        per_warp = needed if recording.records == "auto" else recording.records
        first: dict[str, str | None] = {}
        origins: dict[str, str] = {}
        for _, statement, mark in kept:
            if mark.act != "pin":
                first.setdefault(mark.name, places.get(mark.name) or source_lines.where(statement.source, files))
            if mark.origin != "source":
                origins[mark.name] = mark.origin
        issued = async_issue.regions(function, graph, paired.depths)
        late = any((mark.strategy or recording.strategy.spec) == ANY_LANE for _, _, mark in kept)
        opens = waiting_regions.regions(function, graph, paired.depths) if recording.survive else frozenset()
        known = [] if late else loop_registers.loops(function, graph)
        able = [loop for loop in known if loop.mark.name not in out | opens | wide]
        loops = tuple(loop for loop in able if spare or not loop.memory)
        sites = anchor_sites.sites(function, graph, {*stores} - {loop.leave for loop in loops})
        return _Body(
            function,
            recording,
            {key: ptx.Slot(n, key[0], types.get((key[0], key[1])), key in conditional) for n, key in enumerate(keys)},
            depths,
            frozenset(out),
            tuple(sorted({mark.strategy or recording.strategy.spec for _, _, mark in kept}))
            or (recording.strategy.spec,),
            log2_records(per_warp),
            sized,
            problems,
            tuple(
                RegionMeta(n, types.get((n, ANY)), at, None, origins.get(n, "source"), issued.get(n))
                for n, at in first.items()
            ),
            tuple(hoist.moves(function, graph, loops)),
            barrier_fences.after_barriers(function, graph, out),
            loops,
            shared_reads.shared_clock_reads(function, graph, {i for i, _, _ in kept}, recording),
            sites,
            recording.clock == "cycles" and (bool(sites) or any(loop.nested for loop in loops)),
            len(loops) < len(able),
            opens,
            waiting_regions.first_waits(function, graph) if opens else frozenset(),
            deferral(function, graph),
        )

    def edits(self, kernel: ptx.Kernel) -> Iterable[tuple[int, int, str]]:
        """Replacements (start, end, text) that lower this function; start == end inserts."""
        of_statements = self.behind, self.loops, self.shared, self.sites, self.opens, self.waits, self.deferral
        emitter = Emitter(self.slots, self.depths, self.recording, kernel, *of_statements)
        if self.deferral.shadows:  # which records are stored later is known after all statements
            for _ in self._edits(kernel, emitter):
                pass
            emitter = Emitter(self.slots, self.depths, self.recording, kernel, *of_statements, emitter.deferred)
        yield from self.moves
        yield from self._edits(kernel, emitter)

    def _edits(self, kernel: ptx.Kernel, emitter: Emitter) -> Iterable[tuple[int, int, str]]:
        start = self.function.open
        yield start, start, "\n\t" + ptx.entry(kernel, list(self.slots.values())) + emitter.begin()
        for i, statement in enumerate(self.function.statements):
            if statement.scope:  # the claim's labels are at function scope: it goes before the outermost brace
                yield statement.scope[0], statement.scope[0], emitter.before_scope(i, statement)
            if i in self.deferral.exits:
                yield statement.start, statement.start, emitter.kept(self.deferral.exits[i])
            if statement.mark is not None:
                yield (
                    statement.start,
                    statement.end,
                    emitter.mark(i, statement.mark).strip() if (statement.mark.name not in self.broken) else "",
                )
            elif statement.flushes or statement.sort == "access" or i in self.waits:
                yield statement.start, statement.start, emitter.before(i, statement)
        yield self.function.close, self.function.close, ptx.again(kernel)


def _kernel_recording(function: cfg.Function, recording: Recording) -> Recording:
    """The options, with the kernel's strategy if its marks name one."""
    spec = next((mark.strategy for mark in function.marks if mark.act == "kernel" and mark.strategy), None)
    return recording if spec is None else replace(recording, strategy=parse_strategy(spec))


def _is_conditional(mark: Mark, recording: Recording) -> bool:
    """True if a predicate register selects the lanes that record the mark."""
    if mark.how == "pipeline" and (mark.act in ("enter", "exit") or (is_of_lane_0(mark) and mark.when is None)):
        return False
    return mark.when is not None or (mark.strategy or recording.strategy.spec) == ANY_LANE


def _with_symbols(code: str, at: int, about: ModuleMeta) -> str:
    return code[:at] + ptx.control_symbol() + ptx.metadata_symbol(meta.to_json(about)) + code[at:]
