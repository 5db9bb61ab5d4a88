"""The controls of a chat in a browser: files in a message, its options, background commands; and the usage of all chats
(U-03, L-11, S-14)."""

import base64
import json

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from tests.browser.site import Site, window

pytestmark = pytest.mark.thorough(one_of=10)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PRICED = """
[model]
usd_per_million_input = 1000.0
usd_per_million_output = 1000.0
[[turn]]
text = "That was dear."
"""
SERVE = """
[[turn]]
call = [{ name = "run_command", args = { command = "echo up; while read l; do echo got $l; done", background = true } }]
[[turn]]
text = "It runs."
"""
IDLE = '[[turn]]\ntext = "Seen."\n[[turn]]\ntext = "Again."\n'


def make_attachment(name: str, media_type: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": media_type, "buffer": content}


def test_files_go_with_a_message(browser: Browser, site: Site) -> None:  # U-03
    chat = site.create("Hello.", IDLE)
    site.idle(chat)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        expect(page.locator(".gauge")).to_contain_text(" / 200k (")  # also where no answer told the window
        field = page.locator("chat-composer input[type=file]")
        field.set_input_files(
            [make_attachment("a.png", "image/png", PIXEL), make_attachment("b.png", "image/png", PIXEL)]
        )
        expect(page.locator(".attached .file")).to_have_text(["a.png", "b.png"])
        page.click("button[aria-label='Remove a.png']")
        expect(page.locator(".attached .file")).to_have_text(["b.png"])
        expect(page.locator(".attached img")).to_have_js_property("naturalWidth", 1)
        field.set_input_files([make_attachment("notes.md", "text/markdown", b"```\n<b>not bold</b>\n```\n")])
        message = page.locator("textarea[aria-label=Message]")
        expect(message).to_have_value("")
        expect(page.locator(".attached .file")).to_have_text(["b.png", "notes.md"])
        field.set_input_files([make_attachment("tool.exe", "", b"MZ\0\0binary")])
        expect(page.locator(".toast.bad")).to_contain_text("tool.exe is neither text nor a picture")
        field.set_input_files([make_attachment("big.bin", "application/zip", bytes((8 << 20) + 1))])
        expect(page.locator(".toast.bad >> nth=-1")).to_contain_text("big.bin is larger than 8 MiB")
        page.click("button[aria-label=Send]")
        pictures = page.locator(".row-user >> nth=-1 >> .pictures img")
        expect(pictures).to_have_js_property("naturalWidth", 1)
        expect(page.locator(".row-user >> nth=-1 >> pre")).to_contain_text("<b>not bold</b>")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Again.")
        expect(page.locator(".attached .file")).to_have_count(0)
        expect(message).to_have_value("")
    user_messages = [each for each in site("GET", f"/api/chats/{chat}/log")["events"] if each["type"] == "user.message"]
    assert [image["media_type"] for image in user_messages[-1]["data"]["images"]] == ["image/png"]
    assert user_messages[-1]["data"]["content"] == "notes.md:\n````\n```\n<b>not bold</b>\n```\n\n````"


def test_options_change_in_every_window(browser: Browser, site: Site) -> None:  # L-11, U-05
    chat = site.create("Hello.", IDLE)
    site.idle(chat)
    old_options = site("GET", f"/api/chats/{chat}")["options"]
    with window(browser, site) as here, window(browser, site) as there:
        page, second_page = here.show(chat), there.show(chat)
        expect(page.locator(".row-end")).to_be_visible()
        page.click("button[aria-label='Options of this chat']")
        page.fill("dialog label:has-text('Title') input", "Renamed")
        default = page.locator("dialog select[name=model] option:not([selected])").first.get_attribute("value")
        assert default
        page.select_option("dialog select[name=model]", default)
        page.select_option("dialog select[name=mode]", "read-only")
        page.fill("input[aria-label='Budget of a run: US dollars']", "1.5")
        page.fill("input[aria-label='Budget of the chat: turns']", "7")
        page.click("dialog button.primary")
        expect(page.locator("dialog")).to_have_count(0)
        for each in (page, second_page):
            expect(each.locator("chat-page h1")).to_have_text("Renamed")
            expect(each.locator(".row-note")).to_contain_text("mode: read-only")
            expect(each.locator(".row-note")).to_contain_text(f"model: {default}")
        expect(second_page.locator(f"chat-list a[data-id='{chat}']")).to_contain_text("Renamed")
        new_options = site("GET", f"/api/chats/{chat}")["options"]
        changed_names = {name for name in new_options if json.dumps(new_options[name]) != json.dumps(old_options[name])}
        assert changed_names == {"model", "mode", "run_budget", "chat_budget"}
        assert (new_options["run_budget"]["usd"], new_options["chat_budget"]["turns"]) == (1.5, 7)
        second_page.click("button[aria-label='Options of this chat']")
        expect(second_page.locator("input[aria-label='Budget of a run: US dollars']")).to_have_value("1.5")
        second_page.click("dialog button:has-text('Archive')")
        expect(page.locator(".status")).to_have_text("archived")
        expect(page.locator(f"chat-list a[data-id='{chat}']")).to_have_count(0)


def test_model_and_mode_beside_the_message(browser: Browser, site: Site) -> None:  # U-10
    chat = site.create("Hello.", IDLE)
    site.idle(chat)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        mode, model = page.locator("chat-composer select[name=mode]"), page.locator("chat-composer select[name=model]")
        expect(mode).to_have_value("auto-edit")
        other_model = model.locator("option:not([selected])").first.get_attribute("value")
        assert other_model
        mode.select_option("review")
        expect(page.locator(".row-note >> nth=-1")).to_contain_text("mode: review")
        model.select_option(other_model)
        expect(page.locator(".row-note >> nth=-1")).to_contain_text(f"model: {other_model}")
        effort = page.locator("chat-composer select[name=reasoning_effort]")  # M-16
        expect(effort).to_have_value("")
        effort.select_option("high")
        expect(page.locator(".row-note >> nth=-1")).to_contain_text("reasoning effort: high")
        assert site("GET", f"/api/chats/{chat}")["options"]["reasoning_effort"] == "high"
        expect(page.locator(".gauge")).not_to_contain_text("price")
        page.fill("textarea[aria-label=Message]", "")
        site("PATCH", f"/api/chats/{chat}", {"mode": "ask", "model": "mistral:unheard-of"})
        expect(mode).to_have_value("ask")  # the choice of another window
        expect(page.locator(".gauge")).to_contain_text("price unknown")
        page.goto(f"{site.address}#/new")
        expect(page.locator("new-chat h1")).to_have_text("What should I work on?")
        expect(page.locator(".where b")).to_have_text("project")
        expect(page.locator(".examples button")).to_have_count(3)
        page.click(".examples button >> nth=0")
        expect(page.locator("textarea[aria-label=Message]")).to_have_value(
            "Explain how this project is built and tested"
        )
        (site.cli.project / "somewhere.txt").touch()
        page.fill("textarea[aria-label=Message]", "")
        page.locator("textarea[aria-label=Message]").press_sequentially("See @swhere")
        expect(page.locator(".hints li")).to_have_text(["somewhere.txt"])  # also before a chat has begun


OUTPUT = """
[[turn]]
call = [{ name = "run_command", args = { command = "seq 1 30000" } }]
[[turn]]
text = "Counted: see `count.py:2`."
"""


def test_the_whole_output_and_what_to_do_with_an_answer(browser: Browser, site: Site) -> None:  # U-03
    (site.cli.project / "count.py").write_text("a = 1\nb = 2\n")
    chat = site.create("Count.", OUTPUT, auto_approve_commands=True)
    site.idle(chat)  # the page unfolds a call that it sees running
    with window(browser, site, permissions=["clipboard-read", "clipboard-write"]) as browser_window:
        page = browser_window.show(chat)
        page.click("chat-answer .place")
        expect(page.locator("file-view .meant")).to_have_text("b = 2")
        page.click("button[aria-label='Close the panel']")
        page.click(".call summary")
        page.click("button:has-text('Show the whole output')")
        output = page.locator("pre[aria-label='Whole output']")
        expect(page.locator("button:has-text('Show more')")).to_have_text("Show more: 101 KB left")
        page.click("button:has-text('Show more')")
        expect(page.locator("button:has-text('Show more')")).to_have_text("Show more: 37 KB left")
        page.click("button:has-text('Show more')")
        expect(page.locator("button:has-text('Show more')")).to_be_hidden()
        assert (output.text_content() or "").endswith("\n30000\n")
        with page.expect_download() as saved:
            page.click("button[aria-label='Download the whole output']")
        assert saved.value.path().read_text() == "".join(f"{number}\n" for number in range(1, 30_001))
        page.locator("chat-answer").hover()
        page.click("button[aria-label='Copy the answer']")
        assert page.evaluate("navigator.clipboard.readText()") == "Counted: see `count.py:2`."
        page.click(".row-end button:has-text('Retry')")
        with page.expect_response("**/messages/*"):
            page.click("dialog button.primary")
        expect(page.locator(".row-end")).to_have_count(1)
        expect(page.locator(".row-user .bubble")).to_have_text("Count.")
        page.fill("textarea[aria-label=Message]", "/export")
        with page.expect_download() as saved:
            page.keyboard.press("Enter")
        assert saved.value.suggested_filename == f"{chat}.jsonl"
    user_messages = [each for each in site("GET", f"/api/chats/{chat}/log")["events"] if each["type"] == "user.message"]
    assert [each["data"]["edits"] > 0 for each in user_messages] == [False, True]


def test_a_background_command_is_read_talked_to_and_stopped(browser: Browser, site: Site) -> None:  # S-14
    chat = site.create("Serve.", SERVE, auto_approve_commands=True)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-note:has-text('In the background: echo up')")).to_be_visible()
        page.click(".tabs button:has-text('Jobs')")
        job = page.locator("job-list section")
        expect(job).to_contain_text("1.0 · running")
        expect(job.locator("pre")).to_contain_text("up")
        page.fill("input[aria-label='Input of 1.0']", "hello there")
        page.keyboard.press("Enter")
        page.click("job-list section code")  # a field with typed text is not drawn anew
        expect(job.locator("pre")).to_contain_text("got hello there")
        page.click("job-list button:has-text('Stop')")
        expect(job).to_contain_text("1.0 · stopped")
        expect(page.locator(".row-note:has-text('Background command 1.0 stopped')")).to_be_visible()
        page.click("job-list button:has-text('Output')")
        expect(job.locator("pre")).to_contain_text("got hello there")


LEFT = """
[[turn]]
call = [{ name = "run_command", args = { command = "echo made > made-by-job.txt", background = true } }]
[[turn]]
text = "It runs."
"""


def test_what_a_job_changed_is_shown_before_it_is_committed(browser: Browser, site: Site) -> None:  # W-10, S-07
    chat = site.create("Serve.", LEFT, auto_approve_commands=True)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        page.click(".tabs button:has-text('Jobs')")
        page.click("job-list button:has-text('Review and commit')")
        expect(page.locator("dialog h2")).to_have_text("Commit 1 changed file of 1.0?")
        expect(page.locator("dialog .added")).to_contain_text("made")
        assert not (site.cli.project / "made-by-job.txt").exists()
        page.click("dialog button.primary")
        expect(page.locator(".row-note:has-text('Changes of background command 1.0: committed')")).to_be_visible()
        assert (site.cli.project / "made-by-job.txt").read_text() == "made\n"


def test_the_usage_of_all_chats(browser: Browser, site: Site) -> None:  # L-11
    chat = site.create("Spend.", PRICED)
    site.idle(chat)
    spent = site("GET", f"/api/chats/{chat}/usage")["usage"]
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        page.click(".nav-foot a:has-text('Usage')")
        expect(page.locator(".tile:has-text('cost') b")).to_have_text(f"${spent['usd']:.2f}")
        model = site("GET", f"/api/chats/{chat}")["model"]
        row = page.locator(".numbers tbody tr", has=page.locator(f"[title='{model}']"))
        expect(row.locator("td >> nth=0")).to_have_text(f"${spent['usd']:.2f}")
        expect(row.locator("td >> nth=4")).to_have_text("1")
        plots = page.locator("svg.plot")
        expect(plots).to_have_count(3)
        expect(plots.first).to_have_attribute("aria-label", f"Cost by day; at most ${spent['usd']:.2f}")
        page.select_option("select[aria-label='How many days']", "7")
        expect(plots.first.locator("rect")).to_have_count(1)
        expect(page.locator("figure:has-text('Cost') rect title")).to_contain_text(f"${spent['usd']:.2f}")


def test_a_chat_is_deleted_after_a_confirmation(browser: Browser, site: Site) -> None:  # U-03, A-06
    chat, other_chat = site.create("Hello.", IDLE), site.create("Stay.", IDLE)
    site.idle(chat)
    site.idle(other_chat)
    with window(browser, site) as browser_window, window(browser, site) as second_window:
        page, watching = browser_window.show(chat), second_window.show(chat)
        entry = f"chat-list a[data-id='{chat}']"
        expect(watching.locator(entry)).to_be_visible()
        for answer in ("Cancel", "Delete"):
            page.click("button[aria-label='Options of this chat']")
            page.click("dialog button:has-text('Delete')")
            expect(page.locator("dialog")).to_contain_text("deleted for good")
            page.click(f"dialog button:text-is('{answer}')")
            expect(page.locator(entry)).to_have_count(1 if answer == "Cancel" else 0)
        expect(page.locator("chat-page")).to_have_count(0)
        expect(watching.locator("main h1")).to_have_text("This chat is not on the server")
        expect(watching.locator(entry)).to_have_count(0)
        expect(watching.locator(f"chat-list a[data-id='{other_chat}']")).to_be_visible()


def test_a_compaction_is_shown_while_it_is_made_and_can_be_stopped(browser: Browser, site: Site) -> None:  # U-03, L-07
    script = f'{IDLE}\n[[other]]\npurpose = "compaction"\nhang = true\n'
    chat = site.create("Hello.", script)
    site.idle(chat)
    site("POST", f"/api/chats/{chat}/messages", {"content": "And again."})
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        expect(page.locator(".row-end")).to_have_count(2)
        stop_button = page.locator("button[aria-label='Stop the run']")
        expect(stop_button).to_be_hidden()
        site("POST", f"/api/chats/{chat}/compact", {})
        expect(page.locator("chat-page .working")).to_contain_text("compacting · ")
        stop_button.click()
        expect(page.locator("chat-page")).to_contain_text("Compaction failed: interrupted")
        expect(stop_button).to_be_hidden()
        expect(page.locator("chat-page .status")).to_have_text("idle")
