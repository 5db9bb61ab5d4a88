"""The web app in a real browser: `python -m bench.web`. Time to first paint, to a message that can be typed and to the
last row of a chat, time from a delta to its pixels at 100 pieces a second, and the memory of the page with a chat of
10,000 events. Needs chromium."""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.site import CHROMIUM, Site, Window, launch
from tests.browser.test_reconnecting import exported

PIECES = 600
TIMES = 5
STREAM = (
    '[[turn]]\ntext = "' + "".join(f"w{number:04d} " for number in range(PIECES)) + '"\nchunk = 6\ndelay_s = 0.01\n'
)
WATCH = """() => {
  window.late = [];
  const sent = [];
  const take = WebSocket.prototype.__lookupSetter__('onmessage');
  Object.defineProperty(WebSocket.prototype, 'onmessage', { set(act) {
    take.call(this, (message) => {
      if (message.data.includes('assistant.message_delta')) sent.push(performance.now());
      act(message);
    });
  } });
  new MutationObserver(() => requestAnimationFrame(() => {
    const now = performance.now();
    while (sent.length) window.late.push(now - sent.shift());
  })).observe(document, { subtree: true, childList: true, characterData: true });
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


def lateness(browser: Browser, site: Site) -> list[float]:
    """From the arrival of a delta to the frame that shows it."""
    opened = Window(browser, site, (1280, 800))
    opened.page.add_init_script(f"({WATCH})()")
    chat = site.create("Go.", STREAM)
    page = opened.show(chat)
    page.wait_for_selector(".row-end")
    late: list[float] = page.evaluate("window.late")
    opened.context.close()
    return sorted(late)


def long_chat(browser: Browser, site: Site) -> dict[str, float]:
    file = site.cli.folder / "long.jsonl"
    file.write_text("".join(f"{line}\n" for line in exported(site)))
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
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Site(Path(folder))
        browser = launch(playwright)
        openings = [opening(browser, site) for _ in range(TIMES)]
        late = lateness(browser, site)
        long = long_chat(browser, site)
        browser.close()
        site.close()
    for place, how in enumerate(("", ", again")):
        for part, what in enumerate(("first paint", "ready to type")):
            spent = statistics.median(each[place][part] for each in openings)
            print(f"{what + how:35} {spent:8.0f} ms  (median of {TIMES})")
    worst = late[int(len(late) * 0.99)]
    print(f"delta to pixels, 100 pieces/s       {statistics.median(late):8.1f} ms  (p99 {worst:.1f})")
    print(f"10,000 events: opened and shown     {long['shown_ms']:8.0f} ms")
    print(f"10,000 events: memory of the page   {long['full_mb']:8.1f} MB  (empty {long['empty_mb']:.1f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
