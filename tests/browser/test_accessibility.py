"""Accessibility: names, roles, contrast, keys; by axe-core where npm brought it, and by a check of our own."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.site import DESKTOP, PHONE, Site, window

pytestmark = pytest.mark.thorough

AXE = Path(os.environ.get("TREADLE_AXE", Path(__file__).parents[2] / ".venv/node/node_modules/axe-core/axe.min.js"))
ASK = """
[[turn]]
think = "Hm."
text = "Look:\\n\\n```python\\nprint(1)  # one\\n```\\n"
call = [
  { name = "write_file", args = { path = "dNUMBER.md", content = "# D\\n" } },
  { name = "write_file", args = { path = ".github/workflows/ciNUMBER.yml", content = "on: push\\n" } },
]
[[turn]]
text = "Done."
"""
UNNAMED = """() => [...document.querySelectorAll('button, a, input, select, textarea, [role=button], summary')]
  .filter(e => e.checkVisibility())
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length || e.title))
  .map(e => e.outerHTML)"""


def asking(site: Site) -> str:
    """A chat that waits for an approval of a write. No file is written yet."""
    return site.create("Go.", ASK.replace("NUMBER", str(site.scripts)), mode="ask")


def complaints(page: Page) -> list[str]:
    """The violations that axe-core finds, if it is there; and the elements without a name."""
    faults: list[str] = page.evaluate(UNNAMED)
    if AXE.exists():
        if not page.evaluate("Boolean(window.axe)"):
            page.evaluate(AXE.read_text())
        for each in page.evaluate("axe.run()")["violations"]:
            faults += [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for node in each["nodes"]]
    return faults


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed")
def test_axe_core_can_be_read() -> None:
    """Without axe-core the other tests look only for controls without a name."""
    assert "axe" in AXE.read_text()


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_no_fault(browser: Browser, site: Site, scheme: str, size: tuple[int, int]) -> None:  # U-05
    chat = asking(site)
    (site.cli.home / "commands").mkdir(exist_ok=True)
    (site.cli.home / "commands" / "tidy.md").write_text("Tidy up.")
    with window(browser, site, size, color_scheme=scheme, reduced_motion="reduce") as browser_window:
        page = browser_window.page
        page.goto(site.address)
        page.wait_for_selector("sign-in")
        assert complaints(page) == []
        browser_window.sign_in()  # by the link, in the tab that shows the page already
        assert complaints(page) == []
        page.goto(f"{site.address}#/new")
        page.click("new-chat summary")
        page.focus("new-chat textarea")
        page.keyboard.type("/")
        expect(page.locator(".hints li >> nth=-1")).to_contain_text("/tidy")
        assert complaints(page) == []
        page.keyboard.press("Backspace")
        browser_window.show(chat)
        expect(page.locator(".action .allow")).to_be_visible()
        expect(page.locator(".code .k, .code .nb").first).to_be_visible()
        assert complaints(page) == []
        page.click(".action .allow")
        expect(page.locator(".row-end")).to_be_visible()
        for name in ("Files", "Timeline", "Log", "Jobs"):
            page.click(f".tabs button:has-text('{name}')")
            expect(page.locator(".side")).to_be_visible()
            assert complaints(page) == []
        page.click("button[aria-label='Options of this chat']")
        assert complaints(page) == []
        page.keyboard.press("Escape")
        for address in ("rules", f"rules/{chat}"):
            page.goto(f"{site.address}#/{address}")
            expect(page.locator("rules-page .empty")).to_be_visible()
            assert complaints(page) == []
        page.goto(f"{site.address}#/usage")
        expect(page.locator(".tiles")).to_be_visible()
        assert complaints(page) == []


def test_by_keys_alone(browser: Browser, site: Site) -> None:  # U-05
    chat = asking(site)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".action .allow")).to_be_visible()
        page.focus(".skip")
        page.keyboard.press("Enter")
        expect(page.locator("chat-page .scroller")).to_be_focused()  # and no other page
        page.goto(f"{site.address}#/")
        expect(page.locator("new-chat textarea")).to_be_focused()
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("j")
        expect(page.locator(".action")).to_be_focused()
        page.keyboard.type("all of that text ax \n")
        expect(page.locator(".action .allow")).to_be_enabled()  # typed text answers no card
        browser_window.show(chat)
        expect(page.locator(".action")).to_be_focused()
        page.keyboard.press("Alt+a")
        expect(page.locator(".row-end")).to_be_visible()
        page.keyboard.press("Alt+1")
        expect(page.locator("changed-files")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("changed-files")).to_have_count(0)
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_contain_text("New chat")
        page.keyboard.press("Escape")
        for _ in range(3):
            page.keyboard.down("n")  # held down: it acts once and types nothing
            expect(page.locator("new-chat textarea")).to_be_focused()
        page.keyboard.up("n")
        expect(page.locator("new-chat textarea")).to_have_value("")
        assert chat in page.locator("chat-list a.chat >> nth=0").get_attribute("href")
