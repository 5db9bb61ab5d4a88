"""Drawn blocks are harmless, folded, and readable without colours."""

import io

import pytest
from rich.console import Console

from treadle.base.types import CallKey
from treadle.frontends.presentation.conversation import (
    AnswerBlock,
    AnyBlock,
    Calls,
    Checklist,
    EmptyBlock,
    Note,
    ShownCall,
    ThoughtBlock,
    UserBlock,
)
from treadle.frontends.presentation.notices import MINUS
from treadle.frontends.tui.card import draw_requested_action, list_choices
from treadle.frontends.tui.drawing import Look, draw_block
from treadle.frontends.tui.marks import PLAIN, Marks, convert_to_ascii
from treadle.frontends.tui.transcript import CODE_LINES, find_settled_part, split_code_parts
from treadle.protocol.content import PlanStep
from treadle.protocol.events import DiffStat, ExecutionComplete, OpenAction

EVIL = "\x1b[31mred\x1b]0;title\x07\u202e"
DIFF = "edited a.py\n@@ -1,2 +1,3 @@\n-x = 1\n+x = 2\n+y = 3\n z = 4"


def text(block: AnyBlock, *, width: int = 80, unfolded: bool = False, marks: Marks | None = None) -> str:
    return lines(draw_block(block, Look(width, 10_000, unfolded=unfolded, marks=marks or Marks())), width=width)


def lines(*renderables: object, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    for each in renderables:
        console.print(each)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def make_finished_call(name: str, summary: str = "", **more: object) -> ShownCall:
    key = CallKey(f"1.{summary}")
    result = ExecutionComplete(key, True, **more)  # type: ignore[arg-type]
    return ShownCall(key=key, name=name, summary=summary, effect="read", completion=result)


@pytest.mark.parametrize(
    "block",
    [
        UserBlock(text=EVIL),
        UserBlock(text=EVIL, source="check"),
        AnswerBlock(text=EVIL),
        AnswerBlock(text=f"```python\n{EVIL}\n```"),
        ThoughtBlock(text=EVIL, live=True),
        Note(text=EVIL),
        Note(text=EVIL, mark="done"),
        Calls(calls=(ShownCall(key=CallKey("1"), name=EVIL, summary=EVIL, output=EVIL),)),
        Calls(calls=(make_finished_call(EVIL, EVIL, result=EVIL, result_summary=EVIL),)),
        Checklist(steps=(PlanStep(EVIL, "done"),)),
    ],
)
def test_nothing_foreign_reaches_the_terminal(block: AnyBlock) -> None:  # S-12
    for unfolded in (False, True):
        screen_text = text(block, unfolded=unfolded)
        assert "\x1b" not in screen_text
        assert "\u202e" not in screen_text
        assert "\x07" not in screen_text


def test_reads_fold_into_one_line_and_unfold() -> None:
    calls = [make_finished_call("read_file", f"{letter}.py") for letter in "abcdef"] + [
        make_finished_call("grep_search", "x")
    ] * 3
    block = Calls(calls=tuple(calls))
    assert "read 6 files, searched 3 times" in text(block)
    assert text(block).count("\n") == 1
    assert text(block, unfolded=True).count("\n") == 9


def test_a_failed_call_is_never_folded_away() -> None:
    failed = ShownCall(
        key=CallKey("1"),
        name="read_file",
        summary="b",
        effect="read",
        completion=ExecutionComplete(CallKey("1"), False),
    )
    screen_text = text(
        Calls(calls=(make_finished_call("read_file", "a"), failed, make_finished_call("read_file", "c")))
    )
    assert "✗ read_file b" in screen_text


def test_an_edit_shows_its_diff_with_numbers() -> None:  # W-04
    call = make_finished_call("edit_file", "a.py", result=DIFF, diff_stat=DiffStat(2, 1))
    screen_text = text(Calls(calls=(call,)))
    assert f"+2 {MINUS}1" in screen_text
    assert f"1 {MINUS} x = 1" in screen_text
    assert "2 + y = 3" in screen_text


def test_a_running_command_shows_its_last_lines_and_its_time() -> None:
    output = "".join(f"line {number}\n" for number in range(20))
    screen_text = text(
        Calls(calls=(ShownCall(key=CallKey("1"), name="run_command", summary="make", began_ms=1_000, output=output),))
    )
    assert "run_command make 9 s" in screen_text
    assert "line 19" in screen_text
    assert "line 13" not in screen_text


def test_thinking_is_one_line_with_its_duration() -> None:
    screen_text = text(ThoughtBlock(text="one\ntwo\nthree", began_ms=1_000, ended_ms=5_000))
    assert screen_text.strip() == "✻ thought for 4 s"
    assert "three" in text(ThoughtBlock(text="one\ntwo\nthree"), unfolded=True)


def test_a_terminal_without_unicode_gets_other_signs() -> None:
    screen_text = text(Calls(calls=(make_finished_call("read_file", "a", result_summary="1 line"),)), marks=PLAIN)
    assert screen_text.isascii()


def test_what_is_gone_takes_no_room() -> None:
    assert draw_block(EmptyBlock(), Look(80, 0, marks=Marks())) is None


def test_narrow_screens_break_words_nowhere() -> None:
    screen_text = text(AnswerBlock(text="a sentence of several words that is wider than the screen"), width=20)
    assert all(len(line) <= 20 for line in screen_text.splitlines())
    assert "sentence" in screen_text
    assert "several" in screen_text


def test_a_change_of_a_file_is_shown_once() -> None:
    action = OpenAction(
        "1",
        "permission",
        name="write_file",
        text="write_file\n  path: new.py\n  content:\n    a = 1\n    \n    b = 2\n\n"
        "--- /dev/null\n+++ new.py\n@@ -0,0 +1,3 @@\n+a = 1\n+\n+b = 2",
    )
    screen_text = lines(*draw_requested_action(action, Look(80, 0, marks=Marks())))
    assert screen_text.count("a = 1") == 1
    assert "new file new.py" in screen_text


def test_a_command_is_shown_with_all_its_arguments() -> None:
    action = OpenAction("1", "permission", name="run_command", text="run_command\n  command: make\n  background: true")
    screen_text = lines(*draw_requested_action(action, Look(80, 0, marks=Marks())))
    assert "$ make" in screen_text
    assert "background: true" in screen_text
    assert [key for key, _ in list_choices(action)] == ["y", "n", "f", "e"]


def test_what_is_settled_of_a_stream_is_drawn_once_and_ends_at_a_paragraph() -> None:
    text = "one\n\ntwo\n\n```\na\n\nb\n```\n\nthree\n- item\n\n- more\n\nlast line\nand"
    parts = {find_settled_part(text[:end]) for end in range(len(text) + 1)}
    assert parts == {"", "one\n\n", "one\n\ntwo\n\n```\na\n\nb\n```\n\n", text[: text.index("last")]}


def test_long_code_that_is_coming_is_drawn_in_parts_and_looks_the_same() -> None:
    code = [f"x = {number}" if number % 7 else "" for number in range(4 * CODE_LINES)]
    for end in range(1, len(code), 5):
        coming = "Look:\n```python\n" + "\n".join(code[:end])
        parts = split_code_parts(coming)
        assert [line.strip() for part in parts for line in text(AnswerBlock(text=part)).strip("\n").split("\n")] == [
            line.strip() for line in text(AnswerBlock(text=coming)).strip("\n").split("\n")
        ]
        assert parts[:-1] == split_code_parts(f"{coming}\nmore\nand more")[: len(parts) - 1], "what is settled stays"
    assert len(split_code_parts(coming)) > 3
    assert split_code_parts(f"{coming}\n```\nThat was it.") == [f"{coming}\n```\nThat was it."]


def test_without_unicode_borders_are_plain_and_as_wide_as_before() -> None:
    screen_text = convert_to_ascii("╭── ✻ 日本 …▌")
    assert screen_text == "+-- ? ???? ~|"
    assert convert_to_ascii("as it is") == "as it is"
