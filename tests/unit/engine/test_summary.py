"""L-17: the summary of a run tells what that run did."""

from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.engine.side_call import format_recent_results
from treadle.protocol import events as e


def test_the_last_results_are_those_of_the_run() -> None:
    old_run = (make_message("first"), *answer(1, "read_old"), *ran(1, result="old"), e.RunEnd("done"))
    now = (make_message("second"), *answer(2, "read_new"), *ran(2, result="new"))
    assert format_recent_results(chat(*old_run, *now)) == "- read_new: new"
