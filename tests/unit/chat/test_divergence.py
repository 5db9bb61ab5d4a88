"""Where two logs begin to differ, for `diff-runs` (D-07)."""

from msgspec.structs import replace

from treadle.base.types import CallKey, ChatId
from treadle.chat.divergence import IGNORED, find_first_divergence, is_same_event
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.options import ChatOptions


def log(chat: str, *events: e.Event, time_ms: int = 0, epoch: int = 0) -> list[e.Envelope]:
    return [e.Envelope(seq, ChatId(chat), time_ms + seq, event, epoch) for seq, event in enumerate(events, 1)]


RUN = (
    e.SessionCreated(ChatOptions(root="/one", model="a:b")),
    e.UserMessage("Go."),
    e.TurnStart(1, "a:b"),
    e.AssistantMessage(1, "Done.", usage=Usage(10, 2, usd=0.1 + 0.2)),
    e.TurnEnd(1, Usage(10, 2, usd=0.1 + 0.2)),
    e.RunEnd("done"),
)


def test_the_same_run_at_another_time_and_place_is_the_same() -> None:
    other_run = (
        e.SessionCreated(ChatOptions(root="/two", model="a:b"), forked_from="c_x@3"),
        *RUN[1:3],
        e.AssistantMessage(1, "Done.", usage=Usage(10, 2, usd=0.3)),
        e.TurnEnd(1, Usage(10, 2, usd=0.3)),
        e.RunEnd("done"),
    )
    assert find_first_divergence(log("c_a", *RUN), log("c_b", *other_run, time_ms=9_999, epoch=3)) is None


def test_the_first_difference_is_named_with_what_came_before() -> None:
    other_run = [*RUN[:3], e.AssistantMessage(1, "Not done.", usage=Usage()), e.TurnEnd(1), e.RunEnd("error")]
    divergence = find_first_divergence(log("c_a", *RUN), log("c_b", *other_run), ("left", "right"))
    assert divergence is not None
    assert divergence.seq == 4
    assert divergence.left is not None
    assert divergence.left.data == RUN[3]
    assert divergence.right is not None
    assert divergence.right.data == other_run[3]
    assert divergence.text.splitlines() == [
        'The first difference is at 4: data.content is "Done." in left, "Not done." in right.',
        '             2  user.message  {"content":"Go."}',
        '             3  assistant.turn_start  {"turn":1,"model":"a:b"}',
        '  left       4  assistant.message  {"turn":1,"content":"Done.","usage":{"input":10,"output":2,'
        '"usd":0.30000000000000004}}',
        '  right      4  assistant.message  {"turn":1,"content":"Not done.","usage":{}}',
    ]


def test_another_type_is_named_as_such() -> None:
    divergence = find_first_divergence(log("c_a", *RUN[:3]), log("c_b", *RUN[:2], e.RunEnd("error")))
    assert divergence is not None
    assert "at 3: assistant.turn_start in A, session.run_end in B." in divergence.text


def test_a_log_that_ends_early_differs_where_it_ends() -> None:
    for left_run, right, shorter_log in ((RUN, RUN[:3], "B"), (RUN[:3], RUN, "A"), ((), RUN[:1], "A")):
        divergence = find_first_divergence(log("c_a", *left_run), log("c_b", *right))
        assert divergence is not None
        assert divergence.seq == min(len(left_run), len(right)) + 1
        assert f"{shorter_log} has ended there." in divergence.text
        assert "(nothing)" in divergence.text


def test_a_difference_deep_inside_is_named_by_its_path() -> None:
    def asks(arguments: str) -> e.AssistantMessage:
        requests = (ToolRequest(CallKey("1.0"), "look"), ToolRequest(CallKey("1.1"), "look", arguments))
        return e.AssistantMessage(1, tool_requests=requests)

    divergence = find_first_divergence(log("c_a", asks('{"a":1}')), log("c_b", asks('{"a":2}')))
    assert divergence is not None
    assert "data.tool_requests[1].arguments" in divergence.text


def test_what_is_measured_or_drawn_by_lot_is_no_difference() -> None:
    completion = e.ExecutionComplete(CallKey("1.0"), True, "ok", duration_ms=5)
    pairs: list[tuple[e.Event, e.Event]] = [
        (completion, replace(completion, duration_ms=500)),
        (e.QueueChanged("added", "q_1", "x"), e.QueueChanged("added", "q_2", "x")),
        (e.UserMessage("x", "queued", queue_id="q_1"), e.UserMessage("x", "queued", queue_id="q_2")),
        (e.TurnRetry(1, 1, "network", delay_s=2.1), e.TurnRetry(1, 1, "network", delay_s=1.9)),
        (e.LimitReached("wall_s", 10.1, 10), e.LimitReached("wall_s", 10.2, 10)),
    ]
    for left_event, right in pairs:
        assert is_same_event(*log("c", left_event), *log("c", right))
    assert not is_same_event(*log("c", e.LimitReached("tokens", 10, 10)), *log("c", e.LimitReached("tokens", 11, 10)))
    assert not is_same_event(*log("c", completion), *log("c", replace(completion, result="no")))


def test_long_values_are_cut_in_the_text() -> None:
    divergence = find_first_divergence(log("c_a", e.UserMessage("x" * 9_999)), log("c_b", e.UserMessage("y" * 9_999)))
    assert divergence is not None
    assert all(len(line) < 450 for line in divergence.text.splitlines())


def test_every_ignored_field_has_a_reason() -> None:
    assert all(reason for reason in IGNORED.values())
