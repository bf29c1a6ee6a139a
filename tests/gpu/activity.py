"""CUPTI's activity records of kernels, with their %gridid, written in the form of Kineto's files.

    python -m gpu.activity FOLDER LAUNCHES

Records launches of Triton kernels with kscope and CUPTI at once: eager, on two streams, and replays of a graph. Writes
FOLDER/run.kscope, and FOLDER/exact.json and FOLDER/withheld.json, with gridId and without.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import torch

import kscope
from kscope_runtime import cupti

from . import merge_kernels as k

KERNEL = 10
"""CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"""
_SIZE = 8 << 20
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Head(ctypes.Structure):
    """The first fields of CUpti_ActivityKernel9 and 10."""

    _pack_ = 1
    _fields_ = (
        ("kind", ctypes.c_uint32), ("other", ctypes.c_uint8 * 12), ("start", ctypes.c_uint64), ("end", ctypes.c_uint64),
        ("completed", ctypes.c_uint64), ("device", ctypes.c_uint32), ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32), ("grid", ctypes.c_int32 * 3), ("block", ctypes.c_int32 * 3),
        ("memory", ctypes.c_uint32 * 4), ("correlation", ctypes.c_uint32), ("grid_id", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    )  # fmt: skip


class Activity:
    """The kernels that run in the `with` block."""

    def __init__(self) -> None:
        self.kernels = list[dict[str, Any]]()
        self._library = ctypes.CDLL(str(cupti.find()))
        self._buffers = dict[int, Any]()
        self._requested, self._completed = _REQUESTED(self._request), _COMPLETED(self._complete)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._requested, self._completed)))  # called at exit, too

    def __enter__(self) -> Activity:
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        self._call("cuptiActivityEnable", KERNEL)
        return self

    def __exit__(self, *error: object) -> None:
        self._call("cuptiActivityDisable", KERNEL)
        self._call("cuptiActivityFlushAll", 1)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        assert result == 0, (name, result)

    def _request(self, buffer: Any, size: Any, most: Any) -> None:
        made = ctypes.create_string_buffer(_SIZE + 8)
        address = (ctypes.addressof(made) + 7) // 8 * 8
        self._buffers[address] = made
        buffer[0], size[0], most[0] = address, _SIZE, 0

    def _complete(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        while self._library.cuptiActivityGetNextRecord(
            ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        ) == 0:  # fmt: skip
            one = Head.from_address(record.value or 0)
            if one.kind == KERNEL:
                self.kernels.append(
                    {
                        "name": one.name.decode(), "start": one.start, "end": one.end, "device": one.device,
                        "stream": one.stream, "grid": list(one.grid), "block": list(one.block),
                        "correlation": one.correlation, "gridId": one.grid_id,
                    }
                )  # fmt: skip
        del self._buffers[buffer]


def written(kernels: list[dict[str, Any]], withheld: bool) -> str:
    """A file of Kineto's form."""
    base = min(one["start"] for one in kernels)
    events = []
    for one in kernels:
        args = {name: one[name] for name in ("device", "stream", "grid", "block", "correlation", "gridId")}
        if withheld:
            del args["gridId"]
        begin, length = one["start"] - base, one["end"] - one["start"]
        head = {"ph": "X", "cat": "kernel", "name": one["name"], "pid": one["device"], "tid": one["stream"]}
        text = json.dumps({**head, "args": args})[:-1]
        events.append(
            f'{text}, "ts": {begin // 1000}.{begin % 1000:03d}, "dur": {length // 1000}.{length % 1000:03d}}}'
        )
    return f'{{"schemaVersion": 1, "baseTimeNanoseconds": {base}, "traceEvents": [\n{",".join(events)}\n]}}\n'


def work(launches: int) -> None:
    """A third eager, a third on two streams, and a third by replays of a graph of ten."""
    x = torch.rand(16 * 1024, device="cuda")
    outs = [torch.empty_like(x) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    third = launches // 3
    for at in range(third):
        (k.scale if at % 3 else k.shift)[(16,)](
            x, outs[0], x.numel(), at, BLOCK=1024, **({"TURNS": 16} if at % 3 else {})
        )  # fmt: skip
    torch.cuda.synchronize()
    for at in range(third):
        with torch.cuda.stream(streams[at % 2]):
            k.scale[(16,)](x, outs[at % 2], x.numel(), at, TURNS=1 << 14, BLOCK=1024)
        if at % 40 == 39:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for at in range(10):
            k.shift[(16,)](x, outs[0], x.numel(), at, BLOCK=1024)
    for _ in range(third // 10):
        graph.replay()
    torch.cuda.synchronize()


def main(folder: Path, launches: int) -> None:
    kscope.enable()
    work(300)
    activity = Activity()
    with activity, kscope.profile(folder / "run.kscope", pool=1 << 30):
        work(launches)
    kernels = [one for one in activity.kernels if one["name"] in ("scale", "shift")]
    for name, withheld in (("exact", False), ("withheld", True)):
        (folder / f"{name}.json").write_text(written(kernels, withheld))
    print(len(kernels), "kernels")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
