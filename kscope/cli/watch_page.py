"""`kscope watch --serve PORT`: where the warps are, as a live page, and a report of the time so far."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial

from .. import report
from ..capture.capture import Capture
from ..capture.pools import keeper_socket
from ..capture.pools.pool_capture import capture_of
from ..capture.pools.pool_reading import Pool
from ..trace import decode
from ..watching import page
from ..watching.observing import Observer
from ..watching.verdict import verdict
from .common.server import Resource, Server

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Reports have a stricter policy inside; the live page has no script."""
_LOOKS = 120


def create_server(pools: Sequence[Pool], every: float, port: int) -> Server:
    """The server, bound and not yet running: the page, the current verdicts, and a report of each pool."""
    title = f"kscope watch {pools[0].pid}"
    resources = {
        "": Resource(page.frame(title, len(pools)).encode()),
        "now.html": Resource(_Looks(pools, every).page),
    }
    resources |= {f"report{number}.html": Resource(partial(_report, pool)) for number, pool in enumerate(pools)}
    return Server(resources, POLICY, port)


class _Looks:
    """Observes the pools, for one request at a time, for any number of readers."""

    def __init__(self, pools: Sequence[Pool], every: float) -> None:
        self._every, self._lock = every, threading.Lock()
        self._each = [(pool, Observer(), deque[float](maxlen=_LOOKS)) for pool in pools]

    def page(self) -> bytes:
        """The page with the current verdicts."""
        with self._lock:
            found = [verdict(pool, observer) for pool, observer, _ in self._each]
            for one, (_, _, rates) in zip(found, self._each, strict=True):
                rates.append(one.enters_per_s or 0.0)
            return page.now(found, [[*rates] for _, _, rates in self._each], self._every).encode()


def _report(pool: Pool) -> bytes:
    """The timeline up to now. The pool is mapped: its file may have been deleted."""
    keeper_socket.refresh(pool)
    file = io.BytesIO()
    report.write(decode(Capture(**vars(capture_of(pool)))), file)
    return file.getvalue()
