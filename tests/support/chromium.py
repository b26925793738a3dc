"""Headless Chromium, driven through its DevTools protocol over a pipe; needs no driver."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_PATIENCE = 60  # seconds for one answer
_KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37}
_KEY_CODES |= {"ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A page that is open in Chromium.

    Attributes:
        requests: addresses that the page has asked for, in order.
        errors: what went wrong in its scripts, and what its content security policy refused.
    """

    def __init__(self, writer: int, reader: int):
        self._writer = writer
        self._reader = reader
        self._buffer = b""
        self._messages = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Returns the result of a method of the protocol."""
        self._messages += 1
        message = {"id": self._messages, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._messages:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        """Returns the next message, having noted what it says on the page."""
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reader], [], [], deadline - time.monotonic())
            assert ready, f"Chromium has said nothing for {_PATIENCE} s"
            data = os.read(self._reader, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        what, about = message.get("method"), message.get("params", {})
        if what == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif what == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif what == "Page.loadEventFired":
            self._loaded = True
        return message

    def open(self, address: str, width: int = 1400, height: int = 1000) -> None:
        """Loads a page, and waits until that is done."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression, as JSON carries it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, *keys: str) -> None:
        """Presses keys one after another, by their names in KeyboardEvent.key."""
        for key in keys:
            code = _KEY_CODES[key]
            event = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="rawKeyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def prefer(self, scheme: str) -> None:
        """Sets the colours that the person prefers, `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self) -> bytes:
        """Returns what the window shows, as a PNG file."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextlib.contextmanager
def open_chromium(profile: Path) -> Iterator[Page]:
    """Yields an empty page of a Chromium that ends with the block.

    Args:
        profile: a folder for Chromium's own files.
    """
    # Chromium reads commands from descriptor 3 and answers on 4.
    from_us, to_chromium = os.pipe()
    from_chromium, to_us = os.pipe()
    command = [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}"]
    # A shell moves the descriptors, which may be 3 and 4 themselves, in an order that is safe.
    script = f'exec 8<&{from_us} 9>&{to_us}; exec 3<&8 4>&9 8<&- 9>&-; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *command],
        pass_fds=(from_us, to_us),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(to_us)
    try:
        yield Page(to_chromium, from_chromium)
    finally:
        os.close(to_chromium)
        os.close(from_chromium)
        process.terminate()
        process.wait(_PATIENCE)
