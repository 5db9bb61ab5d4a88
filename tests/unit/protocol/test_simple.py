"""The view in six words (A-11): every event, the order of files and calls, and the text exactly once."""

from collections.abc import Iterable

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.golden.samples import SAMPLES
from treadle.base.types import CallKey, ChatId
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.simple import FileModified, SimpleView, Token, ToolDone, ToolStart, Word


def show(view: SimpleView, *events: e.Event, seq: int = 1) -> list[tuple[int, Word]]:
    words: list[tuple[int, Word]] = []
    for number, event in enumerate(events, seq):
        words += view.show(e.Envelope(0 if isinstance(event, e.Live) else number, ChatId("c"), 0, event))
    return words


def collect_words(*events: e.Event) -> list[Word]:
    view = SimpleView()
    return [word for _, word in (*show(view, *events), *view.flush())]


def read(words: Iterable[Word]) -> str:
    """As the guide says: cut, then add."""
    texts: dict[int, str] = {}
    for word in words:
        if isinstance(word, Token):
            texts[word.turn] = texts.get(word.turn, "")[: word.at] + word.text
    return "".join(texts.values())


def join_tokens(words: Iterable[Word]) -> str:
    return "".join(word.text for word in words if isinstance(word, Token))


def test_every_event_has_its_words_or_none() -> None:
    sampling = SAMPLES["session.model_call"]
    assert collect_words(sampling) == []  # a server's question to the model is no part of the answer
    samples = {**SAMPLES, "session.model_call": structs.replace(sampling, purpose="summary")}
    word_types = {
        name: [msgspec.to_builtins(word)["type"] for word in collect_words(event)] for name, event in samples.items()
    }
    assert {name: words for name, words in word_types.items() if words} == {
        "assistant.message": ["token"],
        "assistant.message_delta": ["token"],
        "session.model_call": ["token"],
        "tool.execution_start": ["tool_start"],
        "tool.trial_start": ["tool_start"],
        "tool.execution_complete": ["tool_done"],
        "workspace.files_changed": ["file_modified"] * 2,
        "workspace.undone": ["file_modified"] * len(SAMPLES["workspace.undone"].files),  # type: ignore[attr-defined]
        "workspace.redone": ["file_modified"] * len(SAMPLES["workspace.redone"].files),  # type: ignore[attr-defined]
        "session.idle": ["done"],
        "session.error": ["error"],
    }


def test_files_come_before_the_end_of_their_call() -> None:
    completion = e.ExecutionComplete(CallKey("1.0"), True, result_summary="written")
    files = msgspec.structs.replace(SAMPLES["workspace.files_changed"], call=CallKey("1.0"))
    view = SimpleView()
    words = show(view, completion, files, seq=7)
    assert [type(word) for _, word in words] == [FileModified, FileModified, ToolDone]
    assert [seq for seq, _ in words] == [0, 0, 8]  # a client that is cut off in between sees all of it again


def test_a_call_without_files_is_done_when_something_else_comes() -> None:
    view = SimpleView()
    first = e.ExecutionComplete(CallKey("1.0"), True)
    assert show(view, first, seq=7) == []
    assert view.holds
    words = show(view, e.ExecutionComplete(CallKey("1.1"), True), e.MessageDelta(2, "x"), seq=8)
    assert [seq for seq, _ in words] == [7, 8, 0]
    assert [type(word) for _, word in words] == [ToolDone, ToolDone, Token]
    assert view.flush() == []


def test_a_late_reader_gets_the_text_once() -> None:
    live = collect_words(
        e.TurnStart(1), e.MessageDelta(1, "Hel"), e.MessageDelta(1, "lo."), e.AssistantMessage(1, "Hello.")
    )
    late = collect_words(e.TurnStart(1), e.AssistantMessage(1, "Hello."))
    assert join_tokens(live) == join_tokens(late) == "Hello."


def test_a_turn_that_is_made_again() -> None:
    words = collect_words(
        e.TurnStart(1),
        e.MessageDelta(1, "Hello, w"),
        e.TurnRetry(1, 1, "cut_stream", "cut"),
        e.AssistantReset(1),
        e.MessageDelta(1, "Hel"),
        e.MessageDelta(1, "lo, world"),
        e.AssistantMessage(1, "Hello, world."),
    )
    assert join_tokens(words) == read(words) == "Hello, world."


def test_an_attempt_that_says_something_else_tells_where_to_cut() -> None:
    words = collect_words(
        e.MessageDelta(1, "Let me"), e.AssistantReset(1), e.MessageDelta(1, "Lo!"), e.AssistantMessage(1, "Lo!")
    )
    assert words == [Token(1, 0, "Let me"), Token(1, 1, "o!")]
    shorter = collect_words(e.MessageDelta(1, "Let me"), e.AssistantReset(1), e.AssistantMessage(1, "Let"))
    assert shorter[1:] == [Token(1, 3, "")]


def test_a_turn_that_came_to_nothing_leaves_no_text() -> None:
    assert read(collect_words(e.MessageDelta(1, "Half a"), e.SessionError("network", "gone"))) == ""


@given(st.lists(st.tuples(st.booleans(), st.text("ab", max_size=3)), max_size=12), st.text("ab", max_size=8))
def test_whatever_was_said_before_the_text_is_the_recorded_one(tries: list[tuple[bool, str]], final: str) -> None:
    events: list[e.Event] = [e.TurnStart(1)]
    for again, text in tries:
        events.append(e.AssistantReset(1) if again else e.MessageDelta(1, text))
    assert read(collect_words(*events, e.AssistantMessage(1, final))) == final


def test_a_call_that_never_began_has_its_command_all_the_same() -> None:
    calls = [CallKey(f"1.{number}") for number in range(3)]
    requests = tuple(ToolRequest(call, "run_command", '{"command":"make all\\nmake more"}') for call in calls)
    words = collect_words(
        e.AssistantMessage(1, tool_requests=requests),
        e.ExecutionStart(calls[0], "run_command", {"command": "make all"}, "make all"),
        e.ExecutionComplete(calls[0], True, result_summary="exit 0"),
        e.ExecutionStart(calls[1], "run_command"),  # its arguments were not understood
        e.ExecutionComplete(calls[1], False, result_summary="timeout: no number"),
        e.ExecutionComplete(calls[2], False, result_summary="interrupted", synthetic="interrupted"),
    )
    starts, ends = ([word for word in words if isinstance(word, kind)] for kind in (ToolStart, ToolDone))
    assert starts == [ToolStart(call, "run_command", "make all") for call in calls]
    assert [word.call for word in ends] == calls
    assert all(words.index(start) < words.index(end) for start, end in zip(starts, ends, strict=True))


def test_who_comes_after_the_request_is_told_of_no_beginning() -> None:
    completion = e.ExecutionComplete(CallKey("1.0"), False, result_summary="interrupted")
    assert collect_words(completion) == [ToolDone(CallKey("1.0"), False, "interrupted")]
