"""`--version` and `--help` are there at once: they load next to nothing (U-06)."""

import subprocess
import sys
from typing import get_args

import click
import pytest

from treadle.cli import COMMANDS, help_text
from treadle.cli.commands import run
from treadle.cli.group import cli
from treadle.protocol.options import MODES, CompletionStyle, OnLimit, Rung

HEAVY = {"asyncio", "aiohttp", "msgspec", "rich", "sqlite3", "treadle.runtime"}


def loaded(*arguments: str) -> set[str]:
    program = (
        "import sys\n"
        f"sys.argv = ['treadle', *{arguments!r}]\n"
        "from treadle.cli import main\n"
        "code = main()\n"
        "sys.stderr.write('\\n'.join(sys.modules))\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout
    return set(done.stderr.split("\n"))


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_first_words_load_not_even_click(option: str) -> None:
    modules = loaded(option)
    assert "treadle.cli" in modules
    assert not modules & (HEAVY | {"click"})


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_no_work(command: str) -> None:
    assert not loaded(command, "--help") & HEAVY


def test_every_command_has_the_line_of_help_that_the_list_shows() -> None:
    context = click.Context(cli)
    for name, (_, line) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert (command.help or "").split("\n")[0] == line
        assert name in help_text()


def test_choices_are_those_of_the_protocol() -> None:
    assert run.MODES == MODES
    assert get_args(OnLimit) == run.ON_LIMIT
    assert get_args(CompletionStyle) == run.COMPLETION
    assert get_args(Rung) == run.RUNGS
