"""Every option and argument of every command with extreme numbers, odd text and odd bytes: a clear error or accepted,
never an internal error (S-20). All in this process: parsing for all of them, the whole command for those that neither
ask a model nor stay."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from tests.faults.chance import SOAK
from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.cli.group import cli, invoke

NUMBERS = ("9" * 30, "-" + "9" * 30, "-1", "0", "1e400", "nan", "0x10", "٣", "1_0", "9" * 5_000)
TEXTS = ("", "x" * 5_000, "bad \udcff byte", "two\nlines \x1b[31m\u202e", "9" * 30, "-", "../..", "%s {0} 🧵", " ")
"""\\udcff is a byte that is no UTF-8, as Python reads it from the command line."""
MANY = len(TEXTS) if SOAK else 5
NEEDED = {
    "rules add": ["--allow"],
    "mcp add": ["--url", "http://localhost:1/mcp"],
    "run": ["--model", "scripted:s.toml"],
}
"""Options that a command needs beside its arguments."""
WORKING = {
    "", "race", "resume", "try", "web", "serve", "copilot", "acp", "worker", "eval", "models", "models fetch",
    "doctor", "doctor sandbox", "demo", "replay", "fork", "world enter", "mcp serve", "mcp test", "mcp login",
}  # fmt: skip
"""Commands that ask a model that is none of ours, start programs or do not end by themselves: only parsed."""


def all_commands() -> Iterator[tuple[str, click.Command]]:
    def below(command: click.Command, names: list[str]) -> Iterator[tuple[str, click.Command]]:
        yield " ".join(names), command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from below(inner, [*names, name])

    return below(cli, [])


def lines_for(name: str, command: click.Command, values: int) -> Iterator[list[str]]:
    """The words behind the command's name: each option and each argument in turn with each odd value."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    usual = ["last" for each in arguments if each.required]
    for parameter in command.params:
        is_number = isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
        for value in NUMBERS if is_number else TEXTS[:values]:
            if isinstance(parameter, click.Argument):
                at = arguments.index(parameter)
                yield [*NEEDED.get(name, ()), "--", *(["last"] * at), value, *usual[at + 1 :]]
            elif isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count:
                yield [*NEEDED.get(name, ()), parameter.opts[0], *([value] * parameter.nargs), "--", *usual]


def test_every_option_is_parsed_or_refused_in_words() -> None:
    count = 0
    for name, command in all_commands():
        for words in lines_for(name, command, len(TEXTS)):
            count += 1
            with suppress(click.UsageError):  # its message is tested below
                command.make_context(name, list(words)).close()
    assert count > 1_500


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a chat that changed a file."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    (project / "s.toml").write_text('[[turn]]\ntext = "Done."\n')

    async def prepare() -> None:
        model = ScriptedModel([Call("write_file", path="f", content="x\n"), Say("Done.")])
        async with Agent(SqliteStore(home / "treadle.db"), model=model, home=home) as agent:
            async for _ in agent.chat(root=str(project)).send("Go."):
                pass

    home.mkdir()
    asyncio.run(prepare())
    monkeypatch.setenv("TREADLE_HOME", str(home))
    monkeypatch.chdir(project)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield home


COMMANDS = [name for name, command in all_commands() if command.params and name not in WORKING]


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("home")
def test_no_odd_value_is_an_internal_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = dict(all_commands())[name]
    failures = []
    for words in lines_for(name, command, MANY):
        code = invoke([*name.split(), *words])
        output = capsys.readouterr()
        clear = code == 0 or output.err.strip()
        if not clear or "internal error" in output.err or "Traceback" in output.err:
            failures.append((" ".join(words)[:80], code, output.err[-300:]))
    assert failures == []
