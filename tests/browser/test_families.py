"""A chat that works in a world, and chats that began others, in a browser (W-11, W-12, L-22, L-23)."""

import json

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site import PHONE, Site, window
from tests.browser.test_accessibility import complaints

pytestmark = pytest.mark.thorough

WRITE = """
[[turn]]
call = [{ name = "write_file", args = { path = "NAME", content = "made\\n" } }]
[[turn]]
text = "Made."
"""
ASKING = """
[[turn]]
call = [{ name = "write_file", args = { path = ".github/workflows/ci.yml", content = "on: push\\n" } }]
[[turn]]
text = "Written."
"""
EDIT = """
[[turn]]
call = [{ name = "edit_file", args = { path = "shared.txt", old_str = "line 2\\n", new_str = "second\\n" } }]
[[turn]]
text = "Edited."
"""
SHARING = """
[[turn]]
call = [{ name = "delegate", args = { tasks = [{ task = "Write the workflow.", agent = "writer" }] } }]
[[turn]]
text = "Shared."
"""


def test_a_world_is_looked_at_and_committed(browser: Browser, site: Site) -> None:  # W-11, W-12
    with window(browser, site) as browser_window:
        chat = site.create("Make it.", WRITE.replace("NAME", "in-world.txt"), world="chat")
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_contain_text("Done")
        new_file = site.cli.project / "in-world.txt"
        assert not new_file.exists()
        expect(page.locator(".tabs button:has-text('Tree')")).to_be_hidden()
        page.click(".tabs button:has-text('World')")
        expect(page.locator("world-view .diffs")).to_contain_text("in-world.txt")
        expect(page.locator("world-view .added")).to_contain_text("made")
        assert complaints(page) == []
        page.click("world-view button:has-text('Commit')")
        expect(page.locator("chat-page h1")).to_contain_text("commit")
        expect(page.locator(".row-end")).to_contain_text("in-world.txt")
        assert new_file.read_text() == "made\n"
        expect(page.locator(".tabs button:has-text('World')")).to_be_hidden()


def test_the_attempts_of_a_race_and_the_tree_of_chats(browser: Browser, site: Site) -> None:  # L-22, L-23
    short = site.script(WRITE.replace("NAME", "raced.txt"))
    long = site.script(WRITE.replace("NAME", "raced.txt").replace("made", "made\\n\\n"))
    race_result = site.cli(
        "race", "Write it.", "--model", f"{long},{short}", "--check", "test -f raced.txt", "--all", "--json"
    )
    assert race_result.code == 0, race_result.err
    chat = json.loads(race_result.out.splitlines()[-1])["chat"]
    with window(browser, site, PHONE) as phone, window(browser, site) as browser_window:
        page, small = browser_window.show(chat), phone.show(chat)
        attempts = page.locator(".call table.tree tbody tr")
        expect(attempts).to_have_count(2)
        expect(attempts.nth(1)).to_contain_text("committed")
        expect(attempts.nth(0)).to_contain_text("passed")
        for each in (page, small):
            each.click(".tabs button:has-text('Tree')")
            expect(each.locator("chat-tree tbody tr")).to_have_count(3)
            expect(each.locator("chat-tree tbody tr >> nth=2")).to_contain_text("won")
            assert complaints(each) == []
        assert small.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.click("chat-tree tbody tr >> nth=2 >> a")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Made.")
        page.click("a.badge:has-text('parent')")
        expect(page.locator(".call summary:has-text('race')")).to_be_visible()


def test_a_sub_agent_asks_in_the_chat_that_began_it(browser: Browser, site: Site) -> None:  # L-23, S-08
    agents = site.cli.home / "agents"
    agents.mkdir()
    front = f"name: writer\ndescription: Writes.\nmodel: {site.script(ASKING)}"
    (agents / "writer.md").write_text(f"---\n{front}\n---\nWrite.\n")
    chat = site.create("Share it.", SHARING, mode="ask")
    with window(browser, site) as browser_window, window(browser, site, PHONE) as phone:
        page, small = browser_window.show(chat), phone.show(chat)
        for each in (page, small):
            expect(each.locator(".action")).to_contain_text("Asked by Write the workflow.")
            expect(each.locator(".action .added")).to_contain_text("on: push")
            expect(each.locator(".call table.tree tbody tr")).to_contain_text("needs you: write_file")
            expect(each.locator("chat-page .status")).to_have_text("needs you")
            assert complaints(each) == []
        lines = page.locator("chat-list a.chat")
        expect(lines.nth(0)).to_contain_text("Share it.")
        expect(lines.nth(1)).to_contain_text("└ Write the workflow.")
        small.click(".tabs button:has-text('Tree')")
        expect(small.locator("chat-tree tbody tr >> nth=1")).to_contain_text("needs you")
        page.click(".action .allow")
        for each in (page, small):
            expect(each.locator(".action")).to_have_count(0)
        expect(page.locator(".row-end")).to_contain_text("ci.yml")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Shared.")
        expect(small.locator("chat-tree tbody tr >> nth=1")).to_contain_text("Done")
        small.click("chat-tree tbody tr >> nth=1 >> a")
        expect(small.locator("a.badge:has-text('parent')")).to_be_visible()
        small.click(".tabs button:has-text('Tree')")
        expect(small.locator("chat-tree tbody tr")).to_have_count(2)


def test_a_race_is_begun_in_the_page(browser: Browser, site: Site) -> None:  # L-22
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        page.fill("textarea[aria-label=Message]", "Say hello.")
        page.click("summary:has-text('race')")
        page.fill("label:has-text('Attempts') input", "2")
        page.fill("label:has-text('Check') input", "test ! -e nothing-like-it")
        page.click("button[aria-label=Send]")
        attempts = page.locator(".call table.tree tbody tr")
        expect(attempts).to_have_count(2)
        expect(attempts.nth(0)).to_contain_text("attempt 1: Say hello.")
        expect(page.locator(".row-end")).to_be_visible()
        expect(page.locator("chat-list a.chat:has-text(': Say hello.'):has-text('└ attempt')")).to_have_count(2)


def test_a_chat_is_begun_in_a_world_which_is_dropped(browser: Browser, site: Site) -> None:  # W-11
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        page.fill("textarea[aria-label=Message]", "Hello in there.")
        page.click("summary:has-text('race')")
        page.check("label:has-text('Work in its own world') input")
        page.click("button[aria-label=Send]")
        expect(page.locator(".row-end")).to_be_visible()
        page.click(".tabs button:has-text('World')")
        expect(page.locator("world-view")).to_contain_text("This world has no changes to commit")
        expect(page.locator("world-view button:has-text('Commit')")).to_be_disabled()
        page.click("world-view button:has-text('Drop')")
        page.click("dialog button:has-text('Cancel')")
        world = page.inner_text("world-view code")
        assert site("GET", f"/api/worlds/{world}")["files"] == []
        page.click("world-view button:has-text('Drop')")
        page.click("dialog button.primary")
        expect(page.locator(".toast")).to_contain_text("Dropped")
        expect(page.locator("world-view")).to_contain_text("There is no world")
        assert world not in str(site("GET", "/api/worlds"))


def test_a_world_is_put_onto_what_changed_meanwhile(browser: Browser, site: Site) -> None:  # W-12
    file = site.cli.project / "shared.txt"
    lines = [f"line {number}\n" for number in range(1, 31)]
    file.write_text("".join(lines))
    chat = site.create("Edit it.", EDIT, world="chat")
    with window(browser, site, PHONE) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_contain_text("shared.txt")
        lines[28] = "twenty-ninth\n"
        file.write_text("".join(lines))
        page.click(".tabs button:has-text('World')")
        expect(page.locator("world-view .warn")).to_contain_text("shared.txt")
        page.click("world-view button:has-text('Rebase')")
        expect(page.locator(".toast")).to_contain_text("Merged: shared.txt")
        expect(page.locator("world-view .warn")).to_have_count(0)
        page.click("world-view button:has-text('Commit')")
        expect(page.locator("chat-page h1")).to_contain_text("commit")
        expect(page.locator(".row-end")).to_contain_text("shared.txt")
        lines[1] = "second\n"
        assert file.read_text() == "".join(lines)
