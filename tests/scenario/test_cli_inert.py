"""A chat in which everything is hostile, through the real command line on a pseudo-terminal, in a pipe and as JSON: no
byte of it makes a terminal do anything (S-12, S-22)."""

import shlex

import pytest

from tests.hostile_text import HOSTILE, LONG, check_inert
from tests.scenario.command_line import CommandLine
from tests.scenario.test_cli_terminal import screen

pytestmark = pytest.mark.thorough(one_of=8)

TEXT = HOSTILE.replace("\x00", "")  # which is in no argument and in no name
NAME = "a\x1b[31mred\x1b]0;title\x07\x7f\x9b1m\u202e\u2066\u200b\u2028\ue000.txt"


def quote_toml(text: str) -> str:
    """A string of TOML."""
    letters = (each if each.isprintable() and each not in '"\\' else f"\\U{ord(each):08x}" for each in text)
    return f'"{"".join(letters)}"'


SCRIPT = f"""
[[turn]]
think = {quote_toml(TEXT)}
text = {quote_toml(TEXT + LONG)}
[[turn.call]]
name = {quote_toml(NAME)}
args = {{ path = {quote_toml(TEXT)} }}
[[turn.call]]
name = "write_file"
args = {{ path = {quote_toml(NAME)}, content = {quote_toml(TEXT)} }}
[[turn]]
[[turn.call]]
name = "run_command"
args = {{ command = {quote_toml("printf '%s' " + shlex.quote(TEXT) + "; cat *; exit 3")} }}
[[turn.call]]
name = "run_command"
args = {{ command = {quote_toml("cat *; : " + shlex.quote(NAME))}, background = true }}
[[turn]]
[[turn.call]]
name = "update_plan"
args.steps = [{{ text = {quote_toml(TEXT)}, status = "in_progress" }}]
[[turn]]
text = {quote_toml(TEXT)}
"""
COMMANDS = [
    ["show", "last"],
    ["show", "last", "--all", "--short"],
    ["chats"],
    ["diff", "last"],
    ["review", "last"],
    ["jobs", "--all"],
    ["jobs", "last", "--tail", "2.1"],
    ["skills"],
    ["config"],
]


@pytest.fixture
def hostile_cli(cli: CommandLine) -> CommandLine:
    skill = cli.home / "skills" / "evil"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: evil\ndescription: {NAME}\n---\n{TEXT}", encoding="utf-8")
    return cli


def check(screen_text: str) -> None:
    check_inert(screen_text.replace("\r\x1b[2K", "").replace("\r\n", "\n"), styled=True)


@pytest.mark.thorough(one_of=8)
def test_nothing_of_a_hostile_chat_reaches_the_terminal_alive(hostile_cli: CommandLine) -> None:  # S-12, S-22
    cli, env = hostile_cli, {"PAGER": "cat", "LINES": "100000"}
    model = cli.script(SCRIPT)
    screen_text = screen(cli, "run", TEXT, "--model", model, "--auto-approve-commands", env=env)
    check(screen_text)
    assert "\\x1b]0;title\\x07" in screen_text
    for path in cli.project.iterdir():  # an existing file is not overwritten unread
        path.unlink()
    piped = cli("run", TEXT, "--model", model, "--auto-approve-commands")
    check_inert(piped.out)
    check_inert(piped.err)
    for command in COMMANDS:
        check(screen(cli, *command, env=env))
        result = cli(*command)
        assert result.code == 0, result.err
        check_inert(result.out)
        check_inert(result.err)
    for command in (["show", "last"], ["diff", "last"], ["jobs", "--all"]):
        result = cli(*command, "--json")
        check_inert(result.out)
        assert "\\u202e" in result.out, command
    assert cli("jobs", "--stop").code == 0


@pytest.mark.parametrize(
    "words", [[NAME], ["show", NAME], ["run", "x", f"--{NAME}"], ["chats", NAME], ["undo", "x", NAME]]
)
def test_an_error_says_a_hostile_argument_harmlessly(cli: CommandLine, words: list[str]) -> None:  # S-12
    result = cli(*words)
    assert result.code != 0
    check_inert(result.out)
    check_inert(result.err)
