"""Gathers bytes of all ranks in rank 0, by torch.distributed: with the script's process group and its backend; after a
script that has destroyed its group or never created one, with a group of gloo.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any

from .launcher import Place
from .rendezvous import Rendezvous

_GROUP, _TORCH, _NONE = "group", "torch", ""
_PATIENCE = timedelta(seconds=120)


def gather_bytes(data: bytes, here: Place, meeting: Rendezvous) -> list[bytes] | None:
    """The data of all ranks in rank 0, and nothing in others; None if they have no common torch.distributed.

    Args:
        data: this rank's.
        here: its place.
        meeting: all ranks.

    Raises:
        UsageError: a rank has left.
        RuntimeError: raised by torch.
    """
    state = _state(here)
    states = meeting.gather(state)
    if here.world < 2 or len(set(states)) > 1 or state == _NONE:
        return None
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    if state == _GROUP:
        return _gather(torch, distributed, data)
    store = None
    if here.rank == 0:
        with suppress(RuntimeError):  # no port is free: each rank keeps its data
            store = distributed.TCPStore("0.0.0.0", 0, here.world, True, _PATIENCE, wait_for_workers=False)
    port = meeting.gather(None if store is None else store.port)[0]
    if port is None:
        return None
    if store is None:
        store = distributed.TCPStore(meeting.address, port, here.world, False, _PATIENCE)
    distributed.init_process_group("gloo", store=store, rank=here.rank, world_size=here.world, timeout=_PATIENCE)
    try:
        return _gather(torch, distributed, data)
    finally:
        distributed.destroy_process_group()


def _state(here: Place) -> str:
    if "torch" not in sys.modules:
        return _NONE
    distributed = import_module("torch.distributed")
    if not distributed.is_available():
        return _NONE
    if not distributed.is_initialized():
        return _TORCH if distributed.is_gloo_available() else _NONE
    same = (distributed.get_rank(), distributed.get_world_size()) == (here.rank, here.world)
    return _GROUP if same else _NONE


def _gather(torch: Any, distributed: Any, data: bytes) -> list[bytes]:
    device = "cpu" if "cpu:" in distributed.get_backend_config() else "cuda"
    rank, world = distributed.get_rank(), distributed.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    distributed.all_gather(sizes, torch.tensor([len(data)], dtype=torch.int64, device=device))
    counts = [int(one) for one in sizes]
    padded = bytearray(data.ljust(max(counts), b"\0"))
    mine = torch.frombuffer(padded, dtype=torch.uint8).to(device)
    rows = [torch.empty_like(mine) for _ in range(world)] if rank == 0 else None
    distributed.gather(mine, rows, dst=0)
    return [bytes(row[:count].cpu().numpy()) for row, count in zip(rows or (), counts, strict=False)]
