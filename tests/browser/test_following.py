"""The conversation follows a run until a person scrolls up (U-02, U-05)."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site, window

pytestmark = pytest.mark.thorough

STEPS = 8
AT_END = (
    "() => { const s = document.querySelector('.scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight < 5; }"
)
FOLLOWS = "() => document.querySelector('chat-conversation').follows"
ROW_BEFORE_FLUSH = """async () => {
  const conversation = document.querySelector('chat-conversation');
  const { fold, scroller } = conversation;
  const event = { time: new Date().toISOString(), type: 'model.notice', data: { text: 'A notice.' } };
  fold.take({ ...event, seq: fold.seq + 1 });
  scroller.dispatchEvent(new Event('scroll'));
  return conversation.follows;
}"""
NUDGE_UP = """async () => {
  document.querySelector('.scroller').scrollTop -= 20;
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}"""


def steps_of(number: int) -> str:
    """A run of several steps: text, calls that shrink into one line when they are done, text again."""
    search = '{{ name = "find_files", args = {{ pattern = "{letter}{step}*" }} }},'
    text = "\\n\\n".join(f"Paragraph {place} of a longer answer that is written piece by piece." for place in range(6))
    turns = "".join(
        f'[[turn]]\ntext = "Step {step}.\\n\\n{text}"\nchunk = 40\ndelay_s = 0.004\n'
        f"call = [{''.join(search.format(letter=letter, step=step) for letter in 'abcde')}]\n"
        for step in range(STEPS)
    )
    return f'{turns}[[turn]]\ntext = "End of run {number}."\n[[turn]]\ntext = "Again."\n'


def is_followed_to_the_end(page: Page, number: int) -> bool:
    expect(page.locator("chat-answer >> nth=-1")).to_contain_text(f"End of run {number}.")
    expect(page.locator(".row-end")).to_be_visible()
    return bool(page.evaluate(FOLLOWS))


def test_runs_of_several_steps_are_followed(browser: Browser, site: Site) -> None:  # U-02
    with window(browser, site) as browser_window:
        page = browser_window.sign_in()
        lost_numbers = []
        for number in range(3):
            browser_window.show(site.create("Go.", steps_of(number)))
            if not is_followed_to_the_end(page, number):
                lost_numbers.append(number)
            else:
                page.wait_for_function(AT_END)
        assert not lost_numbers
        assert page.evaluate(ROW_BEFORE_FLUSH), "a row that waits to be shown was taken for scrolling by hand"


def test_a_person_scrolls_up_and_sends(browser: Browser, site: Site) -> None:  # U-02
    chat = site.create("Go.", steps_of(0))
    site.idle(chat)
    with window(browser, site) as browser_window:
        page = browser_window.show(chat)
        assert is_followed_to_the_end(page, 0)
        page.wait_for_function(AT_END)
        page.evaluate(NUDGE_UP)
        assert not page.evaluate(FOLLOWS), "a small step up counts"
        page.evaluate("document.querySelector('.scroller').scrollTop = 0")
        expect(page.locator("button[aria-label='To the end']")).to_be_visible()
        page.fill("textarea[aria-label=Message]", "And once more")
        page.keyboard.press("Enter")
        expect(page.locator(".row-user >> nth=-1")).to_be_in_viewport()
        expect(page.locator("chat-answer >> nth=-1")).to_contain_text("Again.")
        page.wait_for_function(AT_END)
