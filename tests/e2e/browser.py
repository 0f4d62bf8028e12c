# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium driven through its DevTools pipe: pages, sizes, keys, scripts, pictures."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

PATIENCE_S = 30


def find():
    """The browser's path; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self, folder):
        out_child, out_parent = os.pipe()  # what we say
        in_parent, in_child = os.pipe()  # what it says
        self.read, self.write, self.buffer, self.number = in_parent, out_parent, b"", 0
        self.errors = []

        def pipes():  # Chromium reads from 3 and writes to 4
            high = [os.dup2(fd, fd + 100) for fd in (out_child, in_child)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
             f"--user-data-dir={folder}/browser", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(out_child)
        os.close(in_child)
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def message(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser is silent")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise EOFError("the browser has gone")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        text = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            text["sessionId"] = self.session
        os.write(self.write, json.dumps(text).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            m = self.message(until)
            if m.get("method") == "Runtime.exceptionThrown":
                details = m["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if m.get("method") == "Log.entryAdded" and m["params"]["entry"]["level"] == "error":
                self.errors.append(m["params"]["entry"]["text"])
            if m.get("id") == self.number:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']['message']}")
                return m["result"]

    def script(self, text):
        """The value of an expression in the page."""
        r = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{text}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def wait(self, text, what=None):
        """Until an expression is true."""
        until = time.monotonic() + PATIENCE_S
        while True:
            value = self.script(text)
            if value:
                return value
            if time.monotonic() > until:
                body = self.script("document.body ? document.body.innerText.slice(0, 600) : ''")
                raise AssertionError(f"never: {what or text}\n{body}")
            self.script("new Promise((done) => setTimeout(done, 30))")

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key,
                      text=key if kind == "keyDown" and len(key) == 1 else "")

    def picture(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
