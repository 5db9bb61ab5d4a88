"""A journey: the terminal asks, a phone answers (U-05, U-08, U-10). A real terminal and a real browser of 390 pixels,
from an empty home."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import browser as browser
from tests.browser.site import PHONE, Site, window
from tests.scenario.tmux import Terminal, needs_tmux

pytestmark = [pytest.mark.thorough(one_of=8), needs_tmux]
SCRIPT = """
[[turn]]
text = "I add a workflow."
call = [{ name = "write_file", args = { path = ".github/workflows/ci.yml", content = "on: push\\n" } }]
[[turn]]
text = "The workflow is there."
"""


@pytest.fixture
def site(browser: Browser, tmp_path: Path) -> Iterator[Site]:
    new_site = Site(tmp_path, {"TREADLE_HOME": str(tmp_path / "empty"), "HOME": str(tmp_path / "user")})
    yield new_site
    new_site.close()


@pytest.fixture
def terminal(site: Site, tmp_path: Path) -> Iterator[Terminal]:
    new_terminal = Terminal(tmp_path, site.cli.environment, 120, 34)
    yield new_terminal
    new_terminal.close()


@pytest.mark.thorough(one_of=8)
def test_a_phone_approves_what_the_terminal_asked(browser: Browser, site: Site, terminal: Terminal) -> None:
    terminal.start("--model", site.script(SCRIPT), "--mode", "ask", cwd=site.cli.project)
    terminal.wait("script1.toml")
    terminal.type("Add a workflow, please.")
    terminal.wait("Add a workflow, please.")
    terminal.keys("Enter")
    terminal.wait(".github/workflows/ci.yml", "on: push")
    with window(browser, site, PHONE, has_touch=True, is_mobile=True) as phone:
        page = phone.page
        page.goto(site.address)
        page.fill("sign-in input", site.code())
        page.tap("sign-in button")
        line = page.locator("chat-list a.chat")
        expect(line).to_contain_text("Add a workflow, please.")
        expect(line).to_contain_text("needs you")
        line.tap()
        card = page.locator(".action")
        expect(card).to_contain_text("Allow write_file?")
        expect(card.locator(".added")).to_contain_text("on: push")
        expect(card.locator("option >> nth=0")).to_have_text("Only this call")
        expect(card.locator(".allow")).to_be_in_viewport(ratio=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        card.locator(".allow").tap()
        expect(page.locator("chat-answer >> nth=-1")).to_have_text("The workflow is there.")
        expect(card).to_have_count(0)
    terminal.wait("The workflow is there.")
    assert (site.cli.project / ".github/workflows/ci.yml").read_text() == "on: push\n"
