"""Command lines in README and the guides use commands and options that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from treadle.frontends.cli import COMMANDS
from treadle.frontends.cli.group import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def command_lines(page: Path) -> list[list[str]]:
    """The words behind each `treadle` in the shell blocks of a page."""
    word_lists = []
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
        for line in block.replace("\\\n", " ").splitlines():
            for match in re.finditer(r"(?:^|[|\s(/])treadle\s+(?=[a-z-])([^|>)]*)", line):
                try:
                    word_lists.append(
                        shlex.split(match[1].partition(" #")[0].partition("  ")[0].strip().rstrip("\\;&"))
                    )
                except ValueError:  # a quotation that goes on
                    word_lists.append(match[1].split('"')[0].split("'")[0].split())
    return [words for words in word_lists if words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    context = click.Context(cli)
    for words in command_lines(page):
        if words[0] not in COMMANDS:
            assert words[0].startswith("-") or " " in words[0], words  # the app, with an option or a prompt
            continue
        command = cli.get_command(context, words[0])
        assert command is not None
        if isinstance(command, click.Group) or words[0] in ("rules", "models", "tokens"):
            continue
        known_options = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
        used_options = {word.partition("=")[0] for word in words[1:] if re.fullmatch(r"-{1,2}[a-z][a-z-]*(=.*)?", word)}
        assert used_options <= known_options, (words, used_options - known_options)
