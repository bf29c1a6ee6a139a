"""torch's worker server and the dumps of its flight recorder say where the warps are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kscope
import kscope_sim
from kscope.capture.pools import pool_folder
from kscope.cli.running.torch_dumps import TorchDumps

PROGRAM = Path(__file__).resolve().parents[1] / "black_box_program.py"
ENTERED = "consumer warps 1-3 of block 0 are in `wait_full` (value 7)"


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pools"
    monkeypatch.setenv(pool_folder.VARIABLE, str(folder))
    return folder


@contextmanager
def server(path: Path) -> Iterator[Path]:
    """torch's worker server at a socket, as torchelastic starts it."""
    pytest.importorskip("torch")
    distributed = pytest.importorskip("torch._C._distributed_c10d")
    running = distributed._WorkerServer(str(path))
    try:
        yield path
    finally:
        running.shutdown()


def answer(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"POST /handler/kscope HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        found = b""
        while part := client.recv(1 << 16):
            found += part
    return found.decode()


def test_torchs_worker_server_answers_while_a_kernel_runs(
    pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_WORKER_SERVER_SOCKET", str(tmp_path / "s"))
    answers = list[str]()

    def kernel(warp: kscope_sim.Warp) -> None:
        with kscope.region("wait", value=7):
            answers.append(answer(path))

    with server(tmp_path / "s") as path:
        with kscope.profile(survive="shm"):
            kscope_sim.launch(kernel, grid=1, block=32)
        answers.append(answer(path))
    assert "200 OK" in answers[0] and "warp 0 of block 0 is in `wait` (value 7)" in answers[0]
    assert "no session with survive= records in this process" in answers[1]


def test_a_program_with_the_handler_ends_as_without_it(pools: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """if True:
        import torch, kscope, kscope_sim
        with kscope.profile(survive="shm"):
            kscope_sim.launch(lambda warp: warp.work(9), grid=1, block=32)
        print("kscope" in torch._C._distributed_c10d._get_handler_names())
    """
    for server in ({"TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "s")}, {}):
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **server}, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(bool(server))], "torch gets a handler only if it may have a server"


def test_where_the_warps_are_is_written_beside_the_dump_of_torch(pools: Path, tmp_path: Path) -> None:
    """torch's own output is faked: a collective that times out needs GPUs."""
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "nccl_trace_rank_1").write_bytes(b"of an earlier run")
    where = {"TORCH_FR_DUMP_TEMP_FILE": str(traces / "nccl_trace_rank_"), "RANK": "1", "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "kscope", "run", "--survive", "shm", "-o", str(tmp_path / "run.kscope")]
    env = {**os.environ, **where, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [*command, str(PROGRAM), "signal"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    beside = traces / "kscope_rank_1.txt"
    try:
        for _ in range(600):
            if any(pools.glob("*.pool")):
                break
            time.sleep(0.05)
        time.sleep(1.5)  # it hangs, and kscope run has looked
        assert not beside.exists(), "an earlier dump is none of this program"
        (traces / "nccl_trace_rank_1").write_bytes(b"torch's")
        for _ in range(600):
            if beside.exists():
                break
            time.sleep(0.05)
    finally:
        program.send_signal(signal.SIGTERM)
        errors = program.communicate(timeout=60)[1]
    assert ENTERED in beside.read_text()
    assert f"where the warps were: {beside}" in errors
    assert sorted(path.name for path in traces.iterdir()) == ["kscope_rank_1.txt", "nccl_trace_rank_1"]


def test_torchs_analyzer_does_not_take_it_for_a_dump(tmp_path: Path) -> None:
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader")
    beside = TorchDumps({"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "nccl_trace_rank_")}).add(["a line"])
    assert loader._determine_prefix(["nccl_trace_rank_0", beside.name]) == "nccl_trace_rank_"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"TORCH_FR_DUMP_TEMP_FILE": "a/fr_"}, "a/fr_0"),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "a/fr_", "RANK": "3", "WORLD_SIZE": "8"}, "a/fr_3"),
        ({"HOME": "."}, ".cache/torch/comm_lib_trace_rank_0"),
    ],
)
def test_a_dump_is_found_where_torch_puts_it(
    environment: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dumps = TorchDumps(environment)
    assert not dumps.is_new()
    Path(name).parent.mkdir(parents=True)
    Path(name).touch()
    assert dumps.is_new()
    assert not dumps.is_new(), "one dump is one"
