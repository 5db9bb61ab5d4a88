"""L-17: the summary of a run tells what that run did."""

from tests.unit.chat.logs import answer, chat, ran, said
from treadle.engine.summary import recent_lines
from treadle.protocol import events as e


def test_the_last_results_are_those_of_the_run() -> None:
    before = (said("first"), *answer(1, "read_old"), *ran(1, result="old"), e.RunEnd("done"))
    now = (said("second"), *answer(2, "read_new"), *ran(2, result="new"))
    assert recent_lines(chat(*before, *now)) == "- read_new: new"
