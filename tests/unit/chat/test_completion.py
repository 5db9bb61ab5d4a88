"""The marker (L-15), the nudge of autopilot (L-14), and when a run needs a summary (L-17)."""

import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.chat.completion import (
    CONTINUE_TEXT,
    MARKER,
    MarkerFilter,
    choose_continuation,
    is_marker_used,
    needs_summary,
    strip_marker,
    strip_thinking,
)
from treadle.protocol.content import Thinking
from treadle.protocol.options import ChatOptions, CompletionStyle, Rung

LOWER = MARKER.lower()
PIECES = st.lists(
    st.sampled_from(["", "a", "[", "task", "TASK", "_COMPLETE", "]", MARKER, LOWER, MARKER[:7], LOWER[:9], " ok "]),
    max_size=12,
)
_ENDING = re.compile(
    "(?:" + "|".join(re.escape(MARKER[:size]) for size in range(len(MARKER) - 1, 0, -1)) + r")+\Z", re.I
)


def plainly(text: str) -> str:
    """Remove the markers from a text in the simplest way: the time grows with the square of the text."""
    marker = re.compile(re.escape(MARKER), re.I)
    while marker.search(text):
        text = marker.sub("", text, count=1)
    return _ENDING.sub("", text)


@given(PIECES)
def test_no_part_of_a_marker_is_ever_shown(pieces: list[str]) -> None:
    gate = MarkerFilter()
    output = "".join(gate.feed(piece) for piece in pieces) + gate.end()
    stripped_text, has_marker = strip_marker("".join(pieces))
    assert output == plainly("".join(pieces))
    assert gate.found == has_marker
    assert output.rstrip() == stripped_text.rstrip()


@given(st.text(alphabet="ab[]Tt \n", max_size=40), st.integers(1, 5))
def test_other_text_passes_whole_whatever_its_pieces(text: str, size: int) -> None:
    gate = MarkerFilter()
    output = "".join(gate.feed(text[at : at + size]) for at in range(0, len(text), size)) + gate.end()
    assert output == plainly(text)


def test_a_text_of_nothing_but_beginnings_is_looked_at_once() -> None:
    """It took a time that grew with the square of the text: half a minute for this one."""
    gate = MarkerFilter()
    assert [gate.feed("[" * 100) for _ in range(2_000)] == [""] * 2_000
    assert gate.feed("x") == "[" * 200_000 + "x"
    assert strip_marker("[task" * 50_000) == ("", False)
    nested = "[TASK_" * 20_000 + "COMPLETE]" * 20_000
    assert strip_marker(nested) == ("", True)


@pytest.mark.parametrize(
    ("text", "visible_text", "has_marker"),
    [
        (f"All done. {MARKER}", "All done.", True),
        (f"{MARKER} trailing", " trailing", True),
        ("All done. [TASK_COM", "All done. ", False),
        ("a [list] of things", "a [list] of things", False),
        (f"x{MARKER}{MARKER}", "x", True),
        ("All done. [Task_Complete]", "All done.", True),
        ("All done. [task_complete", "All done. ", False),
        ("", "", False),
    ],
)
def test_whole_texts(text: str, visible_text: str, has_marker: bool) -> None:
    assert strip_marker(text) == (visible_text, has_marker)


def test_a_marker_that_appears_when_another_is_taken_out_is_taken_out_too() -> None:
    assert strip_marker(f"{MARKER[:5]}{MARKER}{MARKER[5:]}")[0] == ""


def test_thinking_is_stripped_but_not_what_was_signed() -> None:  # M-10
    plain, signed = Thinking("So [task_complete]"), Thinking("So [TASK_COMPLETE]", opaque="{}")
    assert strip_thinking([plain, signed]) == ((Thinking("So"), signed), True)
    assert strip_thinking([signed]) == ((signed,), False)
    assert strip_thinking([Thinking(MARKER)]) == ((), True)


@pytest.mark.parametrize(
    ("completion", "rung", "native", "marked"),
    [
        ("", "", True, False),
        ("", "", False, True),
        ("", "text", True, True),
        ("", "native", False, False),
        ("", "plain", False, False),
        ("tool", "text", False, False),
        ("marker", "", True, True),
        ("marker", "plain", True, True),
    ],
)
def test_the_marker_is_for_models_on_the_text_rung(
    completion: CompletionStyle | Literal[""], rung: Rung | Literal[""], native: bool, marked: bool
) -> None:
    assert is_marker_used(ChatOptions(completion=completion, rung=rung), native) == marked


def test_the_nudge_is_configurable() -> None:
    state = chat(make_message(), *answer(1, text="hm"), options=ChatOptions(mode="autopilot"))
    assert state.run is not None
    assert choose_continuation(state, state.run) == CONTINUE_TEXT
    custom_state = chat(
        make_message(), *answer(1, text="hm"), options=ChatOptions(mode="autopilot", continue_text="On!")
    )
    assert custom_state.run is not None
    assert choose_continuation(custom_state, custom_state.run) == "On!"


def test_only_autopilot_is_nudged() -> None:
    state = chat(make_message(), *answer(1, text="hm"))
    assert state.run is not None
    assert choose_continuation(state, state.run) == ""


def test_a_summary_only_after_silent_work() -> None:
    for events, options, is_expected in (
        ([*answer(1, "a"), *ran(1), *answer(2)], ChatOptions(), True),
        ([*answer(1, "a"), *ran(1), *answer(2)], ChatOptions(summarize=False), False),
        ([*answer(1, "a"), *ran(1), *answer(2, text="did it")], ChatOptions(), False),
        ([*answer(1)], ChatOptions(), False),
    ):
        state = chat(make_message(), *events, options=options)
        assert state.run is not None
        assert needs_summary(state, state.run) is is_expected
