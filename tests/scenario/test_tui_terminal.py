"""The app in a real terminal: a person's screen and keys, with a scripted model and real files (U-01 to U-04)."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.tmux import Terminal, needs_tmux
from treadle.frontends.tui.marks import Marks

pytestmark = [pytest.mark.thorough(one_of=8), needs_tmux]
EDIT = """[[turn]]
text = "I change it."
call = [{ name = "edit_file", args = { path = "a.py", old_str = "1", new_str = "2" } }]
"""
PROMPT = Marks().prompt
DONE = '[[turn]]\ntext = "All **done**."\n'


def command(line: str, *more: str) -> str:
    return f'[[turn]]\ncall = [{{ name = "run_command", args = {{ command = "{line}" {" ".join(more)} }} }}]\n'


@pytest.fixture
def terminal(cli: CommandLine, tmp_path: Path) -> Iterator[Terminal]:
    (cli.project / "a.py").write_text("x = 1\n")
    new_terminal = Terminal(tmp_path, cli.environment, 120, 34)
    yield new_terminal
    new_terminal.close()


def begin(terminal: Terminal, cli: CommandLine, script: str, *arguments: str) -> None:
    terminal.start("--model", cli.script(script), *arguments, cwd=cli.project)
    terminal.wait("What should I work on?")


def say(terminal: Terminal, text: str) -> None:
    terminal.type(text)
    terminal.wait(text)
    terminal.keys("Enter")


def test_ask_stream_and_leave(terminal: Terminal, cli: CommandLine) -> None:
    begin(terminal, cli, EDIT + DONE)
    say(terminal, "Fix it.")
    screen_text = terminal.wait("All done.", "done · 2 turns", "x = 2", "+1")
    assert "**" not in screen_text
    terminal.quit()
    # The end of the conversation stays in the scrollback.
    terminal.wait("x = 2", "All done.", "done · 2 turns", "Come back: treadle --resume c_", "ended with 0")
    assert (cli.project / "a.py").read_text() == "x = 2\n"


def test_one_key_approves_and_what_was_typed_before_does_not(terminal: Terminal, cli: CommandLine) -> None:  # S-08
    begin(terminal, cli, command("echo yes > made.txt") + DONE, "--mode", "confirm")
    say(terminal, "Go.")
    terminal.type("yyyy")  # in the buffer before the card: it is text, and no answer
    terminal.wait("needs your approval", "yyyy")
    assert not (cli.project / "made.txt").exists()
    terminal.keys("C-u")
    terminal.wait("needs your approval", absent_text="yyyy")
    _answer(terminal, "y", "All done.")
    assert (cli.project / "made.txt").read_text() == "yes\n"


def _answer(terminal: Terminal, key: str, expected_text: str) -> None:
    """Press a key when the card takes one, which it does not before it was seen for a moment."""
    terminal.wait("needs your approval", "yes, once")
    terminal.keys(key)
    terminal.wait(expected_text)


def test_refuse_and_say_why(terminal: Terminal, cli: CommandLine) -> None:
    begin(terminal, cli, command("echo no > made.txt") + DONE, "--mode", "confirm")
    say(terminal, "Go.")
    terminal.wait("needs your approval")
    _answer(terminal, "f", "why not?")
    say(terminal, "rather not")
    terminal.wait("not allowed: rather not", "All done.")
    assert not (cli.project / "made.txt").exists()


def test_edit_a_command_before_it_runs(terminal: Terminal, cli: CommandLine) -> None:
    begin(terminal, cli, command("echo one > made.txt") + DONE, "--mode", "confirm")
    say(terminal, "Go.")
    terminal.wait("needs your approval")
    _answer(terminal, "e", "run this instead")
    terminal.wait(f"{PROMPT} echo one > made.txt")
    terminal.keys("C-u")
    say(terminal, "echo two > made.txt")
    terminal.wait("All done.")
    assert (cli.project / "made.txt").read_text() == "two\n"


def test_esc_stops_a_command_and_the_chat_goes_on(terminal: Terminal, cli: CommandLine) -> None:  # L-07
    begin(terminal, cli, command("echo begun; sleep 300") + DONE)
    say(terminal, "Go.")
    terminal.wait("│ begun")
    terminal.keys("Escape")
    terminal.wait("interrupted ·", "│ begun")
    (completion,) = cli("export", "last").of("tool.execution_complete")
    assert completion["result"].startswith("begun\n")
    say(terminal, "Then end it.")
    terminal.wait("All done.")


def test_queue_steer_and_answer_a_question(terminal: Terminal, cli: CommandLine) -> None:  # L-08
    asks = '[[turn]]\ncall = [{ name = "ask_user", args = { question = "Which one?", options = ["red", "blue"] } }]\n'
    begin(terminal, cli, asks + DONE + '[[turn]]\ntext = "And the second."\n')
    say(terminal, "Go.")
    terminal.wait("Which one?", "1 red", "2 blue")
    say(terminal, "/queue")
    terminal.wait("nothing here")
    terminal.keys("Escape")
    terminal.wait("Which one?", absent_text="nothing here")
    terminal.wait("a number, or your own words")
    terminal.keys("2")
    terminal.wait("All done.")
    say(terminal, "More.")
    terminal.wait("And the second.")


def test_kill_the_app_in_a_command_and_go_on_with_one_key(terminal: Terminal, cli: CommandLine, tmp_path: Path) -> None:
    script = command("echo begun; sleep 2; echo over > made.txt") + DONE
    begin(terminal, cli, script)
    say(terminal, "Go.")
    terminal.wait("│ begun")
    os.kill(terminal.pid(), signal.SIGKILL)
    terminal.wait("ended with 137")
    second_terminal = Terminal(tmp_path / "home", cli.environment, 120, 34)
    try:
        second_terminal.start("--continue", cwd=cli.project)
        second_terminal.wait("this run was cut off")
        second_terminal.keys("Enter")
        second_terminal.wait("All done.", "done · ")
    finally:
        second_terminal.close()
    assert (cli.project / "made.txt").read_text() == "over\n"


def test_two_terminals_on_one_chat(terminal: Terminal, cli: CommandLine, tmp_path: Path) -> None:  # S-08, U-04
    begin(terminal, cli, command("echo yes > made.txt") + DONE, "--mode", "confirm")
    say(terminal, "Go.")
    terminal.wait("needs your approval")
    second_terminal = Terminal(tmp_path / "home", cli.environment, 90, 30)
    try:
        second_terminal.start("--continue", cwd=cli.project)
        second_terminal.wait("needs your approval")
        _answer(second_terminal, "y", "All done.")
        terminal.wait("answered elsewhere", "All done.", absent_text="needs your approval")
    finally:
        second_terminal.close()


def test_undo_from_the_review_and_back_by_redo(terminal: Terminal, cli: CommandLine) -> None:  # W-03
    begin(terminal, cli, EDIT + DONE)
    say(terminal, "Fix it.")
    terminal.wait("All done.", "done · 2 turns")
    terminal.keys("F2")
    terminal.wait("Changes", "M a.py")
    terminal.keys("Enter")
    terminal.wait("k keep, u undo, Esc back")
    terminal.keys("u")
    terminal.wait("undone: 1 change")
    assert (cli.project / "a.py").read_text() == "x = 1\n"
    terminal.keys("Escape")
    terminal.wait("All done.", absent_text="Changes")
    say(terminal, "/redo")
    terminal.wait("redone: 1 change")
    assert (cli.project / "a.py").read_text() == "x = 2\n"


def test_go_back_to_a_message(terminal: Terminal, cli: CommandLine) -> None:  # W-03
    begin(terminal, cli, EDIT + DONE + DONE)
    say(terminal, "Fix it.")
    terminal.wait("All done.", "done · 2 turns")
    say(terminal, "/rewind")
    terminal.wait("Go back to before", "Fix it.")
    terminal.keys("Enter")
    terminal.wait("conversation and files", "M a.py")
    terminal.keys("Enter")
    terminal.wait(f"{PROMPT} Fix it.", "taken back: 1 change", absent_text="All done.")
    assert (cli.project / "a.py").read_text() == "x = 1\n"


def test_stop_a_background_command(terminal: Terminal, cli: CommandLine) -> None:  # S-14
    script = command("echo serving; sleep 300", ", background = true") + DONE
    begin(terminal, cli, script)
    say(terminal, "Serve.")
    terminal.wait("All done.", "in the background")
    say(terminal, "/jobs")
    terminal.wait("Background commands", "running")
    terminal.keys("s")
    terminal.wait("stopped", absent_text="running  ")


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (300, 100)])
def test_every_size(cli: CommandLine, tmp_path: Path, width: int, height: int) -> None:
    (cli.project / "a.py").write_text("x = 1\n")
    terminal = Terminal(tmp_path, cli.environment, width, height)
    try:
        terminal.start("--model", cli.script(EDIT + DONE), "Fix it now.", cwd=cli.project)
        terminal.wait("All done.", PROMPT)
    finally:
        terminal.close()


def test_without_a_terminal_and_without_a_text_it_says_how_to_go_on(cli: CommandLine) -> None:
    result = cli()
    assert result.code == 2
    assert "Usage: treadle run" in result.err
    assert "or pipe it in" in result.err
    result = cli("rnu", "x")
    assert result.code == 2
    assert "did you mean 'run'" in result.err


def test_grant_the_network_once(terminal: Terminal, cli: CommandLine) -> None:  # S-07
    begin(terminal, cli, command("curl -s https://example.invalid; echo over > made.txt") + DONE)
    say(terminal, "Go.")
    terminal.wait("needs your approval", "with network, once")
    _answer(terminal, "w", "All done.")
    assert (cli.project / "made.txt").read_text() == "over\n"
    permissions = cli("export", "last").of("permission.completed")
    assert [each["decision"] for each in permissions] == ["allow"]


def test_queue_and_steer_while_it_works(terminal: Terminal, cli: CommandLine) -> None:  # L-08
    begin(terminal, cli, command("echo begun; sleep 300") + DONE)
    say(terminal, "Go.")
    terminal.wait("│ begun")
    say(terminal, "then this")
    terminal.wait("1 queued")
    terminal.type("rather so")
    terminal.wait("rather so")
    terminal.keys("C-s")
    terminal.wait("2 queued")
    terminal.keys("Escape")
    terminal.wait("interrupted ·")
    say(terminal, "/queue")
    terminal.wait("Queued messages", "then this", "(steers) rather so")
    terminal.keys("s")  # a stop keeps waiting messages, until they are sent
    terminal.wait("All done.", f"{PROMPT} then this", f"{PROMPT} rather so", absent_text="Queued messages")
    messages = [each["content"] for each in cli("export", "last").of("user.message")]
    assert sorted(messages) == ["Go.", "rather so", "then this"]


def test_undo_one_hunk(terminal: Terminal, cli: CommandLine) -> None:  # W-03
    lines = [f"line {number}\n" for number in range(40)]
    (cli.project / "notes.txt").write_text("".join(lines))
    begin(terminal, cli, command("sed -i 's/line 2$/TWO/; s/line 35$/LATE/' notes.txt") + DONE)
    say(terminal, "Change two places.")
    terminal.wait("All done.", "done · ")
    terminal.keys("F2")
    terminal.wait("Changes", "M notes.txt")
    terminal.wait("TWO", "LATE")  # the preview is of what is chosen: the file, its first hunk, its second
    terminal.keys("Down")
    terminal.wait("TWO", absent_text="LATE")
    terminal.keys("Down")
    terminal.wait("LATE", absent_text="TWO")
    terminal.keys("u")
    terminal.wait("undone: 1 change")
    assert (cli.project / "notes.txt").read_text() == "".join(lines).replace("line 2\n", "TWO\n")


def test_the_demo_opens_the_app_and_offers_the_kill(terminal: Terminal, cli: CommandLine) -> None:
    terminal.start("demo", cwd=cli.project)
    terminal.wait("This is the demo", "scripted:demo.toml")
    terminal.quit()
    terminal.wait("See the same run killed with kill -9")
    terminal.type("n")
    terminal.wait("ended with 0")


def test_write_in_an_editor(terminal: Terminal, cli: CommandLine, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "and a line of the editor" >> "$1"\n')
    editor.chmod(0o755)
    terminal.environment["VISUAL"] = str(editor)
    begin(terminal, cli, DONE)
    terminal.type("Mine, ")
    terminal.wait("Mine,")
    terminal.keys("C-g")
    terminal.wait("Mine, and a line of the editor")
    terminal.keys("Enter")
    terminal.wait("All done.")


def test_no_sentence_and_no_paste_answers_in_a_terminal(terminal: Terminal, cli: CommandLine) -> None:  # U-10
    begin(terminal, cli, command("echo yes > made.txt") + DONE, "--mode", "confirm")
    say(terminal, "Go.")
    for text in ("yes please, but first say why", "no, wait", "use the other file", "could you explain?", "1 moment"):
        terminal.wait("needs your approval", "yes, once")
        terminal.type(text)
        terminal.wait(f"{PROMPT} {text}", "needs your approval")
        terminal.keys("C-u")
    for text in ("y", "yes", "n", "c"):
        terminal.wait("needs your approval", "yes, once")
        terminal.paste(text)
        terminal.wait(f"{PROMPT} {text} ", "needs your approval")
        terminal.keys("C-u")
    assert not (cli.project / "made.txt").exists()


@pytest.mark.parametrize("keys", [["M-Enter"], ["C-j"], ["\\", "Enter"], ["S-Enter"]], ids=str)
def test_keys_for_a_new_line(terminal: Terminal, cli: CommandLine, keys: list[str]) -> None:  # U-10
    begin(terminal, cli, DONE)
    terminal.type("first")
    if keys == ["S-Enter"]:
        terminal.type("\x1b[13;2u")  # as terminals with the extended keyboard protocol send it
    else:
        terminal.keys(*keys)
    terminal.type("second")
    screen_text = terminal.wait("first", "second")
    assert "firstsecond" not in screen_text
    terminal.keys("Enter")
    terminal.wait("All done.")
    assert cli("export", "last").of("user.message")[0]["content"] == "first\nsecond"


def test_the_mode_is_cycled_before_the_first_message(terminal: Terminal, cli: CommandLine) -> None:  # U-10
    begin(terminal, cli, DONE, "--mode", "ask")
    terminal.keys("BTab")
    terminal.wait("mode     auto-edit")
    terminal.keys("BTab")
    terminal.wait("mode     review")
    say(terminal, "Go.")
    terminal.wait("All done.", "mode     review")


def test_suspend_and_come_back(terminal: Terminal, cli: CommandLine) -> None:  # U-10
    begin(terminal, cli, DONE)
    terminal.type("a draft")
    terminal.wait(f"{PROMPT} a draft")
    terminal.keys("C-z")
    terminal.until(lambda screen_text: "a draft" not in screen_text, "the shell")
    os.kill(terminal.pid(), signal.SIGCONT)
    terminal.wait(f"{PROMPT} a draft", "What should I work on?")


def test_edit_the_last_message_and_search_the_history(terminal: Terminal, cli: CommandLine) -> None:  # U-10
    begin(terminal, cli, DONE + DONE)
    say(terminal, "The frist message.")
    terminal.wait("All done.", "done · ")
    terminal.keys("Escape", "Escape")
    terminal.wait("edit your last message", f"{PROMPT} The frist message.")
    terminal.keys("C-u")
    say(terminal, "The first message.")
    terminal.wait(f"{PROMPT} The first message.", "done · ", "went back", absent_text="frist")
    terminal.keys("C-r")
    terminal.wait("Messages that you sent before", "The frist message.", "The first message.")
    terminal.type("frist")
    terminal.wait("The frist message.", absent_text="The first message.  ")
    terminal.keys("Enter")
    terminal.wait(f"{PROMPT} The frist message.", absent_text="Messages that you sent before")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("/exit", "ended with 0"), ("/status", "sandbox"), ("/permissions", "Standing rules"), ("/cost", "tokens in")],
)
def test_commands_as_other_agents_call_them(terminal: Terminal, cli: CommandLine, typed: str, expected: str) -> None:
    begin(terminal, cli, DONE)
    say(terminal, typed)
    terminal.wait(expected)


def test_clear_begins_anew(terminal: Terminal, cli: CommandLine) -> None:
    begin(terminal, cli, DONE)
    say(terminal, "Go.")
    terminal.wait("All done.")
    say(terminal, "/clear")
    terminal.wait("What should I work on?", absent_text="All done.")


def test_no_color_sends_no_colour(cli: CommandLine, tmp_path: Path) -> None:  # U-08
    (cli.project / "a.py").write_text("x = 1\n")
    terminal = Terminal(tmp_path, {**cli.environment, "NO_COLOR": "1"}, 120, 34)
    try:
        begin(terminal, cli, EDIT + command("echo yes > made.txt") + DONE, "--mode", "confirm")
        say(terminal, "Go.")
        _answer(terminal, "y", "run_command needs your approval")
        coloured = terminal.screen(escapes=True)
        colours = re.findall(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[\d;]*)?m", coloured)
        assert colours == []
    finally:
        terminal.close()


def test_an_incomplete_answer_is_reported(terminal: Terminal, cli: CommandLine) -> None:  # L-15
    begin(terminal, cli, '[[turn]]\ntext = "Once upon"\nfinish = "length"\n')
    say(terminal, "A story.")
    terminal.wait("Once upon", "reached its output limit before its answer was complete")


def test_the_screen_is_what_a_full_repaint_would_show(terminal: Terminal, cli: CommandLine) -> None:  # U-02
    lines = "\\n".join(f"{number} lines of *text* and `code`, wide 漢字 and 🙂" for number in range(60))
    begin(terminal, cli, f'[[turn]]\ntext = "{lines}"\n' + EDIT + DONE)
    say(terminal, "Go.")
    terminal.wait("59 lines of text")
    say(terminal, "Go on.")
    terminal.wait("done · 2 turns")
    terminal.keys("PPage")
    terminal.wait("40 lines of text", absent_text="done · 2 turns")
    terminal.keys("NPage")
    terminal.wait("done · 2 turns", "M a.py +1 -1")
    old_cells = terminal.settled_cells()
    terminal.keys("C-l")
    terminal.until(lambda _: terminal.cells() == old_cells, "the same screen")


def test_what_is_selected_with_the_mouse_is_copied(terminal: Terminal, cli: CommandLine) -> None:  # U-10
    begin(terminal, cli, DONE)
    say(terminal, "Go.")
    lines = terminal.wait("All done.", "done · ").splitlines()
    row = next(number for number, line in enumerate(lines, 1) if "All done." in line)
    column = lines[row - 1].index("All done.") + 1
    terminal.take_clipboard()
    terminal.type(f"\x1b[<0;{column};{row}M")  # pressed, drawn to the right, released
    terminal.type(f"\x1b[<32;{column + 4};{row}M\x1b[<32;{column + 8};{row}M")
    terminal.type(f"\x1b[<0;{column + 8};{row}m")
    terminal.wait("copied: 9 characters")
    assert terminal.clipboard() == "All done."


def test_in_line_the_conversation_goes_to_the_scrollback(terminal: Terminal, cli: CommandLine) -> None:  # U-08
    begin(terminal, cli, EDIT + command("seq 60 > made.txt; cat made.txt") + DONE, "--inline", "--mode", "confirm")
    say(terminal, "Go.")
    _answer(terminal, "y", "run_command needs your approval")
    _answer(terminal, "y", "All done.")
    terminal.wait("done · ", absent_text="needs your approval")
    say(terminal, "/quit")
    terminal.wait("ended with 0")
    scrollback = terminal.scrollback()
    for text in (f"{PROMPT} Go.", "x = 2", "All done.", "done · 3 turns"):
        assert scrollback.count(text) == 1, scrollback
