"""The marker (L-15), the nudge of autopilot (L-14), and when a run needs a summary (L-17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.chat.logs import answer, chat, ran, said
from treadle.chat.completion import (
    CONTINUE_TEXT,
    MARKER,
    MarkerFilter,
    continuation,
    strip_marker,
    trailing_prefix,
    wants_summary,
)
from treadle.protocol.options import ChatOptions

PIECES = st.lists(st.sampled_from(["", "a", "[", "TASK", "_COMPLETE", "]", MARKER, MARKER[:7], " ok "]), max_size=12)


@given(PIECES)
def test_no_part_of_a_marker_is_ever_shown(pieces: list[str]) -> None:
    gate = MarkerFilter()
    shown = "".join(gate.feed(piece) for piece in pieces) + gate.end()
    whole, found = strip_marker("".join(pieces))
    assert MARKER not in shown
    assert trailing_prefix(shown) == 0
    assert gate.found == found
    assert shown.rstrip() == whole.rstrip()


@given(st.text(alphabet="ab[]T \n", max_size=40), st.integers(1, 5))
def test_other_text_passes_whole_whatever_its_pieces(text: str, size: int) -> None:
    gate = MarkerFilter()
    shown = "".join(gate.feed(text[at : at + size]) for at in range(0, len(text), size)) + gate.end()
    assert shown == text[: len(text) - trailing_prefix(text)]


@pytest.mark.parametrize(
    ("text", "shown", "found"),
    [
        (f"All done. {MARKER}", "All done.", True),
        (f"{MARKER} trailing", " trailing", True),
        ("All done. [TASK_COM", "All done. ", False),
        ("a [list] of things", "a [list] of things", False),
        (f"x{MARKER}{MARKER}", "x", True),
        ("", "", False),
    ],
)
def test_whole_texts(text: str, shown: str, found: bool) -> None:
    assert strip_marker(text) == (shown, found)


def test_a_marker_that_appears_when_another_is_taken_out_is_taken_out_too() -> None:
    assert strip_marker(f"{MARKER[:5]}{MARKER}{MARKER[5:]}")[0] == ""


def test_the_nudge_is_configurable() -> None:
    state = chat(said(), *answer(1, text="hm"), options=ChatOptions(mode="autopilot"))
    assert state.run is not None
    assert continuation(state, state.run) == CONTINUE_TEXT
    own = chat(said(), *answer(1, text="hm"), options=ChatOptions(mode="autopilot", continue_text="On!"))
    assert own.run is not None
    assert continuation(own, own.run) == "On!"


def test_only_autopilot_is_nudged() -> None:
    state = chat(said(), *answer(1, text="hm"))
    assert state.run is not None
    assert continuation(state, state.run) == ""


def test_a_summary_only_after_silent_work() -> None:
    for events, options, wanted in (
        ([*answer(1, "a"), *ran(1), *answer(2)], ChatOptions(), True),
        ([*answer(1, "a"), *ran(1), *answer(2)], ChatOptions(summarize=False), False),
        ([*answer(1, "a"), *ran(1), *answer(2, text="did it")], ChatOptions(), False),
        ([*answer(1)], ChatOptions(), False),
    ):
        state = chat(said(), *events, options=options)
        assert state.run is not None
        assert wants_summary(state, state.run) is wanted
