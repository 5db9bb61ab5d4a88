"""Changed files in a browser: hunks, previews, going back; and the panels about a run (W-03, W-04)."""

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site, window

pytestmark = pytest.mark.thorough(one_of=10)

LINES = "".join(f"line {number}\n" for number in range(1, 41))
EDIT = """
[[turn]]
text = "Two edits."
call = [
  { name = "edit_file", args = { path = "NAME", old_str = "line 2\\n", new_str = "second\\n" } },
  { name = "edit_file", args = { path = "NAME", old_str = "line 30\\n", new_str = "thirtieth\\n" } },
  { name = "run_command", args = { command = "true" } },
]
[[turn]]
text = "Edited."
[[turn]]
text = "Next."
"""


def make_edited_chat(site: Site, name: str) -> str:
    (site.cli.project / name).write_text(LINES)
    chat = site.create(f"Read {name} and edit it.", EDIT.replace("NAME", name), auto_approve_commands=True)
    site.idle(chat)
    return chat


def text(site: Site, name: str) -> str:
    return (site.cli.project / name).read_text()


def files(page: Page) -> None:
    page.click(".tabs button:has-text('Files')")
    expect(page.locator(".changed")).to_have_count(1)


def test_a_hunk_is_undone_and_the_rest_kept(browser: Browser, site: Site) -> None:  # W-03, W-04
    chat = make_edited_chat(site, "a.txt")
    assert text(site, "a.txt").count("second") == 1
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_contain_text("a.txt")
        files(page)
        expect(page.locator(".piece")).to_have_count(2)
        page.check("label:has-text('Side by side') input")
        expect(page.locator("table.diff.split")).to_have_count(2)
        page.click("button[aria-label='Undo hunk 2 of a.txt']")
        expect(page.locator(".row-note")).to_contain_text("Undid 1 file: a.txt")
        assert text(site, "a.txt") == LINES.replace("line 2\n", "second\n")
        page.click(".panel-bar button:has-text('Redo')")
        expect(page.locator(".row-note >> nth=-1")).to_contain_text("Redid 1 file")
        assert "thirtieth" in text(site, "a.txt")
        expect(page.locator(".piece")).to_have_count(2)
        page.click("button[aria-label='Keep hunk 1 of a.txt']")
        expect(page.locator(".row-note >> nth=-1")).to_contain_text("Kept")
        page.click(".panel-bar button:has-text('Undo all')")
        expect(page.locator("dialog")).to_contain_text("a.txt")
        page.click("dialog button.primary")
        expect(page.locator(".row-note >> nth=-1")).to_contain_text("Undid")
        assert text(site, "a.txt") == LINES.replace("line 2\n", "second\n")


def test_going_back_to_a_message(browser: Browser, site: Site) -> None:  # W-03, L-09
    chat = make_edited_chat(site, "b.txt")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        page.hover(".row-user")
        page.click("button[aria-label='Go back to before this message']")
        expect(page.locator("dialog")).to_contain_text("b.txt")
        page.click("dialog button:has-text('Conversation and files')")
        expect(page.locator(".row-user")).to_have_count(0)
        expect(page.locator("textarea[aria-label=Message]")).to_have_value("Read b.txt and edit it.")
        assert text(site, "b.txt") == LINES
        browser_window.show(make_edited_chat(site, "d.txt"))
        for choice, message_count, file in (("Files only", 1, LINES), ("Conversation only", 0, LINES)):
            page.hover(".row-user")
            page.click("button[aria-label='Go back to before this message']")
            page.click(f"dialog button:has-text('{choice}')")
            expect(page.locator(".row-user")).to_have_count(message_count)
            if message_count:
                expect(page.locator(".row-note >> nth=-1")).to_contain_text("Undid 1 file: d.txt")
            assert text(site, "d.txt") == file


def test_a_message_is_said_differently(browser: Browser, site: Site) -> None:  # L-09
    chat = make_edited_chat(site, "e.txt")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        page.hover(".row-user")
        page.click(".row-user button:has-text('Edit')")
        page.fill("dialog textarea", "Edit it again.")
        page.click("dialog button.primary")
        expect(page.locator(".row-user .bubble")).to_have_text(["Edit it again."])
        expect(page.locator("chat-answer")).to_have_text(["Two edits.", "Edited."])
        expect(page.locator(".row-end")).to_contain_text("e.txt")
    log = site("GET", f"/api/chats/{chat}/log")["events"]
    assert [each["data"]["files"][0]["path"] for each in log if each["type"] == "workspace.undone"] == ["e.txt"]
    assert all(each["data"]["success"] for each in log if each["type"] == "tool.execution_complete")  # T-13


def test_the_panels_of_a_run(browser: Browser, site: Site) -> None:  # D-07
    chat = make_edited_chat(site, "c.txt")
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("Alt+2")
        expect(page.locator("g.bar.call")).to_have_count(3)  # a call that was tried on a view first is one, too
        expect(page.locator("g.bar.turn")).to_have_count(2)
        page.click("g.bar.call >> nth=1")
        expect(page.locator(".row-calls")).to_have_class("row row-calls flash")
        page.keyboard.press("Alt+3")
        page.fill("input[aria-label='Filter events']", "execution_complete")
        expect(page.locator(".events li")).to_have_count(3)
        browser_window.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.click("button:has-text('Copy as JSONL')")
        expect(page.locator(".toast")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()").splitlines()
        log = site("GET", f"/api/chats/{chat}/log")["events"]
        assert [json.loads(line) for line in copied] == [e for e in log if e["type"] == "tool.execution_complete"]
        page.click(".events summary >> nth=0")
        page.click(".events button:has-text('Fork from here')")
        expect(page.locator(".row-note >> nth=0")).to_contain_text(f"A copy of {chat}@")
        browser_window.show(chat)
        page.click(".row-end button:has-text('Replay')")
        page.select_option("select[aria-label=Speed]", "20")
        expect(page.locator("replay-view .row-end")).to_be_visible()
        expect(page.locator("replay-view chat-answer >> nth=-1")).to_contain_text("Edited.")
        page.goto(f"{site.address}#/usage")
        expect(page.locator(".numbers tbody tr >> nth=0")).to_contain_text("scripted:")
        expect(page.locator("svg.plot >> nth=0")).to_be_visible()
