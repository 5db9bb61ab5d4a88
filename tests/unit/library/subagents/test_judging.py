"""The winner of a race without a judge (L-22)."""

import pytest

from treadle.base.types import ChatId
from treadle.chat.state import ChatState
from treadle.library.subagents.children import ChildResult
from treadle.library.subagents.race import choose
from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileChange
from treadle.protocol.subagent_events import Child


def contender(number: int, ended_ms: int, lines: int) -> ChildResult:
    """An attempt that passed the check, ended at this time and changed so many lines."""
    change = FileChange("answer.txt", "created", added=lines)
    child = Child(ChatId(f"c_{number}"), number)
    return ChildResult(child, ChatState(), Effect((change,)), has_passed=True, ended_ms=ended_ms)


@pytest.mark.parametrize(
    ("first", "winner", "words"),
    [(True, 2, "the first to pass the check"), (False, 3, "the smallest change that passes the check")],
)
def test_the_first_to_pass_or_the_smallest_change_wins(first: bool, winner: int, words: str) -> None:  # L-22
    """Several may have passed when the choice is made: two that end at once, or before their worker was killed."""
    attempts = [contender(1, 3_000, 5), contender(2, 1_000, 9), contender(3, 2_000, 1)]
    chosen, reason = choose(attempts, first=first)
    assert (chosen.number, reason) == (winner, words)


def test_of_attempts_that_end_in_the_same_millisecond_the_lower_number_wins() -> None:  # L-22
    attempts = [contender(2, 1_000, 1), contender(1, 1_000, 9)]
    assert choose(attempts, first=True)[0].number == 1
