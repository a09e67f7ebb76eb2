"""Headless Chromium, driven over its debugging pipe: no driver and no port is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_sme2.system.provision import apt_install

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    # Tests may run as root in a container, where the sandbox cannot be set up.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--mute-audio",
    "--remote-debugging-pipe",
)
# Only for a browser that hangs: on a busy machine every step may wait long for its turn.
TIMEOUT_SECONDS = 300.0


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab: what it said, and what it shows."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        self.requests: list[str] = []

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, parameters, self._session)

    def handle(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif event["method"] == "Runtime.consoleAPICalled":
            if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(parameters["args"])[:2000])
        elif event["method"] == "Log.entryAdded":
            if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event["method"] == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog: {parameters['message']}")
            self._browser.post("Page.handleJavaScriptDialog", {"accept": True}, self._session)

    def open(self, path: Path, fragment: str = "") -> float:
        """Show a file and wait until it is painted; how many seconds of CPU time that took.

        On an idle machine that is how long it takes; on a busy one, waiting is not counted.
        """
        # Another fragment of the page at hand would only be scrolled to.
        self.send("Page.navigate", url="about:blank")
        before = self._browser.renderer_seconds()
        self.send("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.wait_for("document.documentElement?.dataset.ready === 'yes'")
        # Until it has been painted.
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        after = self._browser.renderer_seconds()
        return sum(seconds - before.get(process, 0.0) for process, seconds in after.items())

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < end:
            if self.evaluate(expression) is True:
                return
            time.sleep(0.02)
        raise AssertionError(f"{expression} never came true; the page said {self.errors}")

    def evaluate(self, expression: str) -> Any:
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def resize(self, width: int, height: int, *, mobile: bool = False, scale: float = 1) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=mobile,
        )

    def prefer(self, scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            same = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", **same, **text)

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def print_to(self, path: Path) -> Path:
        answer = self.send("Page.printToPDF", printBackground=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path


class Browser:
    """A process of Chromium and the pipe to it."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Out of the way of the numbers the browser wants them under.
        high = [
            fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 20) for number in (to_browser, from_browser)
        ]
        os.close(to_browser)
        os.close(from_browser)

        def connect() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=connect,
            start_new_session=True,
        )
        for number in high:
            os.close(number)
        self._buffer = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, session["sessionId"])
        self._pages[session["sessionId"]] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        return page

    def renderer_seconds(self) -> dict[int, float]:
        """The CPU time that each process which draws pages has used."""
        found = self.send("SystemInfo.getProcessInfo", {})["processInfo"]
        return {
            process["id"]: process["cpuTime"] for process in found if process["type"] == "renderer"
        }

    def post(self, method: str, parameters: dict[str, Any], session: str | None = None) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return self._number

    def send(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        number = self.post(method, parameters, session)
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return dict(message["result"])
            page = self._pages.get(message.get("sessionId", ""))
            if page is not None and "method" in message:
                page.handle(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], TIMEOUT_SECONDS)
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise AssertionError("Chromium does not answer any more.")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def close(self) -> None:
        try:
            self.post("Browser.close", {})
            self._process.wait(timeout=120)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._read)
            os.close(self._write)


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    made = Browser(program, profile)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__" and find_chromium() is None:
    apt_install("chromium", print)
