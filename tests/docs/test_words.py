"""Plain product English on the command line and in the first pages, with one word for one thing (U-10)."""

import re
from pathlib import Path

import click
import pytest

from treadle.frontends.cli import COMMANDS, format_help
from treadle.frontends.cli.group import cli

ROOT = Path(__file__).parents[2]
FIRST_PAGES = ("README.md", "docs/README.md", "docs/guide/getting-started.md", "docs/guide/installation.md")
UNCLEAR = re.compile(
    r"is to be done|take[sn]? back\b.*\btake[sn]? back|what there is|those that name none, too|\bgone on with\b"
    r"|, how far\.|what nobody|whoever likes|win over (?:it|them)\b|standing answers?|something of its like",
    re.IGNORECASE,
)
INTERNAL = re.compile(r"requires_action|awaiting_action|\bsession\.\w|\\n")
WORDS = ("chat", "run", "approval", "rule", "world", "undo")


def help_of(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    context = click.Context(command, info_name=name)
    texts = [command.get_help(context)]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            texts.append(inner.get_help(click.Context(inner, info_name=inner.name, parent=context)))
    return re.sub(r"\s+", " ", " ".join(texts))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_plain(name: str) -> None:
    text = help_of(name)
    assert UNCLEAR.findall(text) == []
    assert INTERNAL.findall(text) == []
    assert COMMANDS[name].removesuffix(".") in text


def test_the_first_help_is_plain() -> None:
    assert UNCLEAR.findall(format_help()) == []


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_the_first_pages_are_plain(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert UNCLEAR.findall(text) == []
    assert INTERNAL.findall(re.sub(r"```.*?```", "", text, flags=re.S)) == []


def test_the_glossary_has_the_words_and_what_others_call_them() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    first = glossary.partition("## The words you meet first")[2].partition("\n## ")[0]
    for word in WORDS:
        row = next(line for line in first.splitlines() if line.startswith((f"| **{word}**", f"| **{word}**,")))
        means, elsewhere = row.strip("| ").split(" | ")[1:]
        assert means
        assert elsewhere
    assert "(glossary.md)" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
