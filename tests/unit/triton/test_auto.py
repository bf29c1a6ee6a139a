"""Unannotated kernels: marks enclose operations by kind or by line, and nothing else changes."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from unannotated import CASES, FILE, PAIRS, PATH, compiled, moment

import kscope
from kscope.capture import metadata as meta
from kscope.capture.layout import Kind, record_id
from kscope.instrument import registry
from kscope.instrument.recording import Recording
from kscope.instrument.selection import catalog
from kscope.instrument.selection.auto import Selection
from kscope.machine_code import disassembly, tools
from kscope.marks.grammar import parse
from kscope_triton import inserting, irtext, selected_operations

ALL_KINDS = "wait,async_wait,tma,wgmma,mma,dot,load,store,barrier,loop,iteration"
NEWER = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
USUAL = Selection.of(True)
WORK = {
    "load": r"LDG|LDGSTS|UTMALDG",
    "store": r"STG|UTMASTG|ATOMG|REDG?\.",
    "dot": r"HMMA|HGMMA|UTC\w*MMA",
    "wait": r"DEPBAR|LDGDEPBAR|SYNCS\.PHASECHK|WARPGROUP\.DEPBAR",
    "loop": r"BRA",
}
"""Machine instructions by kind of operation."""
KEPT = re.compile(
    r"^\s*(?:@\S+\s+)?((?:bar|barrier|cp\.async|wgmma|tcgen05|mma|mbarrier|fence|ldmatrix|shfl|setmaxnreg|ex2)\S*)",
    re.M,
)
"""Instructions of PTX that marks must neither add nor remove."""


@cache
def build(name, arch, selection=None):
    """A kernel compiled with a selection; plain without one."""
    frontend = registry.frontend("triton")
    if selection is not None:
        frontend.enable(Recording(selection=selection))
    try:
        return compiled(name, arch)
    finally:
        frontend.disable()


def about(kernel):
    """The module's metadata."""
    return meta.from_json(kernel.metadata.kscope.encode())


def sites(name, arch, **requested):
    """Where a selection would mark a kernel."""
    with catalog.listing() as found:
        kscope.enable(**requested)
        try:
            compiled(name, arch)
        finally:
            kscope.disable()
    return found[0].sites


def label(name, kind, what, of=None):
    return f"{kind} {FILE}:{CASES[name].line(what, of)}"


EXPECTED = {
    "matmul": ["loop the loop", "load load a", "load load b", "dot the dot", "store the store"],
    "softmax": ["loop the loop", "load the load", "wait the load", "store the store"],
    "layer_norm": ["loop the loop", "load load the weight", "store the store"],
    "specialized": ["loop the loop", "wait load a", "load load a", "dot the dot", "store the store"],
    "leaving": ["loop the loop", "store the store"],
}
"""Kinds, each with the line of its operation."""


@pytest.mark.filterwarnings("ignore:kscope.*registers spill")  # with Triton 3.6, on Blackwell
@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_operations_of_the_usual_kinds_are_regions_with_their_lines(name, arch):
    known = about(build(name, arch, USUAL))
    assert {problem.kind for problem in known.problems} <= {"occupancy", "registers"}
    where = {region.name: region.where for region in known.regions}
    assert {label(name, *one.split(" ", 1)) for one in EXPECTED[name]} <= where.keys()
    assert where == {region: f"{PATH}:{region.rpartition(':')[2]}" for region in where}


@pytest.mark.filterwarnings("ignore:kscope.*registers spill")
@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_machine_code_between_marks_is_the_named_work(name, arch, tmp_path):
    kernel = build(name, arch, USUAL)
    (tmp_path / "kernel.cubin").write_bytes(kernel.asm["cubin"])
    names = {region.name for region in about(kernel).regions}
    (code,) = (one for one in disassembly.functions(tools.disassembly(tmp_path / "kernel.cubin")) if one.name == name)
    kinds = Kind.SPAN, Kind.SPAN_VALUE
    found = disassembly.sites(code, {record_id(one, kind): one for one in names for kind in kinds})
    assert {site.region for site in found.sites} == names
    for site in found.sites:
        inside = [one.code for one in code.instructions if site.begin < one.at < site.end]
        assert any(re.match(WORK[site.region.partition(" ")[0]], one) for one in inside), (site, inside)


class _EnoughError(Exception):
    """The rest of a compilation is not needed."""


@cache
def lowered(name, arch):
    """A kernel's final IR as text, its operations counted by Triton, and the PTX of three: the IR as it is, printed and
    read back, and with marks. All from one compilation: Triton's own warp specialization does not give the same IR
    each time."""
    counted, texts = Counter(), []
    before = knobs.runtime.add_stages_inspection_hook

    def hook(backend=None, stages=None, *_):
        if stages is None:
            return "lowered", "lowered"
        llir, ptx = stages["llir"], stages["ptx"]

        def lower(module, metadata):
            text = module.str()
            module.walk(lambda operation: counted.update([operation.get_name()]))
            copies = [inserting.parsed(text, module.context) for _ in range(2)]
            copies[1] = inserting.insert(copies[1], USUAL).module
            texts.extend([text, *(ptx(llir(one, dict(metadata)), dict(metadata)) for one in (module, *copies))])
            raise _EnoughError

        stages["llir"] = lower
        return None

    knobs.runtime.add_stages_inspection_hook = hook
    try:
        with pytest.raises(_EnoughError):
            compiled(name, arch)
    finally:
        knobs.runtime.add_stages_inspection_hook = before
    return counted, *texts


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_marks_add_and_remove_no_instruction_of_the_kernel(name, arch):
    _, _, plain, _, marked = lowered(name, arch)
    assert marked.count("//kscope enter") >= len(EXPECTED[name])
    without, having = Counter(KEPT.findall(plain)), Counter(KEPT.findall(marked))
    # a barrier follows on every wait; Triton 3.9 leaves it out where the wait is the last that a group of warps does
    more = {"bar.sync": 2} if (name, arch, NEWER) == ("specialized", 90, True) else {}
    assert having - without == Counter(more)
    assert not without - having


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_ir_that_is_printed_and_read_back_gives_the_same_code(name, arch):
    _, _, plain, again, _ = lowered(name, arch)
    assert plain == again


@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_every_operation_of_the_ir_is_read(name, arch):
    counted, text, *_ = lowered(name, arch)
    (function,) = irtext.functions(text)
    assert (function.name, function.public) == (name, True)
    read = Counter(one.name for one in irtext.walk(irtext.Block(operations=[function.operation])))
    silent = ("builtin.module", "scf.yield", "ttg.warp_specialize.partitions")  # not printed, or not always
    assert read["tt.func"] == 1
    assert {one: times for one, times in read.items() if one not in silent} == {
        one: times for one, times in counted.items() if one not in silent
    }


@pytest.mark.parametrize("name", [name for name in CASES if name != "specialized"])
def test_unselected_kernels_compile_to_the_plain_binary(name):
    plain = build(name, 90)
    other = build(name, 90, Selection(("wait", "load"), kernels=("attn_*",)))
    assert (plain.asm["ptx"], plain.asm["cubin"]) == (other.asm["ptx"], other.asm["cubin"])
    assert not hasattr(other.metadata, "kscope")


def test_an_operation_has_the_narrowest_of_the_kinds_that_are_requested():
    found = {site.what for site in sites("specialized", 90, auto=ALL_KINDS)}
    assert found == {"wait", "tma", "wgmma", "barrier", "loop", "iteration"}
    assert {site.what for site in sites("matmul", 80, auto=ALL_KINDS)} == {
        "async_wait", "mma", "load", "store", "loop", "iteration",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:kscope.*registers spill")
@pytest.mark.parametrize("arch", [90, 100])
def test_each_group_of_specialized_warps_has_its_own_places(arch):
    found = sites("specialized", arch, auto="loops,dot,load")
    loops = [site.group for site in found if site.what == "loop"]
    assert loops == (["default", "partition0", "partition1"] if arch == 90 else ["partition0", "partition1"])
    assert all(
        site.loops == (f"{PATH}:{CASES['specialized'].line('the loop')}",) for site in found if site.what == "dot"
    )
    assert not {site.group for site in found if site.what == "dot"} & {"default", ""}


def test_iteration_regions_cover_the_loop_body():
    (turn,) = sites("softmax", 90, auto="iterations")
    line = CASES["softmax"].line("the loop")
    assert (turn.region, turn.loops) == (f"iteration {FILE}:{line}", (f"{PATH}:{line}",))
    assert turn.operations > 5


def lines(name, region, first, last=None, of=None):
    case = CASES[name]
    return f"{region}={FILE}:{case.line(first, of)}-{case.line(last or first, of)}"


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_selected_lines_of_a_pipelined_loop_cover_its_prologue_and_body(arch):
    found = sites("matmul", arch, mark=[lines("matmul", "load", "load a", "load b"), lines("matmul", "dot", "the dot")])
    assert {site.region for site in found} == {"load", "dot"}
    outside, inside = ([site.region for site in found if len(site.loops) == depth] for depth in (0, 1))
    assert "load" in outside and {"load", "dot"} == set(inside)  # the first tiles are requested before the loop
    own = {CASES["matmul"].line(what) for what in ("load a", "load b", "the dot")}
    for site in found:
        assert site.operations > 0
        assert {int(line) for line in site.where.rpartition(":")[2].split("-")} <= own


def test_line_ranges_include_whole_loops():
    (whole,) = sites("softmax", 90, mark=[lines("softmax", "rows", "the loop", "the store")])
    assert (whole.region, whole.loops, whole.operations) == ("rows", (), 3)  # frees the buffers
    (some,) = sites("softmax", 90, mark=[lines("softmax", "rows", "the maximum", "the sum")])
    assert len(some.loops) == 1 and some.operations > 2


def test_arithmetic_alone_is_a_region_as_well():
    (one,) = sites("softmax", 90, mark=[lines("softmax", "exp", "the exponential")])
    assert one.where == f"{PATH}:{CASES['softmax'].line('the exponential')}"


def test_a_selected_call_includes_the_inlined_operations():
    found = sites("layer_norm", 90, mark=[lines("layer_norm", "mean", "the mean")])
    assert [(site.region, site.loops) for site in found] == [("mean", ())]
    helpers = sites("layer_norm", 90, mark=[lines("layer_norm", "helper", "the helper's load", of=moment)])
    assert len(helpers) == 2  # inlined twice
    assert all(len(site.loops) == 1 for site in helpers)


def test_names_have_any_spelling(tmp_path):
    line = CASES["softmax"].line("the load")
    name = 'lädt "q" k'
    selection = Selection.of(mark=f"{name}={PATH}:{line}")
    assert [region.name for region in about(build("softmax", 90, selection)).regions] == [name]


def test_regions_of_kinds_and_lines_and_the_source_share_a_kernel(module, compiler, frontend):
    made = module("""
    @triton.jit
    def kernel(out, x, n):
        with kscope.region("whole", value=n):
            for i in range(n):
                tl.store(out + i, tl.load(x + i))
    """)
    selection = Selection.of("load,store", f"turns={Path(made.__file__).name}:9-10")
    frontend.enable(Recording(selection=selection))
    kernel = compiler(made.kernel, 90, out="*fp32", x="*fp32", n="i32")
    assert {region.name.partition(" ")[0] for region in about(kernel).regions} == {"whole", "turns", "load", "store"}


# caches


def test_every_selection_has_its_own_kernel_in_every_order(frontend):
    states = {
        "plain": None,
        "nothing selected": Recording(),
        "waits": Recording(selection=Selection(("wait",))),
        "waits and loads": Recording(selection=Selection(("wait", "load"))),
        "a line": Recording(selection=Selection.of(mark=lines("softmax", "max", "the maximum"))),
    }
    texts = {}
    for name in (*states, *reversed(states)):
        if states[name] is None:
            frontend.disable()
        else:
            frontend.enable(states[name])
        assert texts.setdefault(name, compiled("softmax", 90).asm["ptx"]) == compiled("softmax", 90).asm["ptx"], name
    assert texts["plain"] == texts["nothing selected"]
    assert len(set(texts.values())) == len(states) - 1


def test_a_listing_recompiles_cached_kernels_and_restores_the_knob():
    kscope.enable(auto=True)
    first = compiled("softmax", 90)
    with catalog.listing() as found:
        kscope.disable()
        kscope.enable(auto=True)
        assert compiled("softmax", 90).asm["ptx"] == first.asm["ptx"]
        assert [one.kernel for one in found] == ["softmax"]
        kscope.disable()
    assert knobs.compilation.always_compile is False
    kscope.enable(auto=True)
    compiled("softmax", 90)
    kscope.disable()
    assert len(found) == 1


# locations


def places(text, *aliases):
    module = "\n".join(
        ["module {", "tt.func public @k() {", f"tt.return loc({text})", "} loc(unknown)", "} loc(unknown)", *aliases]
    )
    (function,) = irtext.functions(module)
    return [(place.file, place.line, place.column) for place in function.operation.blocks[0].operations[0].places]


def test_locations_are_chains_of_inlined_places():
    aliases = ['#loc1 = loc("/a b/c.py":3:4)', '#loc2 = loc("x"(#loc1))', '#loc3 = loc(callsite(#loc2 at "d.py":5:6))']
    assert places("unknown") == []
    assert places("#loc9") == []
    assert places("#loc2", *aliases) == [("/a b/c.py", 3, 4)]
    assert places("#loc3", *aliases) == [("/a b/c.py", 3, 4), ("d.py", 5, 6)]
    assert places('fused<"x">[unknown, #loc3]', *aliases) == [("/a b/c.py", 3, 4), ("d.py", 5, 6)]
    assert places('callsite(callsite("a":1:1 at "b":2:2) at "n"("c":3:3))') == [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)]
    assert places('"with \\"quotes\\" and \\C3\\A4":7:8') == [('with "quotes" and ä', 7, 8)]


@pytest.mark.parametrize("text", ["module {", "}", "^bb0:", "module {\n} loc(unknown)\n}", "module {\n?\n}"])
def test_ir_that_cannot_be_read_is_refused(text):
    with pytest.raises(kscope.UnsupportedError, match="kscope cannot read this Triton's printed IR"):
        irtext.functions(text)


def test_ranges_of_every_width_pair(frontend):
    first, last = CASES["matmul"].line("the loop"), CASES["matmul"].line("the store")
    ranges = list(itertools.pairwise(range(first, last + 1, 3)))
    regions = {f"{a}-{b}": f"{FILE}:{a}-{b}" for a, b in [*ranges, (first - 5, first + 2), (first + 1, last)]}
    known = about(build("matmul", 90, Selection.of(mark=regions)))
    assert not [problem for problem in known.problems if problem.kind == "pairing"]
    assert {region.name for region in known.regions} >= {f"{a}-{b}" for a, b in ranges[:2]}


def test_a_kernel_from_a_file_of_ir_is_marked_as_well(tmp_path, frontend):
    path = tmp_path / "softmax.ttgir"
    path.write_text(build("softmax", 90).asm["ttgir"])
    frontend.enable(Recording(selection=USUAL))
    kernel = triton.compile(str(path), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert about(kernel).regions == about(build("softmax", 90, USUAL)).regions


# regions of the source that the compiler drops


@triton.jit
def annotated(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, (M, K), (K, 1), (BM, BK))
    b_desc = tl.make_tensor_descriptor(b_ptr, (N, K), (K, 1), (BN, BK))
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K // BK, warp_specialize=True):
        with kscope.region("load", value=k):
            a = a_desc.load((tl.program_id(0) * BM, k * BK))
        with kscope.region("constant", value=7, strategy=kscope.Lane0Warp0()):
            b = b_desc.load((tl.program_id(1) * BN, k * BK))
        with kscope.region("sometimes", when=k % 2 == 0):
            total = tl.dot(a, b.T, total)
        kscope.instant("turn")
    with kscope.region("store"):
        rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
        tl.store(c_ptr + rows * N + columns, total.to(tl.float16))


@pytest.mark.filterwarnings("ignore:kscope")
def test_restored_regions_keep_their_names_and_report_a_problem(compiler):
    kernel = compiler(annotated, 90, {"num_warps": 4}, **CASES["specialized"].types)
    known = about(kernel)
    assert {(region.name, region.type) for region in known.regions} == {
        ("load", None), ("constant", "i32"), ("store", None),
    }  # fmt: skip
    reported = {problem.kind: problem.text for problem in known.problems}
    assert "removed every mark of 'constant', 'load'; kscope restored them" in reported["moved"]
    assert "removed every mark of 'sometimes', 'turn'" in reported["removed"]
    marks = [mark for mark in map(parse, compiler.texts[-1].splitlines()) if mark is not None]
    entered = {(mark.operand, mark.strategy) for mark in marks if (mark.act, mark.name) == ("enter", "constant")}
    assert entered == {("0x00000007", "lane0-warp0")}


def test_regions_that_end_elsewhere_are_not_restored():
    def module(*lines):
        text = "\n".join([*lines, "tt.return loc(#loc)"])
        return f'module {{\ntt.func public @k() {{\n{text}\n}} loc(#loc)\n}} loc(unknown)\n#loc = loc("k.py":1:1)'

    def mark(act, name):
        return (
            f'%0 = tt.elementwise_inline_asm "//kscope {act} {name} - - with" {{pure = false}} -> i32 loc("k.py":2:1)'
        )

    def load(line):
        return f'%1 = tt.load %p : !tt.ptr<f32> loc("k.py":{line}:1)'

    whole = module(
        mark("enter", "a"), load(3), mark("enter", "b"), load(4), mark("exit", "b"), mark("exit", "a"), load(5)
    )
    found = inserting.regions(whole)
    assert {name: {line for _, line in region.lines} for name, region in found.items()} == {"a": {3, 4}, "b": {4}}
    assert inserting.regions(module(mark("enter", "a"), load(3))) == {}
    assert inserting.regions(module(mark("enter", "a"), mark("exit", "a"), load(3))) == {}
    both = module(mark("enter", "a"), load(3), mark("exit", "a"), load(3))
    assert inserting.regions(both)["a"].lines == set()  # the line is outside as well


OPERANDS = """
module {
  tt.func public @matmul(%sa: i32, %sb: i32, %acc: i32) {
    %other = ttg.local_load %sa : i32 loc("a.py":1:1)
    %a = ttg.local_load %sa : i32 loc("a.py":1:1)
    %bias = arith.mulf %acc, %acc : tensor<4xf32> loc("a.py":2:1)
    %b = ttg.local_load %sb : i32 loc("a.py":3:1)
    %unused = ttg.local_load %sb : i32 loc("a.py":3:1)
    %t = tt.trans %b : i32 loc("a.py":3:1)
    %c = ttg.convert_layout %t : i32 loc("a.py":4:1)
    %d = tt.dot %a, %c, %acc : i32 loc("a.py":4:1)
    %e = ttg.local_load %sb : i32 loc("a.py":5:1)
    %f = tt.dot %e, %c, %acc : i32 loc("a.py":5:1)
    tt.store %sa, %other : i32 loc("a.py":6:1)
    tt.return loc("a.py":6:1)
  } loc("a.py":1:1)
} loc("a.py":1:1)
"""


def test_the_region_of_a_dot_begins_before_the_loads_of_its_operands_into_registers():
    """Behind them, all operands of the dot would be in registers at once."""
    (function,) = irtext.functions(OPERANDS)
    lines = [line.split(" ")[4] for line in OPERANDS.splitlines()[3:-3]]
    found = selected_operations.kind_spans(function.operation, Selection.of(("dot", "store")))
    assert [lines[span.before - 3 : span.after - 3] for span in found] == [
        ["%b", "%unused", "%t", "%c", "%d"],
        ["%e", "%f"],
        ["tt.store"],
    ]
