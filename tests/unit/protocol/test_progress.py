"""Finished calls in groups."""

from collections.abc import Iterable

from treadle.base.types import make_call_key
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.views import Progress


def progress(events: Iterable[e.Event]) -> list[str]:
    """The lines about all groups of calls."""
    groups = Progress()
    return [line for line in (*map(groups.take, events), groups.flush()) if line]


def turn(number: int, *names: str, text: str = "", failed: int = 0) -> list[e.Event]:
    requests = tuple(ToolRequest(make_call_key(number, place), name) for place, name in enumerate(names))
    completions = [
        e.ExecutionComplete(request.call, place >= failed, "ok", "" if place >= failed else "no")
        for place, request in enumerate(requests)
    ]
    return [e.AssistantMessage(number, text, tool_requests=requests), *completions]


def test_calls_without_a_word_in_between_are_one_group() -> None:
    log = [
        *turn(1, *["read_file"] * 4, text="Let me look."),
        *turn(2, "read_file", "grep_search", "read_file", "find_files", "grep_search"),
        *turn(3, "run_command", "run_command"),
    ]
    assert list(progress(log)) == ["read 6 files, searched 3 times, ran 2 commands"]


def test_words_end_a_group_and_what_failed_is_told() -> None:
    log = [
        e.UserMessage("go"),
        *turn(1, "run_command", "run_command", text="First.", failed=1),
        *turn(2, "weather", "update_plan", text="Then."),
        e.RunEnd("done"),
        e.UserMessage("more"),
        *turn(3, "write_file"),
    ]
    assert list(progress(log)) == ["ran 2 commands, 1 failed", "called weather 1 time", "wrote 1 file"]


def test_without_calls_there_is_nothing_to_tell() -> None:
    assert list(progress([e.UserMessage("hi"), *turn(1, text="Hello."), e.RunEnd("done")])) == []
