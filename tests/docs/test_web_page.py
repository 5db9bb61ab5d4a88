"""The guide to the web app says what the page does: its keys, commands, limits and words (U-05)."""

import re
from pathlib import Path

from treadle.frontends.server.routes.web import FOLDER

GUIDE = Path("docs/guide/web.md").read_text()


def source(name: str) -> str:
    return (FOLDER / name).read_text()


def test_keys() -> None:
    listed = source("main.js").partition("const KEYS")[2].partition("];")[0]
    keys = re.findall(r'\["([^"]+)", "([^"]+)"\]', listed)
    assert len(keys) > 8
    assert re.findall(r"^\| (.+) \| (.+) \|$", GUIDE.partition("| --- | --- |")[2], re.MULTILINE) == keys


def test_commands_of_the_page() -> None:
    body = source("chat-page.js").partition("  commands() {")[2].partition("\n  }\n")[0]
    page_commands = set(re.findall(r"\b(\w+): (?:panel\(|\{ about:)", body))
    match = re.search(r"commands of the\s+page \(([^)]+)\)", GUIDE)
    assert match
    assert set(re.findall(r"`/(\w+)`", match[1])) == page_commands != set()


def test_panels_limits_and_words() -> None:
    for text in re.findall(r'\w+: \["(\w+)", "[\w-]+"', source("chat-page.js")):
        assert f"**{text}**" in GUIDE or text in ("File", "Replay"), text
    for text in ("Only this call", "In this chat", "In this project", "Everywhere"):
        assert f'"{text}"' in source("action-cards.js")
        assert f"*{text}*" in GUIDE
    assert "const MOST = 8 << 20;" in source("composer.js")
    assert "up to 8 MiB each" in GUIDE
    for text, file in {
        "Retry": "row-views.js",
        "Fork here": "row-views.js",
        "Review and commit": "job-list.js",
        "Revoke": "rules-page.js",
        "price unknown": "chat-page.js",
        "Steer": "composer.js",
        "This answer holds": "action-cards.js",
    }.items():
        assert f'"{text}"' in source(file), text
        assert f"*{text}*" in GUIDE, text
