"""A chat that works in a world, and chats that began others, in a browser (W-11, W-12, L-22, L-23)."""

import json

from playwright.sync_api import Browser, expect

from tests.browser.site import PHONE, Site, window
from tests.browser.test_accessibility import complaints

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
SHARING = """
[[turn]]
call = [{ name = "delegate", args = { tasks = [{ task = "Write the workflow.", agent = "writer" }] } }]
[[turn]]
text = "Shared."
"""


def test_a_world_is_looked_at_and_committed(browser: Browser, site: Site) -> None:  # W-11, W-12
    with window(browser, site) as opened:
        chat = site.create("Make it.", WRITE.replace("NAME", "in-world.txt"), world="chat")
        page = opened.show(chat)
        expect(page.locator(".row-end")).to_contain_text("Done")
        made = site.cli.project / "in-world.txt"
        assert not made.exists()
        expect(page.locator(".tabs button:has-text('Tree')")).to_be_hidden()
        page.click(".tabs button:has-text('World')")
        expect(page.locator("world-view .diffs")).to_contain_text("in-world.txt")
        expect(page.locator("world-view .added")).to_contain_text("made")
        assert complaints(page) == []
        page.click("world-view button:has-text('Commit')")
        expect(page.locator("chat-page h1")).to_contain_text("commit")
        expect(page.locator(".row-end")).to_contain_text("in-world.txt")
        assert made.read_text() == "made\n"
        expect(page.locator(".tabs button:has-text('World')")).to_be_hidden()


def test_the_attempts_of_a_race_and_the_tree_of_chats(browser: Browser, site: Site) -> None:  # L-22, L-23
    short = site.script(WRITE.replace("NAME", "raced.txt"))
    long = site.script(WRITE.replace("NAME", "raced.txt").replace("made", "made\\n\\n"))
    done = site.cli(
        "race", "Write it.", "--model", f"{long},{short}", "--check", "test -f raced.txt", "--all", "--json"
    )
    assert done.code == 0, done.err
    chat = json.loads(done.out.splitlines()[-1])["chat"]
    with window(browser, site, PHONE) as phone, window(browser, site) as opened:
        page, small = opened.show(chat), phone.show(chat)
        page.click(".call summary:has-text('race')")
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


def test_a_sub_agent_at_work_is_seen_and_answered_from_its_parent(browser: Browser, site: Site) -> None:  # L-23
    agents = site.cli.home / "agents"
    agents.mkdir()
    front = f"name: writer\ndescription: Writes.\nmodel: {site.script(ASKING)}"
    (agents / "writer.md").write_text(f"---\n{front}\n---\nWrite.\n")
    chat = site.create("Share it.", SHARING, mode="ask")
    with window(browser, site, PHONE) as opened:
        page = opened.show(chat)
        expect(page.locator(".call table.tree tbody tr")).to_contain_text("at work")
        page.click(".tabs button:has-text('Tree')")
        expect(page.locator("chat-tree tbody tr >> nth=1")).to_contain_text("needs you")
        page.click("chat-tree tbody tr >> nth=1 >> a")
        expect(page.locator("a.badge:has-text('parent')")).to_be_visible()
        page.click(".action .allow")
        expect(page.locator(".row-end")).to_be_visible()
        page.click("a.badge:has-text('parent')")
        expect(page.locator(".row-end")).to_contain_text("ci.yml")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Shared.")
