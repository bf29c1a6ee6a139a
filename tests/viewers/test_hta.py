"""Merged files in Holistic Trace Analysis (HTA), which reads torch.profiler's traces. `make test-viewers` installs it.

KSCOPE_HTA is the interpreter of a venv with holistictraceanalysis.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import kinetos
import pytest
from kinetos import Recorded, Run

import kscope
from kscope.trace import decode

HTA = os.environ.get("KSCOPE_HTA")
pytestmark = pytest.mark.skipif(not HTA, reason="no HTA: make test-hta")
READ = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
kinds, kernels = found.get_gpu_kernel_breakdown(visualize=False)
idle = found.get_idle_time_breakdown(visualize=False)[0]
print(json.dumps([json.loads(table.to_json(orient="records")) for table in (kinds, kernels, idle)]))
"""


def read(file: Path) -> Any:
    """HTA's results for a file: kinds of kernels, kernels, idle time of streams."""
    assert HTA is not None
    command = [HTA, "-c", READ, str(file), str(file.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_merged_file_has_the_numbers_of_torchs_own(suffix: str, tmp_path: Path) -> None:
    recorded = Recorded(
        kinetos.steps(60), unrecorded=[Run("memset", 100, 100, 200, 900, correlation=5, op="aten::zero_")]
    )
    (tmp_path / "torch.json").write_bytes(recorded.kineto())
    merged = kscope.merge(decode(recorded.capture()), tmp_path / "torch.json")
    merged.write(tmp_path / f"merged{suffix}")
    own, both = read(tmp_path / "torch.json"), read(tmp_path / f"merged{suffix}")
    assert own == both
    assert {row["name"] for row in both[1]} == {"scale", "shift", "memset"}
