"""NVIDIA's libcupti: its calls for PC sampling, checked, through ctypes. Structures are those of cupti_pcsampling.h
(13.0); each begins with its size, so that other versions of the library know its fields.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kscope.errors import DriverError, MissingError, UnsupportedError
from kscope.util.text import install_command

u8, u32, u64, size_t = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
pointer = ctypes.c_void_p

PERIOD, SCRATCH, HARDWARE_BUFFER, MODE, START_STOP, BUFFER, THREAD_SLEEP = 1, 3, 4, 5, 6, 8, 9
"""Attributes of CUpti_PCSamplingConfigurationAttributeType."""
CONTINUOUS = 1
REASON_BYTES = 128
OUT_OF_MEMORY = 8
_NAME = "libcupti.so"
_PERFORMANCE = ("libnvperf_host.so", "libnvperf_target.so")
"""Libraries that libcupti loads by name."""
_ADMIN = (
    "profiling needs the administrator's permission here (ERR_NVGPUCTRPERM): run as root, add the capability "
    "CAP_SYS_ADMIN to the container, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
)
_BUSY = (
    "another profiler uses the GPU's counters (torch.profiler, nsys, ncu, a debugger or IKET): only one can at a time, "
    "so run without it"
)
_UNSUPPORTED = "this GPU or driver cannot sample: NVIDIA's library supports GPUs from Volta (sm_70) on"
_REASONS = {
    27: _UNSUPPORTED,
    33: "this virtual GPU cannot be sampled",
    35: _ADMIN,
    36: _BUSY,
    38: _UNSUPPORTED,
    39: _BUSY,
    26: _BUSY,
    40: "profiling is not enabled for this virtual GPU: its hypervisor's administrator can enable it",
    41: "a GPU in confidential computing mode cannot be sampled",
    42: "a CMP device cannot be sampled",
    43: "a MIG device cannot be sampled",
    45: "a GPU under WSL cannot be sampled by this driver",
}


class StallReason(ctypes.Structure):
    """CUpti_PCSamplingStallReason."""

    _fields_ = (("index", u32), ("samples", u32))


class PcData(ctypes.Structure):
    """CUpti_PCSamplingPCData: 64 bytes."""

    _fields_ = (
        ("size", size_t), ("cubin_crc", u64), ("pc", u64), ("function_index", u32), ("pad", u32),
        ("function_name", pointer), ("reasons", size_t), ("reason", pointer), ("correlation", u32),
    )  # fmt: skip


class Data(ctypes.Structure):
    """CUpti_PCSamplingData: 80 bytes."""

    _fields_ = (
        ("size", size_t), ("capacity", size_t), ("total", u64), ("dropped", u64), ("pcs", size_t),
        ("remaining", size_t), ("range", u64), ("pc_data", pointer), ("elsewhere", u64), ("full", u8),
    )  # fmt: skip


class Attribute(ctypes.Structure):
    """CUpti_PCSamplingConfigurationInfo: its union has 24 bytes, whose first eight are used here."""

    _fields_ = (("kind", ctypes.c_int), ("status", ctypes.c_int), ("value", u64), ("rest", u64 * 2))


class Configuration(ctypes.Structure):
    """CUpti_PCSamplingConfigurationInfoParams."""

    _fields_ = (("size", size_t), ("private", pointer), ("context", pointer), ("count", size_t), ("first", pointer))


class OfContext(ctypes.Structure):
    """CUpti_PCSampling{Enable,Disable,Start,Stop}Params."""

    _fields_ = (("size", size_t), ("private", pointer), ("context", pointer))


class GetData(ctypes.Structure):
    """CUpti_PCSamplingGetDataParams."""

    _fields_ = (("size", size_t), ("private", pointer), ("context", pointer), ("data", pointer))


class CountReasons(ctypes.Structure):
    """CUpti_PCSamplingGetNumStallReasonsParams."""

    _fields_ = (("size", size_t), ("private", pointer), ("context", pointer), ("count", pointer))


class NameReasons(ctypes.Structure):
    """CUpti_PCSamplingGetStallReasonsParams."""

    _fields_ = (
        ("size", size_t), ("private", pointer), ("context", pointer), ("count", size_t), ("indices", pointer),
        ("names", pointer),
    )  # fmt: skip


class Checksum(ctypes.Structure):
    """CUpti_GetCubinCrcParams."""

    _fields_ = (("size", size_t), ("bytes", size_t), ("cubin", ctypes.c_char_p), ("crc", u64))


OnModule = ctypes.CFUNCTYPE(None, pointer, size_t, ctypes.POINTER(u64))
"""CUpti_ComputeCrcCallbackFunc: a loaded cubin, its bytes, and the place for its checksum."""


class Cupti:
    """The library.

    Args:
        path: its file.

    Raises:
        MissingError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        try:
            for name in _PERFORMANCE:
                if (beside := path.with_name(name)).exists():
                    ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise MissingError(f"{path} cannot be loaded: {error}") from error
        self._callback: Any = None  # kept alive: the library calls it

    def enable(self, context: int) -> None:
        """Allow sampling of a context to be configured."""
        self._of_context("cuptiPCSamplingEnable", context)

    def disable(self, context: int) -> None:
        """End the sampling of a context. Unread samples go to the configured buffer."""
        self._of_context("cuptiPCSamplingDisable", context)

    def start(self, context: int) -> None:
        """Start taking samples."""
        self._of_context("cuptiPCSamplingStart", context)

    def stop(self, context: int) -> None:
        """Stop taking samples."""
        self._of_context("cuptiPCSamplingStop", context)

    def configure(self, context: int, values: dict[int, int]) -> None:
        """Set attributes: numbers, or the address of a Data for BUFFER."""
        rows = (Attribute * len(values))(*(Attribute(kind, 0, value) for kind, value in values.items()))
        parameters = Configuration(0, None, context, len(rows), ctypes.addressof(rows))
        self._call("cuptiPCSamplingSetConfigurationAttribute", parameters)

    def read(self, context: int, data: Data) -> bool:
        """Move samples that have arrived into `data`. Never waits for the device.

        Returns:
            False if the hardware's buffer was full, which loses samples.
        """
        parameters = GetData(0, None, context, ctypes.addressof(data))
        return self._call("cuptiPCSamplingGetData", parameters, allowed=OUT_OF_MEMORY) != OUT_OF_MEMORY

    def reasons(self, context: int) -> dict[int, str]:
        """The names of the stall reasons by index; after enable()."""
        count = size_t(0)
        self._call("cuptiPCSamplingGetNumStallReasons", CountReasons(0, None, context, ctypes.addressof(count)))
        indices = (u32 * count.value)()
        texts = [ctypes.create_string_buffer(REASON_BYTES) for _ in range(count.value)]
        names = (pointer * count.value)(*(ctypes.addressof(text) for text in texts))
        parameters = NameReasons(0, None, context, count.value, ctypes.addressof(indices), ctypes.addressof(names))
        self._call("cuptiPCSamplingGetStallReasons", parameters)
        return {index: text.value.decode("utf-8", "replace") for index, text in zip(indices, texts, strict=True)}

    def on_module(self, seen: Callable[[bytes], int]) -> None:
        """Call `seen` with each new cubin of the library; it returns the number that its samples carry."""

        def callback(cubin: int | None, size: int, checksum: Any) -> None:
            try:
                checksum[0] = seen(ctypes.string_at(cubin, size) if cubin else b"")
            except Exception:  # there is no caller to raise to
                checksum[0] = 0

        self._callback = OnModule(callback)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._callback))  # the library may call it when the process ends
        self._check("cuptiRegisterComputeCrcCallback", self._library.cuptiRegisterComputeCrcCallback(self._callback))

    def checksum(self, cubin: bytes) -> int:
        """The number that samples carry for a cubin that was loaded before on_module(): a checksum of its code
        alone.
        """
        parameters = Checksum(0, len(cubin), cubin, 0)
        self._call("cuptiGetCubinCrc", parameters)
        return int(parameters.crc)

    def finalize(self) -> None:
        """End all use of the library in this process, so that it learns of all loaded modules at its next use. Other
        clients, such as torch.profiler, begin anew at theirs.
        """
        self._check("cuptiFinalize", self._library.cuptiFinalize())

    def _of_context(self, name: str, context: int) -> None:
        self._call(name, OfContext(0, None, context))

    def _call(self, name: str, parameters: Any, allowed: int = 0) -> int:
        parameters.size = ctypes.sizeof(parameters)
        function = getattr(self._library, name, None)
        if function is None:
            raise UnsupportedError(
                "this libcupti is older than PC sampling: install nvidia-cuda-cupti of CUDA 12 or 13"
            )
        result = int(function(ctypes.byref(parameters)))
        if result != allowed:
            self._check(name, result)
        return result

    def _check(self, name: str, result: int) -> None:
        if result == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuptiGetResultString(result, ctypes.byref(text))
        word = (text.value or b"unknown").decode("utf-8", "replace")
        reason = _REASONS.get(result)
        if reason is not None:
            raise UnsupportedError(f"{reason} ({name}: {word})")
        raise DriverError(name, word, result, "")


def find() -> Path:
    """The library's file: the one that this process has loaded, of a wheel, or of a CUDA toolkit.

    Raises:
        MissingError: it is not installed.
    """
    for path in (*_loaded(), *_in_wheels(), *_in_toolkits()):
        if path.is_file():
            return path
    raise MissingError(
        f"libcupti is not installed: {install_command('stalls')}, or set CUDA_HOME to a CUDA toolkit; torch brings it"
    )


def _loaded() -> Iterator[Path]:
    """Loaded files: a second copy in one process would not know the first one's context."""
    for line in _maps().splitlines():
        path = line.partition("/")[2]
        if path and Path(path).name.startswith(_NAME):
            yield Path("/" + path)


def _maps() -> str:
    """The mappings of this process; empty where they are unknown."""
    try:
        return Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return ""


def _in_wheels() -> Iterator[Path]:
    spec = find_spec("nvidia")
    for home in (spec.submodule_search_locations or ()) if spec else ():
        for folder in ("cu13", "cuda_cupti"):
            yield from sorted(Path(home, folder, "lib").glob(_NAME + "*"), reverse=True)


def _in_toolkits() -> Iterator[Path]:
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    for home in (*homes, "/usr/local/cuda"):
        for folder in ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"):
            yield from sorted(Path(home, folder).glob(_NAME + "*"), reverse=True)


def other_client() -> str:
    """The profiler that already uses this process; empty if none is known."""
    torch = sys.modules.get("torch")
    autograd = getattr(getattr(torch, "_C", None), "_autograd", None)
    try:
        if autograd is not None and autograd._profiler_enabled():
            return "torch.profiler"
    except (AttributeError, TypeError):
        pass
    flags = getattr(sys.modules.get("triton.profiler.flags"), "flags", None)
    if getattr(flags, "profiling_on", False):
        return "Proton"
    maps = _maps()
    for library, name in _INJECTED.items():
        if library in maps:
            return name
    return ""


def torch_may_have_used_it() -> bool:
    """True if torch.profiler, which is not active now, may have used the library in this process."""
    return "torch" in sys.modules


_INJECTED = {
    "libToolsInjection": "nsys",
    "libcuda-injection": "ncu",
    "libsanitizer-collection": "compute-sanitizer",
    "libcutracer": "CUTracer",
    "libiket_injection": "IKET",
}
"""Tools that are loaded into a program, by their library."""
