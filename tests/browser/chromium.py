"""Headless Chromium, driven through the pipe of its DevTools protocol: no port, no driver, no package.

Messages are JSON that ends in a NUL byte; the browser reads from its file descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

BINARIES = ("chromium", "chromium-browser", "google-chrome")
_READS, _WRITES = 3, 4  # the descriptors that Chromium looks for
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


def binary() -> str | None:
    """The browser of this machine: $CHROMIUM, or the first that is on the PATH."""
    return os.environ.get("CHROMIUM") or next((found for name in BINARIES if (found := shutil.which(name))), None)


def _started(command: list[str]) -> tuple[int, int, int]:
    """(process, our read end, our write end) of a browser whose descriptors 3 and 4 are the other ends."""
    pipes = [*os.pipe(), *os.pipe()]
    theirs_in, ours_out, ours_in, theirs_out = (fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in pipes)
    for one in pipes:
        os.close(one)
    program = shutil.which(command[0]) or command[0]
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    ends = [(os.POSIX_SPAWN_DUP2, theirs_in, _READS), (os.POSIX_SPAWN_DUP2, theirs_out, _WRITES)]
    process = os.posix_spawn(program, command, os.environ, file_actions=[*quiet, *ends])
    os.close(theirs_in)
    os.close(theirs_out)
    return process, ours_in, ours_out


class Page:
    """One page of a separate browser with a temporary profile. Use as a context manager.

    `console` has the console messages of the page, uncaught errors and policy violations included;
    `requests` the URLs of all requests.
    """

    def __init__(self, program: str, width: int = 1440, height: int = 900, *, dark: bool = False) -> None:
        self._profile = tempfile.mkdtemp(prefix="kscope-chromium-")
        flags = (*_FLAGS, f"--user-data-dir={self._profile}", f"--window-size={width},{height}")
        self._process, self._in, self._out = _started([program, *flags, "about:blank"])
        self._left, self._number, self._session = b"", 0, ""
        self._loaded = False
        self.console: list[str] = []
        self.requests: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.call("Emulation.setDeviceMetricsOverride", **size)
            self.prefer("dark" if dark else "light")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and throw its profile away."""
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)  # its helpers may still write

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method of the protocol. Raises RuntimeError where the browser refuses."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(120)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        """The next message; console output of the page is collected on the way."""
        deadline = time.monotonic() + seconds
        while b"\0" not in self._left:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no message from the browser for {seconds} s")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser closed its pipe")
            self._left += data
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            detail = params["exceptionDetails"]
            self.console.append(detail.get("exception", {}).get("description", detail["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:200])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, where: str | Path) -> None:
        """Open a file or an address, and wait until it has loaded."""
        self._loaded = False
        found = self.call("Page.navigate", url=where if isinstance(where, str) else where.resolve().as_uri())
        if found.get("errorText"):
            raise RuntimeError(f"{where}: {found['errorText']}")
        while not self._loaded:
            self._next(120)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        options = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        found = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = 30) -> Any:
        """Wait until an expression is true, and give its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not true after {seconds} s: {expression}; console: {self.console}")
            time.sleep(0.02)
        return value

    def prefer(self, scheme: str) -> None:
        """Emulate the user's color scheme: dark or light."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press a key: a character, or a name such as Enter, Escape, ArrowDown."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        common: dict[str, Any] = {"key": key, "modifiers": 8 * shift}
        common["windowsVirtualKeyCode"] = code.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type text, key by key."""
        for character in text:
            self.key(character)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mousePressed, mouseReleased, mouseMoved, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, times: int = 1) -> None:
        """Click with the left button."""
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=count)

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, shift: bool = False) -> None:
        """Press, move in steps, release."""
        more: dict[str, Any] = {"button": "left", "clickCount": 1, "modifiers": 8 * shift}
        self.mouse("mousePressed", *start, **more)
        for step in range(1, 6):
            at = (start[0] + (end[0] - start[0]) * step / 5, start[1] + (end[1] - start[1]) * step / 5)
            self.mouse("mouseMoved", *at, buttons=1, **more)
        self.mouse("mouseReleased", *end, **more)

    def picture(self, path: Path) -> None:
        """Write a screenshot of the page as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
