"""An event for which compiled code can wait as well."""

from __future__ import annotations

import os
import threading
import weakref


class Wake(threading.Event):
    """Attributes:
    file: a descriptor that can be read while the event is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self.file).atexit = False  # a thread may still wait

    def set(self) -> None:
        """Wake the thread that waits."""
        super().set()
        os.eventfd_write(self.file, 1)

    def clear(self) -> None:
        """Let later waits wait."""
        super().clear()
        try:
            os.eventfd_read(self.file)
        except BlockingIOError:  # it was not set
            return
