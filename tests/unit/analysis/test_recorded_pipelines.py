"""Kernels that an H200 recorded with auto="pipeline": edges that are found are those that a user writes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import edges
import numpy as np
import pytest

import kscope
from kscope.analysis.critical_path import Edge, critical_path
from kscope.analysis.pipelines.phases import phases
from kscope.analysis.pipelines.stages import pipelines

FOLDER = Path(__file__).resolve().parents[2] / "data" / "pipeline"
NAMES = ("gluon", "cuda", "cute", "triton")


@cache
def trace(name: str) -> kscope.Trace:
    return kscope.load(FOLDER / f"{name}.kscope")


@pytest.mark.parametrize("name", NAMES)
def test_every_wait_is_known_and_every_phase_is_whole(name: str) -> None:
    found = phases(trace(name))
    assert len(found) > 60
    assert found.wait_known.all()
    assert (found.arrived == found.needed).all()
    assert (found.issued_ns <= found.landed_ns).all()
    assert not found.problems


def test_a_gluon_matmul_has_the_edges_of_its_example() -> None:
    ready = edges.compare(trace("gluon"), "ask", "wait_ready")
    assert (ready.waits, ready.first, ready.unknown, ready.wrong) == (2 * 32 * 4, 0, 0, ())
    empty = edges.compare(trace("gluon"), "multiply", "wait_empty", 4)
    assert (empty.waits, empty.first, empty.unknown, empty.wrong) == (2 * 32, 2 * 4, 0, ())


def test_cuda_cpp_has_the_edges_of_its_example() -> None:
    ready = edges.compare(trace("cuda"), "ask", "wait")
    assert (ready.waits, ready.first, ready.unknown, ready.wrong) == (256, 0, 0, ())
    room = edges.compare(trace("cuda"), "multiply", "room", 4)
    assert (room.waits, room.first, room.unknown, room.wrong) == (32, 8, 0, ())
    found = phases(trace("cuda"))
    assert set(found.copied[found.copies > 0].tolist()) == {8192}


def test_a_cute_gemm_in_clusters_has_the_edges_of_its_example() -> None:
    """Its consumers release stages of both blocks of a pair, one step later, and expected bytes come before `ask`."""
    ready = edges.compare(trace("cute"), "ask", "wait_ready", behind=(-1, 0))
    assert (ready.waits, ready.first, ready.unknown, ready.wrong) == (4 * 32 * 8, 0, 0, ())
    empty = edges.compare(trace("cute"), "multiply", "wait_empty", 4, behind=(0, 1))
    assert (empty.waits, empty.first, empty.unknown, empty.wrong) == (4 * 32, 4 * 4, 0, ())
    found = phases(trace("cute"))
    others = trace("cute").block[found.signal_record] != found.block[found.signal_phase]
    assert np.count_nonzero(others) > 200, "arrivals from the other block"


def test_rings_are_the_stages_of_the_examples() -> None:
    for name, stages in (("gluon", 4), ("cuda", 4), ("cute", 4)):
        (kernel,) = pipelines(trace(name)).kernels
        rings = [ring for ring in kernel.rings if not ring.groups]
        assert [ring.stages for ring in rings] == [stages, stages]
        filled, back = sorted(rings, key=lambda ring: not ring.copies)
        assert back.gives_back == filled.name
        assert filled.bytes_per_phase in (8192, 32768, 49152)


def test_the_path_without_edges_is_the_one_over_edges_by_hand() -> None:
    by_hand = critical_path(trace("gluon"), [Edge("ask", "wait_ready"), Edge("multiply", "wait_empty", 4)])
    found = critical_path(trace("gluon"), ())
    assert found.total_ns == pytest.approx(by_hand.total_ns, rel=0.02)
    assert found.unmatched == 0
