"""A server that dies and comes back, and a chat of ten thousand events (A-07, D-04, faults 6, 16, 29)."""

import json
from collections.abc import Iterator

from playwright.sync_api import Browser, expect

from tests.browser.site import Site, window

WORDS = " ".join(f"word{number}" for number in range(300))
LONG = f'[[turn]]\ntext = "{WORDS}"\nchunk = 8\ndelay_s = 0.02\n[[turn]]\ntext = "More."\n'
RUNS = 2_000


def test_killed_in_the_middle_and_back(browser: Browser, site: Site) -> None:  # D-04, fault 6
    chat = site.create("Say a lot.", LONG)
    with window(browser, site) as opened:
        page = opened.show(chat)
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


def exported(site: Site) -> Iterator[str]:
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
            told = json.loads(json.dumps(line)) | {"seq": seq, "id": f"{chat}:{seq}"}
            if "turn" in told["data"]:
                told["data"]["turn"] = number
            if "content" in told["data"]:
                told["data"]["content"] += f" ({number})"
            yield json.dumps(told)


def test_ten_thousand_events(browser: Browser, site: Site) -> None:  # fault 29
    file = site.cli.folder / "long.jsonl"
    file.write_text("".join(f"{line}\n" for line in exported(site)))
    chat = site.cli("import", str(file), "--new-id").out.split()[-1]
    assert site("GET", f"/api/chats/{chat}")["head"] > 5 * RUNS
    with window(browser, site) as opened:
        page = opened.show(chat)
        expect(page.locator("chat-answer").last).to_contain_text(f"({RUNS})")
        assert page.locator(".row").count() <= 200
        assert page.evaluate("document.querySelectorAll('*').length") < 4_000
        expect(page.locator(".above")).to_contain_text("earlier rows")
        seen = page.evaluate("document.querySelector('.row').dataset.seq")
        page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        page.wait_for_function("seen => document.querySelector('.row').dataset.seq !== seen", arg=seen)
        assert page.locator(".row").count() <= 200
        page.click("button[aria-label='To the end']")
        expect(page.locator("chat-answer").last).to_contain_text(f"({RUNS})")
        page.evaluate("document.querySelector('chat-conversation').show(3)")
        expect(page.locator(".row >> nth=0")).to_contain_text("(1)")
