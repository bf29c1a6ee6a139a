"""Capture: CaptureData that is saved to and loaded from a `.kscope` file."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import file
from .capture_data import CaptureData


class Capture(CaptureData):
    """One session's recording, from every device.

    Attributes:
        epoch: the session's number, which every slab's header carries.
        devices: recordings of the devices.
        modules: the metadata of the modules that may have recorded.
        options: the session's options, ready for JSON.
        problems: problems of the whole session.
        host: versions, machine, command, start (UNIX ns).
        launches: how often the session launched kernels, by kernel id: launches that the host saw and that began and
            ended while recording. Empty if the session was paused or interrupted.
        tuning_launches: launches by which autotuners timed configurations; they run plain and record nothing.
        samples: stall samples, for a session with stalls=True; None without.
        lines: the distinct lines of Python that launched kernels; empty without profile(launch_stacks=True).
        launched_at: by kernel id the index of each launch's line, in order of launch; without replays of graphs.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.kscope` file. An existing file is replaced only when the new one is complete on disk.

        Args:
            path: where to write. Its folder must exist.

        Raises:
            UsageError: the folder is missing, or the path is a folder.
            OSError: the file cannot be written.
        """
        file.write(self, path)


def load_capture(
    path: str | os.PathLike[str], *, max_bytes: int | None = None, step: Callable[[int], object] | None = None
) -> Capture:
    """Read a `.kscope` file, or a pool file that a session with survive= left. Safe for untrusted files.

    Args:
        path: a regular file.
        max_bytes: limit of the capture's unpacked size, in bytes. By default 64 times the file's size or a
            quarter of the memory available to this process, whichever is less, and at least 256 MiB.
        step: progress callback, called with the number of bytes read since the last call.

    Returns:
        The capture.

    Raises:
        FormatError: not a capture, truncated, damaged, of another version, or larger than `max_bytes` unpacked.
        OSError: the file cannot be read.
    """
    from .pools import pool_file

    if pool_file.is_pool_file(path):
        from .pools import keeper_socket, pool_capture, pool_reading  # of few captures

        pool = pool_reading.open_pool(path)
        keeper_socket.refresh(pool)
        return Capture(**vars(pool_capture.capture_of(pool)))
    return Capture(**vars(file.read(path, max_bytes=max_bytes, step=step)))
