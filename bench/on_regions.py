"""Cycles that one region adds in the loop of a CUDA C++ kernel: kscope in all its forms, and its peers.

    regions   back to back (A), behind 64 dependent FMAs (B), the same with 16 warps per SM (C): best and median of
              eight places in the instruction cache, 16 bytes apart: a loop this short costs up to 12 cycles more or
              less depending on its place
    inflight  with global loads in flight at the marks, and with copies of the copy engine (TMA)
    nested    one to eight nested regions, per region
    warps     1 to 64 warps on every SM

Every loop runs without marks and with them, in one module; a row is the difference of the median block's cycles per
iteration, taken from launches of n and 2 n iterations: costs per launch, such as a claim, cancel. Before anything runs,
the machine code of every loop is checked: a row has a doubt if its work does not lie between the first and the last
clock read.
"""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from driver import Device, nvcc, ptxas
from rows import Row, row

import kscope_cuda
from kscope.capture.wire import CTL_SYMBOL
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.subset import Subset
from kscope.lowering import plan
from kscope.machine_code import tools
from kscope.marks.strategies import AllThreads, Lane0Warp0

SOURCE = Path(__file__).with_name("regions.cu")
PEER_BYTES = 768 << 20
"""Same as in the source: loads read the following elements."""
PLACES, REPEATS = 8, 7
CACHE_LINE = 128
"""Bytes of a line of the instruction cache, 8 instructions: places a multiple of it apart are equivalent."""
UNFIT: list[str] = []
"""Doubt of a row that was not measured: its blocks would have run one after the other."""
GLOBAL, SHARED = "global memory", "shared memory"
ALONE = "a NOP, the loop alone"
"""Doubt of every row of A: the compiler removes an empty loop without marks."""


@dataclass(frozen=True)
class Variant:
    """One profiler. peer: its number in the source. lowered: strategy of bare marks lowered by the pass; flags: the
    header's, with stores in place. header: a file that it needs. closely: measured in every section. room: records that
    its buffer holds, and so the most iterations of its launches; 0 if it overwrites the oldest."""

    name: str
    peer: int = 0
    where: str = GLOBAL
    lowered: Recording | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    header: str = ""
    closely: bool = False
    room: int = 0


ROOM = 1024
"""Records per warp of buffers that keep the first ones: dropped records are only counted, which costs less."""
VARIANTS = (
    Variant("kscope", lowered=Recording(records=256), closely=True),
    Variant("kscope, in place", lowered=Recording(records=256, pending=0)),
    Variant("kscope, stop", lowered=Recording(records=ROOM, fill="stop"), room=ROOM),
    Variant("kscope, globaltimer", lowered=Recording(records=256, clock="globaltimer")),
    Variant("kscope, Lane0Warp0", lowered=Recording(records=256, strategy=Lane0Warp0())),
    Variant("kscope, AllThreads", lowered=Recording(records=16, strategy=AllThreads())),
    Variant("kscope.cuh", closely=True),
    Variant("kscope.cuh, stop", flags={"fill": "stop", "records": ROOM}, room=ROOM),
    Variant("kscope.cuh, globaltimer", flags={"clock": "globaltimer"}),
    Variant("kscope.cuh, Lane0Warp0", flags={"strategy": Lane0Warp0()}),
    Variant(ALONE, 15, ""),
    Variant("an aligned ring, one store", 14),
    Variant("an aligned ring, two stores", 13),
    Variant("flashinfer, as shipped", 11, header="profiler.cuh", closely=True),
    Variant("warpscope, as shipped", 12, header="warpscope.cuh"),
    Variant("Proton global clock32, restated", 3, closely=True),
    Variant("Proton global clock64, restated", 4),
    Variant("nuggets compact, restated", 7),
    Variant("nuggets static, restated", 8),
    Variant("nuggets atomic, restated", 9),
    Variant("cutedsl-trace, restated", 10),
    Variant("Proton shared clock32, restated", 1, SHARED, closely=True),
    Variant("Proton shared clock64, restated", 2, SHARED),
    Variant("Mosaic GPU, restated", 5, SHARED),
    Variant("IKET, restated", 6, SHARED, closely=True),
)


@dataclass(frozen=True)
class Config:
    """A launch: blocks per SM, threads of a block, the loop, iterations. per: regions per iteration."""

    where: str
    blocks: int
    block: int
    loop: str
    iterations: int
    places: int = PLACES
    plain: str = ""
    per: int = 1


SECTIONS: dict[str, tuple[Config, ...]] = {
    "regions": (
        Config("A", 1, 128, "empty", 2000), Config("B", 1, 128, "fmas", 2000), Config("C", 2, 256, "fmas", 1000),
    ),
    "inflight": (Config("loads", 1, 128, "loads", 1000, 1), Config("TMA", 1, 128, "tiles", 1000, 1)),
    "nested": tuple(
        Config(f"{depth}", 1, 128, f"nested{depth}" if depth > 1 else "fmas", 1000, 1, "fmas", depth)
        for depth in range(1, 9)
    ),
    "warps": tuple(
        Config(f"{warps}", max(1, warps // 32), 32 * min(warps, 32), "fmas", 500, 1)
        for warps in (1, 2, 4, 8, 16, 32, 64)
    ),
}  # fmt: skip
WORK = {"empty": {}, "fmas": {"FFMA": 64}, "loads": {"LDG": 4, "FFMA": 16}, "tiles": {"UBLKCP": 1, "FFMA": 16}}
"""Instructions of a loop's work, which must lie between the marks, and their counts."""


def select_variants(section: str, headers: Path) -> tuple[list[Variant], list[str]]:
    """The variants of a section, and the missing headers of peers."""
    found = [one for one in VARIANTS if one.closely or section in ("regions", "inflight")]
    found = [one for one in found if one.name != ALONE or section == "regions"]
    missing = [one.name for one in found if one.header and not (headers / one.header).exists()]
    return [one for one in found if one.name not in missing], missing


def build(variant: Variant, folder: Path, arch: str, headers: Path) -> Path:
    """The variant's loops as a cubin."""
    own = folder / re.sub(r"\W+", "-", variant.name)
    own.mkdir(exist_ok=True)
    options = [f"-DPEER={variant.peer}", "-DNESTED", f"-I{headers}"]
    if variant.lowered is not None:
        text = nvcc(SOURCE, own / "loops.ptx", arch, *options, "-DKSCOPE_BENCH_MARKS").read_text()
        return ptxas(plan.lower(text, variant.lowered, frontend="bench").text, own / "loops.cubin", arch)
    flags = [] if variant.peer else kscope_cuda.flags(**{"records": 256, **variant.flags})
    return nvcc(SOURCE, own / "loops.cubin", arch, *options, *flags)


Checked = dict[str, tuple[int, str]]


def built(variants: Iterable[Variant], configs: Sequence[Config], options: Any) -> dict[str, tuple[Path, Checked]]:
    """All loops, compiled on all cores, and the doubts that checked() finds in each."""

    def one(variant: Variant) -> tuple[Path, Checked]:
        cubin = build(variant, options.folder, options.arch, options.headers)
        found = checked(cubin, configs)
        return cubin, {
            loop: (added, "" if variant.name == ALONE else doubts) for loop, (added, doubts) in found.items()
        }

    with ThreadPoolExecutor() as pool:
        jobs = {variant.name: pool.submit(one, variant) for variant in variants}
        return {name: job.result() for name, job in jobs.items()}


Code = list[tuple[int, str]]


def disassembled(cubin: Path) -> dict[str, Code]:
    """(address, instruction) by kernel, with branch targets as numbers."""
    command = [tools.find("cuobjdump"), "-sass", str(cubin)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Code] = {}
    for part in text.split("Function :")[1:]:
        name, _, body = part.partition("\n")
        lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]+);", body)
        found[name.strip()] = [(int(at, 16), instruction.strip()) for at, instruction in lines]
    return found


def span_of(code: Code, work: dict[str, int]) -> tuple[int, int] | None:
    """Addresses of the first and the last instruction of the shortest backward branch with all of the work, and with
    clock reads if any has them; None without one. A wait loop placed behind the kernel's end that jumps back into this
    loop does not count.
    """
    found: list[tuple[bool, int, int, int]] = []
    for at, instruction in code:
        target = re.search(r"BRA\S*\s+.*?0x([0-9a-f]+)", instruction)
        if target and int(target[1], 16) < at:
            first = int(target[1], 16)
            body = [one for a, one in code if first <= a <= at]
            if all(len(_where(body, name)) >= count for name, count in work.items()):
                found.append((not any(map(reads_clock, body)), len(body), first, at))
    return min(found)[2:] if found else None


def loop_of(code: Code, work: dict[str, int]) -> list[str]:
    """The instructions of that loop; [] without one."""
    span = span_of(code, work)
    return [one for at, one in code if span[0] <= at <= span[1]] if span else []


def _where(body: list[str], name: str) -> list[int]:
    return [at for at, one in enumerate(body) if re.match(rf"(?:@!?U?P\w+\s+)?{name}\b", one)]


def reads_clock(instruction: str) -> bool:
    return "SR_CLOCK" in instruction or "GLOBALTIMER" in instruction


def _of_marks(reads: list[tuple[int, str]]) -> list[int]:
    """Places of the clock reads that are not an anchor's, which reads the timer between two of them."""
    timers = [n for n, (_, one) in enumerate(reads) if "GLOBALTIMER" in one]
    clocks = {n for n, (_, one) in enumerate(reads) if "SR_CLOCK" in one}
    anchors = {n + step for n in timers if {n - 1, n + 1} <= clocks for step in (-1, 0, 1)}
    return [at for n, (at, _) in enumerate(reads) if n not in anchors]


def doubt(body: list[str], work: dict[str, int]) -> str:
    """A doubt about the marks in a loop's machine code; "" if its work lies between them."""
    reads = _of_marks([(at, one) for at, one in enumerate(body) if reads_clock(one)])
    if len(reads) < 2:
        return f"{len(reads)} clock readings in its loop"
    half = len(reads) // 2
    begin, end = reads[half - 1], reads[half]
    for name, count in work.items():
        at = _where(body, name)
        if len(at) < count:
            return f"{len(at)} {name} in its loop, expected {count}"
        outside = [i for i in at if not begin < i < end]
        if outside:
            return f"{len(outside)} of {len(at)} {name} are not between the marks"
    return ""


def checked(cubin: Path, configs: Iterable[Config]) -> Checked:
    """By loop: the instructions that marks add at its first place, and a doubt about it."""
    code = disassembled(cubin)
    found = {}
    for config in configs:
        plain = config.plain or config.loop
        base = loop_of(code[f"plain_{plain}_0"], WORK[plain])
        bodies = {p: loop_of(code[f"marked_{config.loop}_{p}"], WORK[plain]) for p in range(config.places)}
        doubts = [f"place {place}: {text}" for place, body in bodies.items() if (text := doubt(body, WORK[plain]))]
        spans = [span_of(code[f"marked_{config.loop}_{place}"], WORK[plain]) for place in bodies]
        doubts += unmoved([span[0] for span in spans if span])
        found[config.loop] = len(bodies[0]) - len(base), "; ".join(doubts)
    return found


def unmoved(starts: Sequence[int]) -> list[str]:
    """Doubts about the start addresses of a loop's places; [] if three quarters of them differ."""
    different = len({start % CACHE_LINE for start in starts})
    if 4 * different >= 3 * len(starts):
        return []
    return [f"{len(starts)} places begin at {different} different addresses of a cache line"]


def per_iteration(taken: Callable[[int], float], iterations: int, repeats: int) -> list[float]:
    """Cycles per iteration, by run of 2 n iterations: those beyond the median run of n. The claim's cost cancels."""
    once = statistics.median(taken(iterations) for _ in range(repeats))
    return [(taken(2 * iterations) - once) / iterations for _ in range(repeats)]


class Loops:
    """One variant's module on the device; kscope's record."""

    def __init__(self, device: Device, cubin: Path, repeats: int = REPEATS) -> None:
        self.device, self.repeats = device, repeats
        self.out, self.cycles = device.allocate(4 * device.sms * 2048), device.allocate(8 * device.sms * 2)
        self.module = device.load(cubin)
        found, address, _ = device.driver.cuModuleGetGlobal(self.module, CTL_SYMBOL.encode())
        self.ours = int(found) == 0
        if self.ours:
            self.backend = registry.backend("cuda")
            metas = kscope_cuda.describe(cubin.read_bytes())
            if metas:
                self.backend.arm_control_block(int(address), metas)
            else:
                self.backend.module_loaded(int(self.module))
            self.backend.arm(1, Subset(), None)

    def close(self) -> int:
        """Lanes that found no room and recorded nothing: a loop without stores is faster than one with them."""
        lost = 0
        if self.ours:
            self.backend.disarm()
            lost = sum(one.lost for one in self.backend.collect(wait=True))
        for address in (self.out, self.cycles):
            self.device.check(self.device.driver.cuMemFree(address))
        return lost

    def each(self, kernel: str, config: Config) -> list[float]:
        """Cycles per iteration of the median block, by run."""
        function = self.device.function(self.module, kernel)
        grid, source = self.device.sms * config.blocks, self.device.memory + PEER_BYTES
        host = np.zeros(grid, np.int64)

        def taken(iterations: int) -> float:
            if self.ours:
                self.backend.pace()
            self.device.launch(
                function, grid, config.block, self.out, self.cycles, self.device.memory, source, iterations
            )
            self.device.synchronize()
            return float(np.median(self.device.read(self.cycles, host)))

        return per_iteration(taken, config.iterations, self.repeats)

    def fits(self, config: Config) -> bool:
        """True if all blocks are on the SMs at the same time."""
        kernels = (f"plain_{config.plain or config.loop}_0", f"marked_{config.loop}_0")
        functions = (self.device.function(self.module, kernel) for kernel in kernels)
        return all(self.device.fits(function, config.blocks, config.block) for function in functions)

    def added_at(self, config: Config, place: int) -> list[float]:
        """Cycles that a region adds to the median run without marks, by run."""
        base = statistics.median(self.each(f"plain_{config.plain or config.loop}_{place}", config))
        marked = self.each(f"marked_{config.loop}_{place}", config)
        return [(cycles - base) / config.per for cycles in marked]

    def added(self, config: Config) -> list[list[float]]:
        """added_at() of every place, the best one first."""
        return sorted((self.added_at(config, place) for place in range(config.places)), key=statistics.median)


def missing(section: str, options: Any) -> list[str]:
    """Notes on what is missing from the rows."""
    _, missing = select_variants(section, options.headers)
    return [*(f"{name}: its header is not in {options.headers} (make peers)" for name in missing), *UNFIT]


def measure(section: str, options: Any) -> Iterator[Row]:
    """The rows of a section."""
    configs = SECTIONS[section]
    variants, _ = select_variants(section, options.headers)
    made = built(variants, configs, options)
    device = Device()
    for variant in variants:
        cubin, found = made[variant.name]
        loops = Loops(device, cubin, 3 if options.quick else REPEATS)
        try:
            rows = list(_rows(variant, loops, configs, found))
        finally:
            lost = loops.close()
        yield from doubted(rows, lost)


def doubted(rows: Iterable[Row], lost: int) -> Iterator[Row]:
    """The rows, with a doubt if lanes were lost during a measurement."""
    for one in rows:
        doubts = [one.notes["doubt"]] if "doubt" in one.notes else []
        doubts += [f"{lost:,} lanes found no room, and recorded nothing"] if lost else []
        yield replace(one, notes={**one.notes, "doubt": "; ".join(doubts)}) if doubts else one


def _rows(variant: Variant, loops: Loops, configs: Sequence[Config], found: Checked) -> Iterator[Row]:
    """Added cycles per circumstance, at the best place and at the median one."""
    for config in configs:
        sass, doubts = found[config.loop]
        if not loops.fits(config):
            UNFIT.append(f"{variant.name}, {config.where}: an SM does not hold all of it, with its registers")
            continue
        notes = {"records": variant.where, "sass": sass, **({"doubt": doubts} if doubts else {})}
        places = loops.added(replace(config, iterations=min(config.iterations, variant.room // 2 or config.iterations)))
        yield row(variant.name, config.where, "cycles", places[0], **notes)
        if config.places > 1:
            yield row(variant.name, f"{config.where}, median place", "cycles", places[len(places) // 2], **notes)


def dry(section: str, options: Any) -> Iterator[Row]:
    """Without a GPU: every loop is compiled, and its machine code checked. Rows are instructions that marks add."""
    configs = SECTIONS[section]
    variants, _ = select_variants(section, options.headers)
    for name, (_, found) in built(variants, configs, options).items():
        for config in configs:
            sass, doubts = found[config.loop]
            yield row(name, config.where, "instructions", [sass], **({"doubt": doubts} if doubts else {}))
