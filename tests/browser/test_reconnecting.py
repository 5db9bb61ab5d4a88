"""A server that dies and comes back, and a chat of ten thousand events (A-07, D-04, faults 6, 16, 29)."""

import json
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site import Site, window

pytestmark = pytest.mark.thorough

WORDS = " ".join(f"word{number}" for number in range(300))
LONG = f'[[turn]]\ntext = "{WORDS}"\nchunk = 8\ndelay_s = 0.02\n[[turn]]\ntext = "More."\n'
LATER = """() => {
  const now = Date.now;
  Date.now = () => now() + 20_000;
  document.dispatchEvent(new Event('visibilitychange'));
}"""
MANY_CALLS = """() => {
  const view = document.querySelector('run-timeline');
  const run = view.fold.spans.findLast((span) => span.kind === 'run');
  for (let at = 0; at < 5_000; at++) {
    const from = run.from + at;
    view.fold.spans.push({ kind: 'call', label: 'x', run: run.seq, seq: run.seq, from, to: from + 1 });
  }
  Object.assign(run, { to: run.from + 5_000 });
  view.drawn = '';
  view.draw();
  return view.querySelectorAll('g.bar').length;
}"""
RUNS = 2_000


def test_killed_in_the_middle_and_back(browser: Browser, site: Site) -> None:  # D-04, fault 6
    chat = site.create("Say a lot.", LONG)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator("chat-answer")).to_contain_text("word20")
        site.kill()
        expect(page.locator(".offline")).to_be_visible()
        site.start()
        expect(page.locator(".offline")).to_be_hidden()
        expect(page.locator(".row-end")).to_be_visible()
        expect(page.locator("chat-answer")).to_have_text(WORDS)
        expect(page.locator("chat-answer")).to_have_count(1)
        expect(page.locator(".row-user")).to_have_count(1)
        page.fill("textarea[aria-label=Message]", "And now?")
        page.keyboard.press("Enter")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("More.")
        expect(page.locator(".row-user")).to_have_count(2)


def test_sent_while_the_server_is_away(browser: Browser, site: Site) -> None:  # A-07, U-05
    chat = site.create("Hello.", LONG)
    site.idle(chat)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        site.kill()
        expect(page.locator(".offline")).to_be_visible()
        page.fill("textarea[aria-label=Message]", "Are you there?")
        page.keyboard.press("Enter")
        expect(page.locator(".unsent")).to_have_text("Sending … Are you there?")
        site.start()
        page.reload()  # it may be sent before and after, under one key
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("More.")
        expect(page.locator(".unsent")).to_be_hidden()
        expect(page.locator(".row-user")).to_have_count(2)


def test_a_tab_that_slept(browser: Browser, site: Site) -> None:
    """Its line is dead without a notice: a look at the page finds out at once, not after a silence."""
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        site.process.send_signal(signal.SIGSTOP)
        try:
            page.evaluate(LATER)
            expect(page.locator(".offline")).to_be_visible()
        finally:
            site.process.send_signal(signal.SIGCONT)
        expect(page.locator(".offline")).to_be_hidden()
        chat = site.create("Good morning.", LONG)
        expect(page.locator(f"chat-list a[data-id='{chat}']")).to_be_visible()


def test_a_revoked_token_signs_out_every_tab(browser: Browser, site: Site) -> None:  # S-13
    token = site.cli("tokens", "add", "local").out.strip()
    id = next(each["id"] for each in site.cli("tokens", "--json").lines if each["id"] != "own")
    chat = site.create("Hello.", LONG)
    with window(browser, site) as browser_window:
        page, second_page = browser_window.page, browser_window.context.new_page()
        second_page.goto(site.address)
        second_page.wait_for_selector("sign-in")
        page.goto(f"{site.address}#token={token}")
        for each in (page, second_page):  # one signs in, both are
            each.wait_for_selector(f"chat-list a[data-id='{chat}']")
        browser_window.show(chat)
        assert site.cli("tokens", "revoke", id).code == 0
        for each in (page, second_page):  # one of them hears it first
            expect(each.locator("sign-in .bad")).to_have_text(re.compile("does not know this token|was signed out"))
        assert page.evaluate("localStorage.getItem('treadle.token')") is None
        page.fill("sign-in input", "trd_of-somebody-else")
        page.click("sign-in button")
        expect(page.locator("sign-in .bad")).to_contain_text("does not know this token")


def export_long_chat(site: Site) -> Iterator[str]:
    """A long chat, as an export: one that was made, with its run many times over."""
    chat = site.create("Hi.", '[[turn]]\ntext = "Hello."\n')
    site.idle(chat)
    lines = [json.loads(line) for line in site.cli("export", chat).out.splitlines()]
    head = [line for line in lines if line["type"] == "session.created"]
    run = [line for line in lines if line["type"] not in ("session.created", "session.title_changed")]
    seq = len(head)
    yield from (json.dumps(line | {"events": 0}) for line in head)
    for number in range(1, RUNS + 1):
        for line in run:
            seq += 1
            event = json.loads(json.dumps(line)) | {"seq": seq, "id": f"{chat}:{seq}"}
            if "turn" in event["data"]:
                event["data"]["turn"] = number
            if "content" in event["data"]:
                event["data"]["content"] += f" ({number})"
            yield json.dumps(event)


def test_ten_thousand_events(browser: Browser, site: Site) -> None:  # fault 29
    file = site.cli.folder / "long.jsonl"
    file.write_text("".join(f"{line}\n" for line in export_long_chat(site)))
    chat = site.cli("import", str(file), "--new-id").out.split()[-1]
    assert site("GET", f"/api/chats/{chat}")["head"] > 5 * RUNS
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator("chat-answer").last).to_contain_text(f"({RUNS})")
        assert page.locator(".row").count() <= 200
        assert page.evaluate("document.querySelectorAll('*').length") < 4_000
        expect(page.locator(".above")).to_contain_text("earlier rows")
        first_seq = page.evaluate("document.querySelector('.row').dataset.seq")
        page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        page.wait_for_function("seen => document.querySelector('.row').dataset.seq !== seen", arg=first_seq)
        assert page.locator(".row").count() <= 200
        page.click("button[aria-label='To the end']")
        expect(page.locator("chat-answer").last).to_contain_text(f"({RUNS})")
        page.evaluate("document.querySelector('chat-conversation').show(3)")
        expect(page.locator(".row >> nth=0")).to_contain_text("(1)")
        page.click(".tabs button:has-text('Timeline')")
        expect(page.locator("g.bar.turn")).to_have_count(1)
        assert 50 < page.evaluate(MANY_CALLS) < 500  # calls that are too thin to be seen alone stand together


def test_another_database_behind_the_same_address(browser: Browser, site: Site) -> None:
    """The last test of this module, because it replaces the database."""
    chat = site.create("Hello.", '[[turn]]\ntext = "Hi."\n')
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        site.kill()
        site.cli.environment["TREADLE_STORE"] = str(site.cli.folder / "other.db")
        site.start()
        expect(page.locator("chat-page h1")).to_have_text("This chat is not on the server")
        expect(page.locator("chat-list .empty")).to_have_text("No chats yet.")
        expect(page.locator(".offline")).to_be_hidden()
        page.click(".new")
        page.fill("textarea[aria-label=Message]", "Begin anew")
        page.keyboard.press("Enter")
        expect(page.locator("chat-answer")).to_contain_text("Hello.")
        expect(page.locator("chat-list a.chat")).to_have_count(1)
