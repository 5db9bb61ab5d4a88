"""The web app in a real browser: `python -m bench.web`. Bytes of a cold page, time to first paint, to a message that
can be typed and to the last row of a chat, time from a token of the model to the page at 200 tokens a second, whether
the page follows runs of several steps, and the memory of the page with a chat of 10,000 events. Needs chromium."""

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.site import CHROMIUM, Site, Window, launch
from tests.browser.test_following import FOLLOWS, STEPS, steps_of
from tests.browser.test_reconnecting import export_long_chat

TOKENS = 1_200
PER_S = 200
TIMES = 5
RUNS = 50
SEEN_TOKENS = """() => {
  window.late = new Map();
  const look = () => {
    const now = Date.now();
    const text = document.querySelector('chat-answer')?.textContent ?? '';
    for (const [token, at] of text.slice(window.read ?? 0).matchAll(/t(\\d{13})n\\d+;/g)) {
      if (!window.late.has(token)) window.late.set(token, now - Number(at));
    }
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
}"""


READY = """() => new MutationObserver((_, self) => {
  if (!document.querySelector('new-chat textarea')) return;
  self.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.ready = performance.now(); }));
}).observe(document, { subtree: true, childList: true })"""


def opening(browser: Browser, site: Site) -> list[tuple[float, float]]:
    """From the request for the page to its first pixels that say something, and until a message can be typed: the first
    time, and once more when the browser has its parts."""
    opened = Window(browser, site, (1280, 800))
    opened.page.add_init_script(f"({READY})()")
    page, found = opened.sign_in(), []
    for _ in range(2):
        page.wait_for_function("window.ready")
        page.wait_for_timeout(300)
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        found.append((float(painted), float(page.evaluate("window.ready"))))
        page.reload()
    opened.context.close()
    return found


class Tokens(BaseHTTPRequestHandler):
    """A model that writes the time into each of its tokens, at a steady pace."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        began = time.monotonic()
        for number in range(TOKENS):
            time.sleep(max(0.0, began + number / PER_S - time.monotonic()))
            end = "\n\n" if number % 60 == 59 else " "
            self._write({"content": f"t{round(time.time() * 1000)}n{number};{end}"})
        self._write({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _write(self, delta: dict[str, str], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def token_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()


def lateness(browser: Browser, site: Site) -> list[float]:
    """From the moment at which the model writes a token until the page has it."""
    opened = Window(browser, site, (1280, 800))
    opened.page.add_init_script(f"({SEEN_TOKENS})()")
    page = opened.sign_in()
    chat = site("POST", "/api/chats", {"model": "vllm:tokens", "summarize": False})["id"]
    opened.show(chat)
    page.wait_for_selector("chat-composer select")
    site("POST", f"/api/chats/{chat}/messages", {"content": "Go."})
    page.wait_for_selector(".row-end")
    late: list[float] = page.evaluate("[...window.late.values()]")
    opened.context.close()
    assert len(late) > TOKENS * 0.9, len(late)
    return sorted(late)


def cold_bytes(browser: Browser, site: Site) -> int:
    """All that comes over the wire until a message can be typed, with headers."""
    opened = Window(browser, site, (1280, 800))
    session = opened.context.new_cdp_session(opened.page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page = opened.sign_in()
    page.wait_for_selector("new-chat select")
    page.wait_for_timeout(500)
    opened.context.close()
    return round(sum(sizes))


def lost_follows(browser: Browser, site: Site) -> int:
    """Of so many runs, those that the page does not follow to their end."""
    opened = Window(browser, site, (1280, 800))
    page, lost = opened.sign_in(), 0
    for number in range(RUNS):
        opened.show(site.create("Go.", steps_of(number)))
        page.wait_for_selector(f"text=End of run {number}.")
        page.wait_for_selector(".row-end")
        lost += not page.evaluate(FOLLOWS)
    opened.context.close()
    return lost


def long_chat(browser: Browser, site: Site) -> dict[str, float]:
    file = site.cli.folder / "long.jsonl"
    file.write_text("".join(f"{line}\n" for line in export_long_chat(site)))
    chat = site.cli("import", str(file), "--new-id").out.split()[-1]
    opened = Window(browser, site, (1280, 800))
    page = opened.sign_in()
    page.wait_for_timeout(500)
    empty = _memory(page)
    began: float = page.evaluate("performance.now()")
    page.goto(f"{site.address}#/chat/{chat}")
    page.wait_for_selector("text=(2000)")
    shown: float = page.evaluate("performance.now()")
    full = _memory(page)
    opened.context.close()
    return {"shown_ms": shown - began, "empty_mb": empty, "full_mb": full}


def _memory(page: Page) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / 1e6)


def main() -> int:
    if not CHROMIUM:
        print("there is no chromium here")
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, token_server() as model:
        site = Site(Path(folder), {"VLLM_BASE_URL": model})
        browser = launch(playwright)
        openings = [opening(browser, site) for _ in range(TIMES)]
        size = cold_bytes(browser, site)
        late = lateness(browser, site)
        lost = lost_follows(browser, site)
        long = long_chat(browser, site)
        browser.close()
        site.close()
    for place, how in enumerate(("", ", again")):
        for part, what in enumerate(("first paint", "ready to type")):
            spent = statistics.median(each[place][part] for each in openings)
            print(f"{what + how:35} {spent:8.0f} ms  (median of {TIMES})")
    print(f"a cold page over the wire           {size / 1000:8.1f} KB")
    slow = late[int(len(late) * 0.95)]
    print(f"token to page, {PER_S} tokens/s         {statistics.median(late):8.0f} ms  (p95 {slow:.0f})")
    print(f"runs that were not followed         {lost:8}     (of {RUNS}, {STEPS} steps each)")
    print(f"10,000 events: opened and shown     {long['shown_ms']:8.0f} ms")
    print(f"10,000 events: memory of the page   {long['full_mb']:8.1f} MB  (empty {long['empty_mb']:.1f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
