"""A chat in a browser: begun, followed, answered, from several windows at once (U-02, U-03, U-05, S-12)."""

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import treadle
from tests.browser.site import IDLE, PHONE, Site, window
from tests.scenario.mcp_servers.kit import ODD
from treadle.protocol.envelope import EndReason

pytestmark = pytest.mark.thorough(one_of=10)

SLOW = """
[model]
chunk = 4
delay_s = 0.02
[[turn]]
think = "First I think."
text = \"\"\"
# A heading

Some **bold** text, and code:

```python
def f():
    return 1
```

The end.
\"\"\"
[[turn]]
text = "Heard in both."
"""
HANG = '[[turn]]\ntext = "Once upon a time there was "\nhang = true\n[[turn]]\ntext = "Again."\n'
HANG += '[[turn]]\ntext = "Seen."\n[[turn]]\ntext = "Tidied."\n'
HOSTILE = """
[[turn]]
text = '''
<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script>

![pixel](https://evil.example/pixel.png) [click](javascript:window.hacked=1) <iframe src="https://evil.example">

| a | b |
|:-:|--:|
| <b onclick=x>1</b> | 2 |

```html
<script>window.hacked = 1</script>
```
'''
think = "I \u202e think"
call = [
  { name = "write_file", args = { path = "<img src=x onerror=hacked=1>.md", content = "<script>x</script>\\n" } },
  { name = "grep_search", args = { pattern = "a\u202eb\u200bc" } },
]
[[turn]]
text = "Done."
"""
BREACHES = """async () => {
  const broken = new Set();
  document.addEventListener('securitypolicyviolation', (event) => broken.add(event.effectiveDirective));
  const tried = (act) => { try { act(); return 'done'; } catch (error) { return error.name; } };
  const html = [
    () => { document.body.innerHTML = '<b>x</b>'; },
    () => document.createElement('iframe').srcdoc = '<b>x</b>',
    () => document.createElement('script').textContent = 'window.hacked = 1',
    () => trustedTypes.createPolicy('other', {}),
    () => trustedTypes.createPolicy('treadle', {}),
  ].map(tried);
  document.body.setAttribute('style', 'color: red');
  document.body.append(Object.assign(document.createElement('style'), { textContent: 'body { color: red }' }));
  document.body.append(Object.assign(new Image(), { src: 'https://evil.example/pixel.png' }));
  document.body.append(Object.assign(document.createElement('iframe'), { src: 'https://evil.example/' }));
  const far = await fetch('https://evil.example/').then(() => 'done', (error) => error.name);
  await new Promise((resolve) => setTimeout(() => { try { eval('window.hacked = 1'); } catch { resolve(); } }));
  while (broken.size < WANTED) await new Promise((resolve) => setTimeout(resolve, 20));
  return { html, far, broken: [...broken].sort(), hacked: window.hacked };
}"""
ASK = """
[[turn]]
text = "I need to write a workflow.\\n\\nLINES"
call = [{ name = "write_file", args = { path = ".github/workflows/ci.yml", content = "on: push\\n" } }]
[[turn]]
call = [{ name = "ask_user", args = { question = "Which colour?", options = ["red", "blue"] } }]
[[turn]]
call = [{ name = "weather", args = { city = "Oslo" } }]
[[turn]]
text = "All answered."
"""
ASK = ASK.replace("LINES", "".join(f"- {number}\\n" for number in range(60)))  # more than a screen
AT_END = (
    "() => { const s = document.querySelector('.scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight < 5; }"
)
WEATHER = {"name": "weather", "description": "Tells the weather.", "input_schema": {"type": "object"}}


def test_a_chat_is_begun_and_streams(browser: Browser, site: Site) -> None:  # U-02, U-03, U-05
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        assert "token" not in page.url
        page.fill("chat-composer textarea", "not sent yet")
        page.reload()
        expect(page.locator("chat-composer textarea")).to_have_value("not sent yet")
        chat = site.create("Tell me something.", SLOW)
        expect(page.locator(f"chat-list a[data-id='{chat}']")).to_be_visible()  # told by the stream of all chats
        page.click(f"chat-list a[data-id='{chat}']")
        expect(page.locator("chat-answer h1")).to_have_text("A heading")
        expect(page.locator(".row-end")).to_contain_text("Done")
        expect(page.locator("chat-answer")).to_have_count(1)
        assert page.inner_text("chat-answer .k >> nth=0") == "def"
        assert page.inner_text("chat-answer").count("The end.") == 1
        expect(page.locator(".thinking summary")).to_contain_text("Thought")
        expect(page.locator(".status")).to_have_text("idle")
        run_result = site.cli("run", "--chat", chat, "Said in a terminal.")
        assert (run_result.code, "Heard in both." in run_result.out) == (0, True)
        expect(page.locator(".row-user .bubble >> nth=-1")).to_have_text("Said in a terminal.")
        expect(page.locator("chat-answer >> nth=-1")).to_have_text("Heard in both.")
        expect(page.locator(".row-end")).to_have_count(2)


def test_an_incomplete_answer_says_so(browser: Browser, site: Site) -> None:  # M-11, U-03
    with window(browser, site) as browser_window:
        page = browser_window.show(site.create("A story.", '[[turn]]\ntext = "Once upon"\nfinish = "length"\n'))
        expect(page.locator(".row-end")).to_contain_text("Ended with an incomplete answer")
        expect(page.locator("chat-conversation")).to_contain_text("reached its output limit")
    source = (Path(treadle.__file__).parent / "frontends" / "web" / "family.js").read_text(encoding="utf-8")
    words = re.search(r"export const ENDS = \{(.*?)\};", source, re.S)
    assert words is not None
    assert set(get_args(EndReason)) <= set(re.findall(r"(\w+): \"", words[1]))


def test_begun_in_the_page_and_stopped(browser: Browser, site: Site) -> None:  # L-07, L-08
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        page.fill("textarea[aria-label=Message]", "Hi there")
        page.keyboard.press("Enter")
        expect(page.locator(".row-user")).to_contain_text("Hi there")
        expect(page.locator("chat-answer")).to_contain_text("Hello.")
        browser_window.show(site.create("A story.", HANG))
        expect(page.locator("chat-answer .tail")).to_have_text("Once upon a time there was ")
        page.fill("textarea[aria-label=Message]", "and then?")
        page.keyboard.press("Enter")
        expect(page.locator(".queued")).to_contain_text("and then?")
        expect(page.locator("textarea[aria-label=Message]")).to_be_focused()
        page.keyboard.press("Escape")  # leaves the message
        expect(page.locator("textarea[aria-label=Message]")).not_to_be_focused()
        expect(page.locator("dialog")).to_have_count(0)
        page.keyboard.press("Escape")  # asks
        expect(page.locator("dialog")).to_contain_text("Stop the run?")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
        expect(page.locator(".row-end")).to_have_count(0)
        page.keyboard.press("Escape")
        page.click("dialog button.primary")
        expect(page.locator(".row-end")).to_contain_text("Stopped")
        expect(page.locator("chat-answer")).to_contain_text("(stopped here)")
        page.click(".queued button:has-text('Next')")
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Again.")
        expect(page.locator(".queued")).to_have_count(0)
        complete_words_of_servers(page, site)


def complete_words_of_servers(page: Page, site: Site) -> None:  # T-10
    """Prompts and resources of an MCP server, in the chat that is shown."""
    odd = {"command": sys.executable, "args": ["-S", ODD, str(site.cli.folder / "notes")]}
    declared = site.cli.home / "mcp.json"
    declared.write_text(json.dumps({"mcpServers": {"odd": odd}}))
    area, hints = page.locator("textarea[aria-label=Message]"), page.locator(".hints li")
    area.fill("See @odd:notes://all")
    page.keyboard.press("Enter")
    expect(page.locator(".row-user >> nth=-1")).to_contain_text("[notes://all]")
    expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Seen.")
    for name in ("__pycache__/plans.pyc", "plans/next year.md", "plans/menu.md"):
        (site.cli.project / name).parent.mkdir(exist_ok=True)
        (site.cli.project / name).touch()
    area.press_sequentially("@pmen")  # not the beginning of any name
    expect(hints).to_have_text(["plans/menu.md"])
    page.keyboard.press("Enter")
    expect(area).to_have_value("plans/menu.md ")
    area.fill("")
    area.press_sequentially("And @odd")
    expect(hints).to_have_count(2)
    expect(hints.nth(1)).to_be_in_viewport(ratio=1)
    late_answers: list[Route] = []
    page.route("**/files/find?*", lambda route: late_answers.append(route))
    with page.expect_request("**/files/find?*"):
        area.press_sequentially(":")
    page.keyboard.press("ArrowDown")
    with page.expect_response("**/files/find?*"):
        late_answers[0].continue_()
    page.unroute("**/files/find?*")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    expect(hints).to_have_count(2)
    expect(area).to_have_attribute("aria-activedescendant", "hint-1")  # a late answer keeps the person's selection
    page.keyboard.press("Tab")
    expect(area).to_have_value("And @odd:notes://days/")
    area.fill("")
    area.press_sequentially("/o")
    expect(hints).to_have_text(["/options Title, budgets, archive", "/odd:tidy how [what]Tidy up."])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(hints).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("/odd:tidy needs how")
    expect(area).to_have_value("/odd:tidy ")
    area.press_sequentially("well")
    page.keyboard.press("Enter")
    expect(page.locator(".row-user >> nth=-1")).to_contain_text("Tidy all well: some notes")
    expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Tidied.")
    declared.unlink()


def test_nothing_hostile_comes_alive(browser: Browser, site: Site) -> None:  # S-12
    with window(browser, site) as browser_window:
        page = browser_window.show(
            site.create("<script>window.hacked = 1</script> **x**", HOSTILE, title="<img src=x onerror=hacked=1>\u202e")
        )
        expect(page.locator(".row-end")).to_be_visible()
        page.click(".tabs button:has-text('Files')")
        expect(page.locator(".changed code >> nth=0")).to_have_text("<img src=x onerror=hacked=1>.md")
        page.click(".tabs button:has-text('Log')")
        page.click(".events summary >> nth=2")
        page.click(".thinking summary")
        for text in ("hacked=1>\\u202e", "I \\u202e think", "a\\u202eb\\u200bc"):
            expect(page.locator("body")).to_contain_text(text)
        page_text = page.evaluate("document.title + document.body.textContent")
        assert not set(page_text) & {"\u202e", "\u200b"}  # nothing reorders or hides what is read
        assert page.evaluate("window.hacked") is None
        assert page.locator("chat-page img, chat-page iframe, chat-page script").count() == 0
        links = page.eval_on_selector_all("chat-page a[href]", "all => all.map(a => a.getAttribute('href'))")
        assert all(re.match(r"https?://|#/", link) for link in links)


def test_the_browser_enforces_the_policy(browser: Browser, site: Site) -> None:  # S-12
    """A script of the page can add no HTML but the renderer's, nothing inline, nothing from elsewhere."""
    directives = [
        "connect-src",
        "frame-src",
        "img-src",
        "require-trusted-types-for",
        "style-src-attr",
        "style-src-elem",
    ]
    directives.append("trusted-types")
    page = browser.new_page()
    page.goto(site.address)
    page.wait_for_selector("sign-in")
    breaches = page.evaluate(BREACHES.replace("WANTED", str(len(directives))))
    assert breaches == {"html": ["TypeError"] * 5, "far": "TypeError", "broken": directives, "hacked": None}
    page.close()


def test_answered_in_one_window_and_gone_from_the_other(browser: Browser, site: Site) -> None:  # U-05, S-08, fault 6
    chat = site.create("Go.", ASK, mode="ask", dynamic_tools=[WEATHER])
    with window(browser, site) as first, window(browser, site, PHONE) as second:
        here, there = first.show(chat), second.show(chat)
        for page in (here, there):
            expect(page.locator(".action.card")).to_contain_text("Allow write_file?")
            expect(page.locator(".action .added")).to_contain_text("on: push")
            expect(page.locator("chat-answer li >> nth=59")).to_be_visible()
            page.wait_for_function(AT_END)  # the card took its room from below
            expect(page.locator(".jump")).to_be_hidden()
        here.click(".action .allow")
        for page in (here, there):
            expect(page.locator(".action.question")).to_contain_text("Which colour?")
            expect(page.locator(".action")).to_have_count(1)
        there.click(".action button:has-text('blue')")
        expect(here.locator(".row-question")).to_contain_text("Answer: blue")
        for page in (here, there):
            expect(page.locator(".action.client")).to_contain_text("A client runs weather")
        action = site("GET", f"/api/chats/{chat}/actions")["actions"][0]["action"]
        result = {"tool_call_id": action["tool_call_id"], "output": {"sky": "rain"}}
        site("POST", f"/api/chats/{chat}/tool-results", {"results": [result]})
        for page in (here, there):
            expect(page.locator("chat-answer >> nth=-1")).to_contain_text("All answered.")
            expect(page.locator(".action")).to_have_count(0)


def test_a_phone_signs_in_with_a_code(browser: Browser, site: Site) -> None:  # S-13
    site.create("From a desk", IDLE)
    code = site.code()
    with window(browser, site, PHONE, has_touch=True, is_mobile=True) as browser_window:
        page = browser_window.page
        page.goto(site.address)
        page.fill("sign-in input", code.lower())
        page.click("sign-in button")
        page.click(".new")
        page.fill("textarea[aria-label=Message]", "From a phone")
        page.click("button[aria-label=Send]")
        expect(page.locator("chat-answer")).to_contain_text("Hello.")
        over = "(page => [page.scrollWidth - innerWidth, page.scrollHeight - innerHeight])(document.documentElement)"
        assert max(page.evaluate(over)) <= 0, "the page has a scroll bar of its own"
        page.click("a[aria-label='All chats']")
        expect(page.locator("chat-list a.chat >> nth=0")).to_contain_text("From a phone")


def test_a_phone_without_chats_begins_with_the_first_message(browser: Browser, tmp_path: Path) -> None:  # U-05
    with closing(Site(tmp_path)) as site, window(browser, site, PHONE) as phone, window(browser, site) as desktop:
        assert desktop.sign_in().is_visible(".new")
        page = phone.sign_in()
        page.fill("textarea[aria-label=Message]", "The first message")
        page.click("a[aria-label='All chats']")
        expect(page.locator("chat-list")).to_contain_text("No chats yet.")
        page.click(".new")
        page.click("button[aria-label=Send]")
        expect(page.locator("chat-answer")).to_contain_text("Hello.")
        page.goto(site.address)
        page.reload()
        expect(page.locator("chat-list a.chat")).to_contain_text("The first message")
        assert page.is_hidden("textarea")


def test_the_message_field_of_a_phone_holds_its_words_and_buttons(browser: Browser, site: Site) -> None:  # U-05
    chat = site.create("Tell me", HANG)
    with window(browser, site, PHONE) as phone:
        page = phone.show(chat)
        page.wait_for_selector("button[aria-label='Stop the run']")
        middles = [
            page.eval_on_selector(selector, "each => (box => box.top + box.height / 2)(each.getBoundingClientRect())")
            for selector in (".send", ".stop", "button:has-text('Steer')", "select[name=reasoning_effort]")
        ]
        assert max(middles) - min(middles) < 3
        assert (
            page.eval_on_selector(
                "textarea", "each => (each.value = each.placeholder, each.scrollHeight - each.clientHeight)"
            )
            <= 0
        )
    site("POST", f"/api/chats/{chat}/interrupt")
