"""Output on a real terminal, for which a pseudo-terminal stands in."""

import os
import pty
import re
from collections.abc import Mapping

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.test_cli_dialogue import person

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = """
[[turn]]
think = "Hm."
text = "Let me \\u001b[31mlook."
call = [{ name = "run_command", args = { command = "echo one; exit 3" } }]
[[turn]]
[[turn.call]]
name = "update_plan"
args.steps = [{ text = "look", status = "done" }, { text = "say", status = "in_progress" }]
[[turn]]
text = "Done."
"""
OWN = re.compile(r"\x1b\[(?:0|[1-9]\d?(?:;\d+)*)m|\r\x1b\[2K")
"""The only sequences that Treadle itself writes: colours, and the end of the passing line."""


def screen(cli: CommandLine, *arguments: str, env: Mapping[str, str]) -> str:
    leader, follower = pty.openpty()
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
    process = cli.start(*arguments, env={"TERM": "xterm", **env}, **ends)
    os.close(follower)
    output = bytearray()
    try:
        while data := os.read(leader, 65_536):
            output += data
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(leader)
    assert process.wait() == 0
    return output.decode()


def test_colours_and_a_passing_line_and_nothing_foreign(cli: CommandLine) -> None:  # S-12
    screen_text = screen(cli, "run", "Look.", "--model", cli.script(SCRIPT), env={})
    assert "\x1b[31m✗\x1b[0m" in screen_text
    assert "waiting for the model …" in screen_text
    assert "● run_command echo one; exit 3 …" in screen_text
    assert "Let me \\x1b[31mlook." in screen_text
    assert "✓ look" in screen_text
    assert "\x1b" not in OWN.sub("", screen_text)


def test_no_color_means_no_colour(cli: CommandLine) -> None:
    screen_text = screen(cli, "run", "Look.", "--model", cli.script(SCRIPT), env={"NO_COLOR": "1"})
    assert "\x1b" not in screen_text.replace("\r\x1b[2K", "")


def test_a_dumb_terminal_gets_plain_lines(cli: CommandLine) -> None:
    screen_text = screen(cli, "run", "Look.", "--model", cli.script(PROSE), env={"TERM": "dumb"})
    assert "\x1b" not in screen_text
    assert "Done." in screen_text
    assert "which has to be wrapped at\r\nthe edge of eighty columns." in screen_text


def test_a_locale_without_the_letters_gets_others(cli: CommandLine) -> None:
    env = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    script = SCRIPT.replace("Done.", "Fertig, schön.")
    run_result = cli("run", "Look.", "--model", cli.script(script), env=env)
    assert run_result.code == 0
    assert "x run_command echo one; exit 3 ... exit 3, 1 line" in run_result.out
    assert "Fertig, sch\\xf6n." in run_result.out


PROSE = """
[[turn]]
text = "The **first** words of a long paragraph, with `code`, which has to be wrapped at the edge of eighty columns.\\n"
[[turn.call]]
name = "write_file"
args = { path = "a.txt", content = "one\\n" }
[[turn]]
text = "Done."
"""


def test_markdown_is_shown_and_words_stay_whole(cli: CommandLine) -> None:  # U-03
    screen_text = screen(cli, "run", "Go.", "--model", cli.script(PROSE), env={})
    assert "The \x1b[1mfirst\x1b[0m words of a long paragraph, with \x1b[36mcode\x1b[0m, which has" in screen_text
    assert "to be wrapped at the\r\nedge of eighty columns." in screen_text
    assert "\x1b" not in OWN.sub("", screen_text)
    piped = cli("run", "Go.", "--model", cli.script(PROSE))
    assert "The **first** words of a long paragraph, with `code`, which has to be wrapped at the edge of" in piped.out


def test_what_was_approved_is_not_shown_again(cli: CommandLine) -> None:  # U-03
    with person(cli, "run", "Go.", "--model", cli.script(PROSE), "--mode", "confirm", env={"TERM": "xterm"}) as one:
        one.sees("[n]o")
        assert one.seen.count("+one") == 1
        assert "\x1b[32m  +one" in one.seen
        one.presses(b"y")
        one.sees("Done.")
        assert one.leaves() == 0
        assert one.seen.count("+one") == 1


def test_a_screen_reader_gets_one_line_after_the_other(cli: CommandLine) -> None:
    """The whole conversation as plain text, on any terminal: nothing is drawn over, words stay whole."""
    words = ("--plain", "--model", cli.script(PROSE), "--mode", "confirm")
    with person(cli, *words, env={"TERM": "xterm"}) as one:
        one.sees("you: ")
        one.types("Go.")
        one.sees("[n]o")
        assert "which has to be wrapped at\r\nthe edge" in one.seen
        one.presses(b"y")
        one.sees("you: ")
        assert (cli.project / "a.txt").read_text() == "one\n"
        one.types("/undo")
        one.sees("you: ")
        assert "undone: 1 change" in one.seen
        assert not (cli.project / "a.txt").exists()
        for typed, answer in (
            ("/help", "/status: chat, model, mode and project"),
            ("/status", "mode confirm"),
            ("/mode ask", "The mode is ask now."),
            ("/permissions", "no rules"),
            ("/nope", "there is no command /nope"),
        ):
            one.types(typed)
            one.sees(answer)
            one.sees("you: ")
        assert "\x1b" not in one.seen
        one.types("/exit")
        one.sees("come back: treadle --plain --resume c_")
        assert one.leaves() == 0
