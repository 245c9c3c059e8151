"""A headless Chromium, driven by the DevTools protocol over a pipe; needs only Python."""

import base64
import json
import os
import select
import subprocess
import tempfile
import time

PATIENCE = 30


class Browser:
    """Chromium with one page."""

    def __init__(self, program, folder):
        self.folder = folder
        read_theirs, self.write = os.pipe()
        self.read, write_theirs = os.pipe()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

        def pipes():
            # Chromium reads commands from descriptor 3 and writes to descriptor 4.
            one, other = os.dup(read_theirs), os.dup(write_theirs)
            os.dup2(one, 3)
            os.dup2(other, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
                   "--disable-background-networking", "--disable-component-update", "--disable-extensions", f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen([program, *options, "about:blank"], preexec_fn=pipes, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_theirs)
        os.close(write_theirs)
        self.number, self.rest, self.session, self.errors, self.finished = 0, b"", None, [], set()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Page", "Log"):
            self.ask(f"{domain}.enable")
        session, self.session = self.session, None
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True)
        self.session = session

    def message(self):
        """Returns the next message of the browser."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            part = os.read(self.read, 1 << 20) if ready else b""
            if not part:
                raise SystemExit("the browser sent no further message")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        """Collects errors and warnings that the console would show."""
        name, said = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"])[:500])
        elif name == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(said["args"])[:500])
        elif name == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif name == "Browser.downloadProgress" and said["state"] == "completed":
            self.finished.add(said["guid"])

    def js(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {json.dumps(result['exceptionDetails'])[:500]}")
        return result["result"].get("value")

    def wait(self, what, expression, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(expression)
            if value:
                return value
            time.sleep(0.05)
        shown = self.js("document.body.innerText.slice(0, 3000)")
        self.picture("failed")
        raise SystemExit(f"{what}: not within {seconds} s\n{shown}\n{self.errors}")

    def click(self, selector):
        quoted = json.dumps(selector)
        place = f"""(() => {{
            const found = document.querySelector({quoted});
            if (!found || found.disabled || found.hidden) return null;
            found.scrollIntoView({{block: "center", inline: "center"}});
            const box = found.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = self.wait(f"{selector} to click", place)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, key, shift=False):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key)
        more = {"text": text} if text else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=codes[key], modifiers=8 if shift else 0, **more)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])

    def type(self, selector, text):
        """Types into a field and replaces its text."""
        self.click(selector)
        self.js(f"document.querySelector({json.dumps(selector)}).select()")
        self.ask("Input.insertText", text=text) if text else self.js(
            f"(() => {{ const f = document.querySelector({json.dumps(selector)}); f.value = ''; f.dispatchEvent(new Event('input', {{bubbles: true}})); }})()")

    def choose(self, selector, value):
        self.js(f"(() => {{ const f = document.querySelector({json.dumps(selector)}); f.value = {json.dumps(value)};"
                f" f.dispatchEvent(new Event('change', {{bubbles: true}})); f.dispatchEvent(new Event('input', {{bubbles: true}})); }})()")

    def view(self, name):
        self.click(f'nav a[href="#/{name}"]')
        self.wait(f"the view {name}", f"document.querySelector('main[data-view={name}] h1') !== null")

    def cell(self, table, row, column):
        """Returns a cell of a table: row by attribute, column by number."""
        return self.js(f"document.querySelector('[data-table={table}] tr[{row}]')?.children[{column}]?.textContent")

    def picture(self, name):
        shot = self.ask("Page.captureScreenshot", format="png")
        (self.folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def download(self, selector, name):
        """Clicks until a file is downloaded, and returns its bytes."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        end, again = time.monotonic() + PATIENCE, 0
        while not path.exists() or not path.stat().st_size:
            if time.monotonic() > end:
                raise SystemExit(f"{name} was not downloaded: {self.errors}")
            if time.monotonic() > again:
                # A table that is redrawn during the click moves its target: retry.
                self.click(selector)
                again = time.monotonic() + 5
            self.js("1")
            time.sleep(0.05)
        return path.read_bytes()

    def end(self):
        self.session = None
        self.ask("Browser.close")
        self.process.wait(PATIENCE)
        self.profile.cleanup()
