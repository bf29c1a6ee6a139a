"""Saves the recording when the process is terminated: SIGTERM from torchrun, SLURM or `timeout`. Python runs signal
handlers between bytecodes of the main thread, which may be in `torch.cuda.synchronize()`, so the wakeup file descriptor
of the signal module starts the save in a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from ..util.signals import Prompt

_STOP = 0
"""Ends the thread; not the number of a signal."""
_THREAD = "kscope SIGTERM"


class Termination(Prompt):
    """The handler of SIGTERM during a session: save, then die by the signal.

    Installed only from the main thread, and only if the program has the default action. A handler that the program
    installs later replaces this one.

    Args:
        save: saves the recording and returns a message for stderr; empty for none.
    """

    def __init__(self, save: Callable[[], str]) -> None:
        self._save, self._pid = save, 0
        self._read = self._write = -1
        self._thread: threading.Thread | None = None

    def install(self) -> None:
        """Handle SIGTERM from now on, if possible."""
        if os.name != "posix" or threading.current_thread() is not threading.main_thread():
            return
        if self._thread is not None or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        self._pid = os.getpid()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._serve, name=_THREAD, daemon=True)
        self._thread.start()
        with suppress(ValueError):  # a subinterpreter has no signals
            before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            if before != -1:  # an event loop's: the handler writes into the pipe
                signal.set_wakeup_fd(before)
            signal.signal(signal.SIGTERM, self)

    def remove(self) -> bool:
        """Restore the default action. Returns only if no save is running; False outside the main thread, where the
        handler stays.
        """
        if self._thread is None or os.getpid() != self._pid:
            return True
        if threading.current_thread() is not threading.main_thread():
            return False
        if self._is_installed():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._unwatch()
        os.write(self._write, bytes([_STOP]))
        self._thread.join()
        self._thread = None
        os.close(self._read)
        os.close(self._write)
        return True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Start the save, in case another library has replaced the wakeup file descriptor."""
        if os.getpid() == self._pid:
            with suppress(BlockingIOError):
                os.write(self._write, bytes([number]))
        else:  # a forked child
            _die()

    def forked(self) -> None:
        """In a forked child: the default action, and no byte into the parent's pipe."""
        if self._thread is None:
            return
        with suppress(ValueError):
            self._unwatch()
            if self._is_installed():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _is_installed(self) -> bool:
        return signal.getsignal(signal.SIGTERM) is self

    def _unwatch(self) -> None:
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, self._write):
            signal.set_wakeup_fd(before)

    def _serve(self) -> None:
        while (number := os.read(self._read, 1)) != bytes([_STOP]):
            if number == bytes([signal.SIGTERM]) and self._is_installed():
                try:
                    text = self._save()
                except BaseException as error:
                    text = f"nothing was saved: {error}"
                if text and sys.stderr is not None:
                    with suppress(OSError, ValueError):  # it may be closed
                        print(f"kscope: terminated; {text}", file=sys.stderr, flush=True)
                _die()


def _die() -> None:
    """Die by SIGTERM. signal.signal() works in the main thread only, the C function in every thread."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)
