"""HTML of what others wrote: nothing of theirs is alive in it (S-12)."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]

from tests.hostile_text import TEXTS, check_inert
from treadle.base.inert import LEXERS
from treadle.frontends.server.rendering import MOST_MARKDOWN, Kind, render, render_code, render_markdown

TAGS = {
    "a", "blockquote", "br", "button", "code", "col", "colgroup", "del", "div", "em",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "input", "li", "ol", "p",
    "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = frozenset(
    {"class", "href", "title", "rel", "target", "tabindex", "colspan", "start"}
    | {"type", "disabled", "checked", "aria-label", "data-path", "data-line"}
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [y](file:///etc/passwd) [z](/api/chats)",
    '![a](https://evil.example/p.png "t")',
    "<a href='javascript:x'>x</a>",
    "<https://ok.example> <javascript:x>",
    "```<script>\n</code></pre><script>x</script>\n```",
    '```"onmouseover=x\nx\n```',
    "| <b>a</b> | b |\n|---|---|\n| <svg onload=x> | y |",
    "| a | b |\n|:-:|--:|\n| 1 | 2 |",
    "@@ -1,1 +1,1 @@\n-<script>x</script>\n+<img src=x onerror=y>",
    "+++ b/<script>.py\n@@ -1 +1 @@\n-a\n+b",
    "\u202eevil\u202c \x1b[31mred\x07",
    "[" * 500 + "]" * 500,
    "*" * 2_000,
]


class _MarkupChecker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.bad += [tag] if tag not in TAGS else []
        for name, value in attrs:
            self.bad += [f"{tag} {name}"] if name not in ATTRIBUTES else []
            if name == "href" and not re.match(r"(https?://|mailto:)", value or "", re.IGNORECASE):
                self.bad.append(f"href {value}")


def bad_in(html: str) -> list[str]:
    checker = _MarkupChecker()
    checker.feed(html)
    return checker.bad


@pytest.mark.parametrize("kind", ["markdown", "code", "diff"])
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_is_alive(kind: Kind, text: str) -> None:  # S-12
    for split in (False, True):
        html = render(kind, text, "<x>.py", split=split)
        assert not bad_in(html)
        assert "\u202e" not in html
        assert "\x1b" not in html


@pytest.mark.parametrize("kind", ["markdown", "code", "diff"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_character_of_the_html_hides_or_reorders_text(kind: Kind, text: str) -> None:  # S-12, S-22
    for split in (False, True):
        for wrapped in (
            text,
            f"**{text}** [a {text}](https://ok.example/{text} '{text}') `{text}`",
            f"```{text}\n{text}\n```",
        ):
            check_inert(render(kind, wrapped, text, split=split))


@given(st.text(max_size=300), st.sampled_from(["markdown", "code", "diff"]))
def test_no_text_gets_anything_through(text: str, kind: Kind) -> None:  # S-12
    assert not bad_in(render(kind, text, "x.html"))


def test_markdown() -> None:
    html = render_markdown(
        '# T\n\n**b** `c` [l](https://a.example/?q="&x)\n\n```python\ndef f(): ...\n```\n\n| a |\n|---|\n| 1 |'
    )
    assert "<h1>T</h1>" in html
    assert "<strong>b</strong>" in html
    assert 'rel="noopener noreferrer nofollow" target="_blank"' in html
    assert '<span class="k">def</span>' in html
    assert "<td>1</td>" in html


def test_an_image_is_named_and_not_loaded() -> None:  # S-12
    html = render_markdown("![a picture](https://a.example/p.png)")
    assert "<img" not in html
    assert "a picture" in html
    assert 'href="https://a.example/p.png"' in html


def test_what_is_too_long_stays_text() -> None:
    text = "*x* " * MOST_MARKDOWN
    assert render_markdown(text).startswith("<pre")
    assert "<em>" not in render_markdown(text)


def test_code_by_language_and_by_file_name() -> None:
    for language in ("python", "a/b.py", "py"):
        assert '<span class="k">return</span>' in render_code("return 1", language)
    assert "return 1" in render_code("return 1", "no-such-language")


DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,4 @@\n a = 1\n-b = 2\n+b = 3\n+c = 4\n d = 5\n\\ No newline at end of file"


def test_a_diff_inline_and_side_by_side() -> None:
    inline = render("diff", DIFF)
    assert inline.count('<td class="added">') == 2
    assert inline.count('<td class="removed">') == 1
    split = render("diff", DIFF, split=True)
    assert split.count('<td class="added">') == 2
    assert split.count('<td class="none">') == 1
    assert "No newline at end of file" in split


def test_only_languages_of_the_list_are_coloured() -> None:  # S-20
    assert "<span" not in render_code("10 PRINT 1", "cbmbas").replace("<span class=language>", "")
    lexer_names = {name for name, *_ in get_all_lexers()}
    assert lexer_names >= LEXERS


def test_task_lists_addresses_and_places() -> None:  # U-03
    html = render_markdown(
        "- [ ] open\n- [x] done: https://example.org/a.\n\nSee `src/a.py:12`, b.ts:3 and localhost.dev:80."
    )
    assert html.count('<li class="task"><input type="checkbox" disabled') == 2
    assert 'disabled checked aria-label="done"> done: <a href="https://example.org/a" ' in html
    assert '<button type="button" class="place" data-path="src/a.py" data-line="12"><code>src/a.py:12</code>' in html
    assert 'data-path="b.ts" data-line="3">b.ts:3</button> and localhost.dev:80.' in html
    hostile = render_markdown('x"onclick=y/a.py:3 https://e.x/"><b> [https://a.b c.py:1](https://d.e) `<i>.py:1`')
    assert "<b>" not in hostile
    assert 'onclick=y/a.py" ' not in hostile.replace("&quot;", "")
    assert hostile.count("<a ") == 2  # no link inside of a link
    assert "<i>" not in hostile


def test_diffs_in_fences_and_numbered_lines() -> None:  # U-03
    html = render_markdown("```diff\n--- a\n@@ -1 +1 @@\n-<old>\n+new\n```")
    assert '<span class="hunk">@@ -1 +1 @@</span>\n<span class="removed">-&lt;old&gt;</span>' in html
    assert '<span class="added">+new</span>' in html
    assert "\n--- a" not in html.replace('<span class="removed">--- a', "!")
    assert render("code", "x\ny", numbered=True).count('class="numbered" data-line=') == 2
