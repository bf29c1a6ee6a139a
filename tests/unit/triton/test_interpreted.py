"""TRITON_INTERPRET=1: the same kernel records as plain Python, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

KERNEL = """
import triton, triton.language as tl, kscope
from kscope import region
LOAD = kscope.scope("declared")

@triton.jit
def helper(n):
    with region("helper", value=n):
        twice = n * 2
    return twice

@triton.jit
def kernel(n, f, BLOCK: tl.constexpr):
    with kscope.region(f"outer {BLOCK}", value=tl.program_id(0)) as outer:
        for i in tl.static_range(2):
            with LOAD(value=i):
                outer.pin(helper(n))
            kscope.counter("level", f)
    kscope.instant("end", 7)
"""


def interpreted(tmp_path: Path, steps: str) -> str:
    """Run the kernels above and then the steps, interpreted, in a new process; their output."""
    script = tmp_path / "interpreted.py"
    script.write_text(KERNEL + textwrap.dedent(steps))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_interpreted_kernel_records_every_block(tmp_path):
    out = interpreted(
        tmp_path,
        """
        with kscope.profile() as prof:
            kernel[(3, 2)](8, 1.5, BLOCK=4)
            kernel[(1,)](9, 2.5, BLOCK=4)
        trace = prof.trace
        assert not trace.problems, trace.problems
        assert [launch.grid for launch in trace.launches] == [(3, 2, 1), (1, 1, 1)]
        assert trace.filter(region="outer 4").value.tolist() == [0, 0, 1, 1, 2, 2, 0]
        assert sorted(set(trace.filter(launch=0).block.tolist())) == [0, 1, 2, 3, 4, 5]
        assert trace.filter(region="helper").value.tolist() == [8] * 12 + [9] * 2
        assert trace.filter(region="declared").value.tolist() == [0, 1] * 7
        assert trace.filter(region="level").value.tolist() == [1.5] * 12 + [2.5] * 2
        assert trace.filter(region="end").value.tolist() == [7] * 7
        assert (trace.dur_cycles >= 0).all()
        assert trace.recorded.clock == "host"
        assert "host clock" in str(trace.summary()) and "aligned within" not in str(trace.summary())
        print("recorded", len(trace))
        """,
    )
    assert out == "recorded 56\n"


def test_an_interpreted_kernel_runs_plain_outside_of_a_session(tmp_path):
    out = interpreted(
        tmp_path,
        """
        from triton.runtime import interpreter
        before = interpreter.GridExecutor.__call__, vars(interpreter.interpreter_builder).get("set_grid_idx")
        kernel[(2,)](8, 1.5, BLOCK=4)
        with kscope.profile() as prof:
            with prof.paused():
                kernel[(2,)](8, 1.5, BLOCK=4)
        kernel[(2,)](8, 1.5, BLOCK=4)
        assert before == (interpreter.GridExecutor.__call__, vars(interpreter.interpreter_builder).get("set_grid_idx"))
        print(len(prof.trace))
        """,
    )
    assert out == "0\n"


def test_hooks_installed_by_other_tools_stay(tmp_path):
    out = interpreted(
        tmp_path,
        """
        from triton.runtime import interpreter
        builder, calls = interpreter.interpreter_builder, []
        def laid_over(owner, name):
            inner = getattr(owner, name)
            def theirs(*args, **kwargs):
                calls.append(name)
                return inner(*args, **kwargs)
            setattr(owner, name, theirs)
            return theirs
        with kscope.profile() as prof:
            theirs = laid_over(interpreter.GridExecutor, "__call__"), laid_over(builder, "set_grid_idx")
            kernel[(2,)](8, 1.5, BLOCK=4)
        kernel[(2,)](8, 1.5, BLOCK=4)
        with kscope.profile() as again:
            kernel[(2,)](8, 1.5, BLOCK=4)
        assert theirs == (interpreter.GridExecutor.__call__, vars(builder)["set_grid_idx"])
        print(len(prof.trace), len(again.trace), calls.count("__call__"), calls.count("set_grid_idx"))
        """,
    )
    assert out == "16 16 3 6\n"


def test_64_bit_values_are_exact_in_the_interpreter(tmp_path):
    out = interpreted(
        tmp_path,
        """
        @triton.jit
        def wide(n):
            with kscope.region("wide", value=(n.to(tl.int64) << 60) + 1):
                pass

        with kscope.profile() as prof:
            wide[(1,)](5)
        print(*set(prof.trace.to_pandas().exact_value.tolist()))
        """,
    )
    assert out == f"{(5 << 60) + 1}\n"


def test_device_helpers_of_simulated_kernels_work_after_interpreted_ones(tmp_path):
    out = interpreted(
        tmp_path,
        """
        import kscope_sim

        def simulated(warp):
            kscope.instant("place", kscope.warp_id() + 10 * kscope.block_id())

        kernel[(3, 2)](8, 1.5, BLOCK=4)
        with kscope.profile() as prof:
            kernel[(3, 2)](8, 1.5, BLOCK=4)
            kscope_sim.launch(simulated, grid=2, block=64)
        print(sorted(prof.trace.filter(region="place").value.tolist()))
        """,
    )
    assert out == "[0.0, 1.0, 10.0, 11.0]\n"


def test_a_region_that_is_never_entered_is_refused_with_its_line(tmp_path):
    out = interpreted(
        tmp_path,
        """
        @triton.jit
        def forgets(n):
            kscope.region("load", value=n)

        @triton.jit
        def calls(n):
            with LOAD():
                forgets(n)

        for kernel in (forgets, calls):
            try:
                with kscope.profile():
                    kernel[(1,)](1)
            except kscope.UsageError as error:
                print(error)
        """,
    )
    lines = (tmp_path / "interpreted.py").read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if "def forgets" in text) + 1
    message = f"{tmp_path / 'interpreted.py'}:{line}: kscope.region('load', value=n) is a statement by itself"
    assert [one.startswith(message) for one in out.splitlines()] == [True, True]


def test_an_interpreted_launch_has_the_line_of_the_program(tmp_path: Path) -> None:
    out = interpreted(
        tmp_path,
        """
        def one():
            kernel[(2,)](8, 1.5, BLOCK=4)

        with kscope.profile(launch_stacks=True) as prof:
            one()
            kernel[(2,)](8, 1.5, BLOCK=4)
        print([call.line.rpartition(": ")[2] for call in prof.trace.calls])
        """,
    )
    assert out == "['one', '<module>']\n"
