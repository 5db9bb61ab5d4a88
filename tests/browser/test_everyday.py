"""Everyday use of the page: a run with all that happens in one, chats found again, and a terminal beside the page
(U-03, U-05, L-08)."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site import Site, window

pytestmark = pytest.mark.thorough

BUSY = """
[model]
usd_per_million_input = 1000.0
[[turn]]
fail = { kind = "overloaded", message = "come back later" }
text = "First I look."
call = [
  { name = "update_plan", args = { steps = [
    { text = "look", status = "done" }, { text = "write", status = "in_progress" } ] } },
  { name = "list_directory", args = { path = "." } },
  { name = "list_directory", args = { path = "./" } },
  { name = "find_files", args = { pattern = "*.md" } },
  { name = "grep_search", args = { pattern = "x" } },
]
[[turn]]
call = [{ name = "write_file", args = { path = ".github/workflows/day.yml", content = "on: push\\n" } }]
[[turn]]
call = [{ name = "write_file", args = { path = ".github/workflows/day.yml", content = "on: tag\\n" } }]
[[turn]]
text = "All done."
[[turn]]
text = "And more."
"""
TALK = '[[turn]]\ntext = "The needle is in the hay."\n'
BROKEN = '[[turn]]\nfail = { kind = "auth", message = "no key", times = 0 }\n'


def test_a_busy_run(browser: Browser, site: Site) -> None:  # U-03, L-08, S-08
    chat = site.create("Work.", BUSY, mode="ask")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-note >> nth=0")).to_contain_text("Attempt 1 failed (overloaded)")
        expect(page.locator(".action .added")).to_contain_text("on: push")
        expect(page.locator(".plan-box summary")).to_contain_text("Plan: 1 of 2 done write")
        expect(page.locator(".gauge")).to_contain_text("$")
        page.fill("textarea[aria-label=Message]", "later")
        page.keyboard.press("Enter")
        expect(page.locator(".queued")).to_contain_text("later")
        page.click(".queued button:has-text('Edit')")
        page.fill("dialog textarea", "much later")
        page.click("dialog button.primary")
        expect(page.locator(".queued")).to_contain_text("much later")
        page.fill("textarea[aria-label=Message]", "on a tag, please")
        page.click("button:has-text('Steer')")
        expect(page.locator(".row-user >> nth=1")).to_contain_text("You (steering)")
        expect(page.locator(".group summary >> nth=0")).to_contain_text("listed 2 folders, searched 2 times")
        expect(page.locator(".action .added")).to_contain_text("on: tag")
        expect(page.locator(".action")).to_have_count(1)
        assert site.cli("approve", chat, "--leave").code == 0  # at a terminal
        expect(page.locator(".action")).to_have_count(0)
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("And more.")
        expect(page.locator(".row-user >> nth=-1")).to_contain_text("much later")
        expect(page.locator(".row-end >> nth=0")).to_contain_text(".github/workflows/day.yml")


def test_chats_are_found_again(browser: Browser, site: Site) -> None:  # U-05
    talk, broken = site.create("Where is it?", TALK), site.create("Broken.", BROKEN)
    for chat in (talk, broken):
        site.idle(chat)
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        lines = page.locator("chat-list a.chat")
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("/")
        page.keyboard.type("needle")
        expect(lines).to_have_count(1)
        expect(lines).to_contain_text("… The needle is in the hay. …")
        page.fill("input[aria-label='Search chats']", "nothing like it")
        expect(page.locator("chat-list .empty")).to_have_text("No chats match.")
        page.fill("input[aria-label='Search chats']", "")
        page.select_option("select[aria-label=Status]", "error")
        expect(lines).to_have_count(1)
        expect(lines).to_contain_text("Broken.")
        page.select_option("select[aria-label=Status]", "")
        site("PATCH", f"/api/chats/{talk}", {"archived": True})
        expect(page.locator(f"chat-list a[data-id='{talk}']")).to_have_count(0)
        page.select_option("select[aria-label='Which chats']", "archive")
        expect(page.locator(f"chat-list a[data-id='{talk}']")).to_be_visible()


NETWORK = """
[[turn]]
call = [{ name = "run_command", args = { command = "curl --version https://example.org/" } }]
[[turn]]
text = "Done."
"""


def test_a_rule_has_the_scopes_that_are_offered(browser: Browser, site: Site) -> None:  # S-07
    chat = site.create("Fetch.", NETWORK, mode="ask")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".action")).to_be_focused()  # the chat opens with the card
        choices = page.locator(".action select option")
        hosts = "commands that reach example.org"
        expect(choices).to_have_text(
            [
                "Only this call",
                f"Only this call: {hosts}",
                f"In this chat: {hosts}",
                f"In this project: {hosts}",
                f"Everywhere: {hosts}",
                "Only this call: every host",
            ]
        )
        page.select_option(".action select", "0 project")
        expect(page.locator(".covered")).to_have_text(
            f"Adds a rule, which you can revoke under Rules. Covers: {hosts}. Does not cover: every other host."
        )
        expect(page.locator(".action .allow")).to_have_text("Allow and add the rule")
        page.select_option(".action select", "1 once")
        expect(page.locator(".covered")).to_contain_text("Adds no rule. Covers: every host.")
        page.click(".action .allow")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Done.")
        assert site.cli("rules", "--chat", chat, "--json").out == ""


PRINT_TWICE = """
[[turn]]
call = [{ name = "run_command", args = { command = "touch made-1.txt" } }]
[[turn]]
text = "First."
[[turn]]
call = [{ name = "run_command", args = { command = "touch made-1.txt" } }]
[[turn]]
text = "Second."
"""


def test_rules_are_listed_with_their_use_and_revoked(browser: Browser, site: Site) -> None:  # S-07
    chat = site.create("Make it.", PRINT_TWICE, mode="confirm")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        page.select_option(".action select", "0 project")
        page.click(".action .allow")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("First.")
        page.click(".nav-foot a:has-text('Rules')")
        assert site.cli("rules", "add", "--allow", "make unused").code == 0
        page.reload()
        unused = page.locator("rules-page tbody tr:has-text('make unused')")
        expect(unused.locator("td >> nth=2")).to_have_text("never")
        assert ", never used" in site.cli("rules").out
        unused.locator("button:has-text('Revoke')").click()
        page.click("dialog button.primary")
        row = page.locator("rules-page tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("Allow run_command touch made-1.txt")
        expect(row).to_contain_text("in the project project")
        browser_window.show(chat)
        page.fill("textarea[aria-label=Message]", "Once more")
        page.keyboard.press("Enter")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Second.")
        page.click(".nav-foot a:has-text('Rules')")
        expect(row.locator("td >> nth=2")).to_have_text("just now")
        assert ", last used 20" in site.cli("rules").out
        page.click("rules-page button:has-text('Revoke')")
        page.click("dialog button.primary")
        expect(page.locator("rules-page .empty")).to_contain_text("No rules.")
        assert site.cli("rules", "--json").out == ""
