"""A real server in a process of its own, and a real chromium that looks at it. Every chat names its own script, so that
one server serves a whole module."""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, expect

from tests.homes import shared_home
from tests.leftovers import SHARED
from tests.scenario.command_line import CommandLine, end

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT_MS = 60_000
PHONE = (390, 844)
DESKTOP = (1280, 800)
expect.set_options(timeout=WAIT_MS)
IDLE = '[[turn]]\ntext = "Hello."\n'


def launch(playwright: Playwright) -> Browser:
    environment: dict[str, str | float | bool] = {**os.environ, "HOME": str(shared_home())}
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, env=environment)


class Site:
    """The server; it can be killed and started again at the same address."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.cli = CommandLine(folder)
        self.cli.environment |= environment or {}
        self.scripts = 0
        self.port = 0
        self.start()

    def start(self) -> None:
        model = self.cli.script(IDLE, "default.toml")
        self.process = self.cli.start("serve", "--port", str(self.port), "--model", model)
        SHARED.add(self.process.pid)  # a test may start it again for the other tests of the module
        assert self.process.stdout is not None
        match = re.fullmatch(r"serving (http://127\.0\.0\.1:(\d+)/)#token=(\S+)\n", self.process.stdout.readline())
        assert match, self.process.communicate()
        self.address, self.port, self.token = match[1], int(match[2]), match[3]
        self.link = f"{self.address}#token={self.token}"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert end(self.process).code == 0

    def code(self) -> str:
        """The code that the terminal shows."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"good once: (\S+)", line):
                return match[1]
        raise AssertionError("no code was shown")

    def script(self, text: str) -> str:
        self.scripts += 1
        return self.cli.script(text, f"script{self.scripts}.toml")

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.token}"}
        response = requests.request(method, self.address + path[1:], json=body, headers=headers, timeout=60)
        assert response.ok, response.text
        return response.json() if response.content else None

    def create(self, content: str, script: str, **options: Any) -> str:
        body = {"content": content, "model": self.script(script), "mode": "auto-edit", "verify": False, **options}
        return str(self("POST", "/api/chats", {"summarize": False, "diagnose": False, **body})["id"])

    def idle(self, chat: str) -> None:
        """Wait until nothing runs."""
        headers = {"authorization": f"Bearer {self.token}"}
        address = f"{self.address}api/chats/{chat}/events"
        with requests.get(address, headers=headers, stream=True, timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith(b"data: ") and json.loads(line[6:])["type"] == "session.idle":
                    return
        raise AssertionError("the stream ended before the run did")


class Window:
    """A page of a browser of its own, signed in; it knows what went wrong in it and what it asked for."""

    def __init__(self, browser: Browser, site: Site, size: tuple[int, int], **more: Any) -> None:
        options = {"reduced_motion": "reduce"} | more  # animations would keep a core busy while a test waits
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.site = site
        self.faults: list[str] = []
        self.foreign: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._record_console_error)
        self.page.on("request", self._record_foreign_request)

    def _record_console_error(self, message: ConsoleMessage) -> None:
        """A network error is no fault of the page; a breach of its policy is."""
        if message.type == "error" and "Failed to load" not in message.text and "WebSocket" not in message.text:
            self.faults.append(message.text)

    def _record_foreign_request(self, request: Request) -> None:
        if not request.url.startswith((self.site.address, "blob:")):
            self.foreign.append(request.url)

    def sign_in(self) -> Page:
        self.page.goto(self.site.link)
        self.page.wait_for_selector("treadle-app.open")
        return self.page

    def show(self, chat: str) -> Page:
        page = self.page
        if not page.url.startswith(self.site.address):
            self.sign_in()
        page.goto(f"{self.site.address}#/chat/{chat}")
        page.wait_for_selector("chat-page")
        return page


@contextmanager
def window(browser: Browser, site: Site, size: tuple[int, int] = DESKTOP, **more: Any) -> Iterator[Window]:
    new_window = Window(browser, site, size, **more)
    try:
        yield new_window
        assert not new_window.faults
        assert not new_window.foreign
    finally:
        new_window.context.close()
