"""cuda.core: compile() follows the state. It needs a driver with a version: a fake one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.core")
ROOT = Path(__file__).resolve().parents[3]

DRIVER = r"""
#include <string.h>
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
static int nothing(void) { return 100; }  // CUDA_ERROR_NO_DEVICE
int cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long long flags, int* status) {
    *found = strcmp(name, "cuDriverGetVersion") ? (void*)nothing : (void*)cuDriverGetVersion;
    if (status) *status = 0;
    return 0;
}
"""

SCRIPT = r"""
from types import SimpleNamespace
import kscope
from cuda.core import ProgramOptions
from kscope.instrument import loaded_code, registry
from kscope.instrument.selection.auto import Lines, Selection
from kscope.instrument.recording import Recording
from kscope_cuda import core

loaded = []
class Backend:
    def module_loaded(self, module):
        loaded.append(module)
registry._backends["cuda"] = Backend()

MARKED = '''
template <class T> __global__ void kernel(T* out) { KSCOPE_REGION("work"); out[0] = OUT; }
'''
BARE = MARKED.replace('KSCOPE_REGION("work");', "")
READY = MARKED.replace('KSCOPE_REGION("work");', "KSCOPE_KERNEL();")
for arch in ("sm_80", "sm_90", "sm_100"):
    options = ProgramOptions(std="c++17", arch=arch, define_macro=("OUT", "3"), max_register_count=32)
    def build(source):
        return core.compile(source, options, name_expressions=("kernel<int>",))
    never = build(BARE)
    assert build(MARKED).code == never.code
    frontend = registry.frontend("cuda.core")
    frontend.enable(Recording())
    prepared = build(MARKED)
    assert bytes(prepared.code).startswith(b"\x7fELF") and b"kscope_ctl" in prepared.code
    assert prepared.symbol_mapping == never.symbol_mapping, (prepared.symbol_mapping, never.symbol_mapping)
    assert build(BARE).code == build(READY).code == never.code
    frontend.enable(Recording(selection=Selection(("store",), (Lines.of("all=kernel:2"),))))
    assert all(name in build(BARE).code for name in (b'"all"', b'"store kernel:2"'))
    usual, options = options, ProgramOptions(arch=arch, define_macro=("OUT", "3"), debug=True)
    try:
        build(MARKED)
    except kscope.UnsupportedError as error:
        assert "regions in kernel<int>: compiled with -G" in str(error), error
    else:
        raise AssertionError("a program for the debugger was not refused")
    options = usual
    frontend.disable()
    assert build(MARKED).code == build(BARE).code == never.code
    core.arm(never)
    assert not loaded and not loaded_code._images
    core.arm(SimpleNamespace(code=prepared.code, get_module=lambda: 7))
    assert loaded.pop() == 7
    (kept,) = loaded_code.kept_cubins()
    assert kept is prepared.code
    loaded_code._images.clear()
del core.program.cuda_core.ObjectCode
try:
    build(MARKED)
except kscope.UnsupportedError as error:
    assert "has no cuda.core.ObjectCode" in str(error)
else:
    raise AssertionError("the missing class was not missed")
print("done")
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_programs_follow_the_state(tmp_path: Path) -> None:
    Path(tmp_path, "driver.c").write_text(DRIVER)
    library = ["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"]
    subprocess.run(library, check=True)
    paths = os.pathsep.join(str(ROOT / folder) for folder in (".", "frontends", "runtime"))
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
