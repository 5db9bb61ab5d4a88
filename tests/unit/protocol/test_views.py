"""Text coalesced for a screen (U-02)."""

from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.views import Coalescer


def test_the_first_update_waits_for_eight_word_characters() -> None:
    screen = Coalescer()
    assert screen.feed("I lo ", 0.0) == ""
    assert screen.feed("ok.. ", 0.1) == ""
    assert screen.feed("at it", 0.2) == "I lo ok.. at it"


def test_later_updates_come_once_in_32_ms() -> None:
    screen = Coalescer()
    assert screen.feed("12345678", 1.0) == "12345678"
    assert screen.feed("a", 1.01) == ""
    assert screen.feed("b", 1.02) == ""
    assert screen.take_due(1.033) == "ab"
    assert screen.feed(" ...", 2.0) == ""  # no word character
    assert screen.flush() == " ..."


def test_a_retry_begins_anew() -> None:
    screen = Coalescer()
    screen.feed("12345678", 0.0)
    screen.feed("lost", 0.001)
    screen.reset()
    assert screen.feed("1234567", 0.01) == ""
    assert screen.feed("8", 0.02) == "12345678"


@given(st.lists(st.tuples(st.text(max_size=9), st.floats(0, 0.05)), max_size=30))
def test_nothing_is_lost_and_nothing_comes_twice(pieces: list[tuple[str, float]]) -> None:
    screen, now, output = Coalescer(), 0.0, ""
    for text, wait in pieces:
        now += wait
        output += screen.feed(text, now)
    assert output + screen.flush() == "".join(text for text, _ in pieces)
