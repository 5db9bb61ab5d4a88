"""Blocks from events: the same live and from the log, after any events in between."""

from treadle.base.types import CallKey, ChatId
from treadle.frontends.presentation.conversation import (
    AnswerBlock,
    Calls,
    Checklist,
    Conversation,
    EmptyBlock,
    Note,
    RunEndBlock,
    ThoughtBlock,
    UserBlock,
)
from treadle.protocol import events as e
from treadle.protocol.content import PlanStep, Thinking, ToolRequest, Usage
from treadle.protocol.options import ChatOptions

CHAT = ChatId("c_1")


class ConversationFeed:
    """A conversation that is told events, recorded ones numbered."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.log: list[e.Envelope] = []

    def __call__(self, *events: e.Event) -> "ConversationFeed":
        for event in events:
            seq = 0 if isinstance(event, e.Live) else len(self.log) + 1
            envelope = e.Envelope(seq, CHAT, 1_000 * (len(self.log) + 1), event)
            if seq:
                self.log.append(envelope)
            self.conversation.apply(envelope)
        return self

    @property
    def block_names(self) -> list[str]:
        return [type(block).__name__ for block in self.conversation.blocks if not isinstance(block, EmptyBlock)]


def begin_conversation() -> ConversationFeed:
    return ConversationFeed()(
        e.SessionCreated(ChatOptions(model="m:x", root="/p")), e.UserMessage("Fix it."), e.TurnStart(1, "m:x")
    )


def call(key: str, name: str, arguments: str = "{}") -> ToolRequest:
    return ToolRequest(CallKey(key), name, arguments)


def complete_call(key: str, **more: object) -> e.ExecutionComplete:
    return e.ExecutionComplete(CallKey(key), True, **more)  # type: ignore[arg-type]


def test_what_was_shown_live_is_what_the_log_shows() -> None:  # D-04
    feed = begin_conversation()
    feed(e.ReasoningDelta(1, "Hm."), e.MessageDelta(1, "Let me "), e.MessageDelta(1, "look."))
    assert feed.block_names == ["UserBlock", "ThoughtBlock", "AnswerBlock"]
    feed(
        e.AssistantMessage(1, "Let me look.", (Thinking("Hm."),), (call("1.0", "read_file", '{"path": "a.py"}'),)),
        e.ExecutionStart(CallKey("1.0"), "read_file", args_summary="a.py", effect="read"),
        complete_call("1.0", result_summary="3 lines"),
        e.TurnEnd(1, Usage(10, 5)),
        e.RunEnd("done"),
        e.SessionIdle("done"),
    )
    again = Conversation()
    for envelope in feed.log:
        again.apply(envelope)
    live, read = feed.conversation.blocks, again.blocks
    assert [type(block) for block in live] == [type(block) for block in read]
    assert [block for block in live if not isinstance(block, ThoughtBlock)] == [
        block for block in read if not isinstance(block, ThoughtBlock)
    ]
    assert not feed.conversation.view.busy
    assert not any(block.live for block in live)


def test_a_retry_drops_the_partial_text() -> None:  # M-11
    feed = begin_conversation()(
        e.MessageDelta(1, "half an ans"), e.TurnRetry(1, 1, "overloaded", "busy"), e.AssistantReset(1)
    )
    assert feed.block_names == ["UserBlock", "Note"]
    feed(e.MessageDelta(1, "whole"), e.AssistantMessage(1, "whole"))
    assert [block.text for block in feed.conversation.blocks if isinstance(block, AnswerBlock)] == ["whole"]


def test_calls_with_nothing_said_between_them_are_one_group() -> None:
    feed = begin_conversation()(e.AssistantMessage(1, "", (), (call("1.0", "read_file"), call("1.1", "grep_search"))))
    feed(complete_call("1.0"), complete_call("1.1"), e.TurnEnd(1), e.TurnStart(2))
    feed(e.AssistantMessage(2, "", (), (call("2.0", "read_file"),)), complete_call("2.0"))
    (group,) = [block for block in feed.conversation.blocks if isinstance(block, Calls)]
    assert [each.name for each in group.calls] == ["read_file", "grep_search", "read_file"]
    assert not group.live


def test_the_output_of_a_command_is_kept_to_its_end_and_goes_with_its_result() -> None:
    feed = begin_conversation()(e.AssistantMessage(1, "", (), (call("1.0", "run_command"),)))
    feed(e.ExecutionStart(CallKey("1.0"), "run_command", args_summary="make"))
    for _ in range(100):
        feed(e.ExecutionOutput(CallKey("1.0"), "x" * 99 + "\n"))
    (group,) = [block for block in feed.conversation.blocks if isinstance(block, Calls)]
    assert len(group.calls[0].output) == 4_000
    feed(complete_call("1.0"))
    (group,) = [block for block in feed.conversation.blocks if isinstance(block, Calls)]
    assert group.calls[0].output == ""


def test_an_approval_is_open_until_anybody_answers() -> None:  # S-08
    feed = begin_conversation()(
        e.AssistantMessage(1, "", (), (call("1.0", "run_command"), call("1.1", "run_command"))),
        e.PermissionRequested("1.0", CallKey("1.0"), "high", "it is dangerous", "run_command\n  command: x", "h"),
        e.PermissionRequested("1.1", CallKey("1.1"), shown="run_command\n  command: y", hash="i"),
    )
    assert [action.name for action in feed.conversation.view.actions] == ["run_command", "run_command"]
    feed(e.PermissionCompleted("1.0", "allow"))
    (open_action,) = feed.conversation.view.actions
    assert open_action.hash == "i"
    feed(e.Interrupted(), e.PermissionCompleted("1.1", "deny", by="stop"), e.RunEnd("interrupted"))
    assert feed.conversation.view.actions == ()


def test_going_back_takes_what_came_after_off_the_screen() -> None:  # W-03
    feed = begin_conversation()(e.AssistantMessage(1, "Done."), e.TurnEnd(1), e.RunEnd("done"))
    feed(e.UserMessage("And now this."), e.TurnStart(2), e.AssistantMessage(2, "That, too."), e.RunEnd("done"))
    second = feed.conversation.list_messages()[1].seq
    feed(e.SessionRewound(second))
    assert feed.block_names == ["UserBlock", "AnswerBlock", "RunEndBlock", "Note"]
    assert [each.text for each in feed.conversation.list_messages()] == ["Fix it."]


def test_the_newest_plan_of_a_run_is_the_one_that_is_shown() -> None:
    feed = begin_conversation()(e.PlanUpdated((PlanStep("a", "in_progress"),)), e.PlanUpdated((PlanStep("a", "done"),)))
    (plan,) = [block for block in feed.conversation.blocks if isinstance(block, Checklist)]
    assert plan.steps[0].status == "done"
    feed(e.RunEnd("done"), e.UserMessage("Next."), e.PlanUpdated((PlanStep("b", "in_progress"),)))
    assert feed.block_names.count("Checklist") == 2


def test_the_queue_is_shown_as_it_changes() -> None:  # L-08
    feed = begin_conversation()(e.QueueChanged("added", "q1", "later"), e.QueueChanged("added", "q2", "more"))
    feed(e.QueueChanged("edited", "q1", "much later"), e.QueueChanged("promoted", "q2"))
    assert [item.content for item in feed.conversation.view.queue] == ["more", "much later"]
    feed(e.UserMessage("more", "steering", queue_id="q2"), e.QueueChanged("deleted", "q1"))
    assert feed.conversation.view.queue == ()


def test_events_that_were_seen_are_not_shown_twice() -> None:
    feed = begin_conversation()(e.AssistantMessage(1, "Hello."))
    for envelope in feed.log:
        feed.conversation.apply(envelope)
    assert feed.block_names == ["UserBlock", "AnswerBlock"]


def test_the_end_of_a_run_says_what_it_changed_and_why_it_ended() -> None:  # W-04
    files = (e.FileChange("a.py", "modified", 3, 1), e.FileChange("b.py", "created", 2))
    repeated_files = (e.FileChange("c.py", "modified", 9, 9),)
    log = (e.FilesChanged(files), e.FilesChanged(repeated_files), e.FilesChanged(repeated_files))
    feed = begin_conversation()(*log, e.SessionError("auth", "no key"), e.RunEnd("error"))
    end = feed.conversation.blocks[-1]
    assert isinstance(end, RunEndBlock)
    assert end.files == ("M a.py +3 -1", "A b.py +2", "M c.py")
    (error,) = [block for block in feed.conversation.blocks if isinstance(block, Note)]
    assert error.mark == "error"
    assert "no key" in error.text


def test_what_was_said_in_the_persons_place_is_told_apart() -> None:
    feed = begin_conversation()(e.UserMessage("go on", source="autopilot"))
    assert [block.source for block in feed.conversation.blocks if isinstance(block, UserBlock)] == [
        "person",
        "autopilot",
    ]
    assert len(feed.conversation.list_messages()) == 1


def test_the_end_of_a_run_says_what_this_run_cost() -> None:  # E-04
    def run(tokens: int) -> list[e.Event]:
        return [e.UserMessage("Go."), e.TurnStart(1, "m:x"), e.TurnEnd(1, Usage(tokens)), e.RunEnd("done")]

    conversation = ConversationFeed()(*run(1_000), *run(20)).conversation
    first, second = (block.text for block in conversation.blocks if isinstance(block, RunEndBlock))
    assert "1,000 tokens in" in first
    assert "· 20 tokens in" in second
    assert conversation.view.usage.input == 1_020
