"""The rules of verification, without any engine (L-16)."""

import pytest

from treadle.base.types import CallKey, ChatId, make_call_key
from treadle.chat.decide import AppendEvents, RunCheck, RunLimits, decide
from treadle.chat.fold import fold
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import is_read_only_command

CHAT = ChatId("c_x")


def grow(state: ChatState, *events: e.Event) -> ChatState:
    for event in events:
        state = fold(state, e.Envelope(state.head + 1, CHAT, 1_000, event, 1))
    return state


def build_chat(task: str = "Do it", *between: e.Event, **options: object) -> ChatState:
    """A chat whose model has just said that it is done."""
    state = grow(ChatState(chat=CHAT), e.SessionCreated(ChatOptions(**options)), e.UserMessage(task))  # type: ignore[arg-type]
    return say(grow(state, *between))


def say(state: ChatState, text: str = "Done.") -> ChatState:
    turn = state.turn + 1
    return grow(state, e.TurnStart(turn), e.AssistantMessage(turn, text), e.TurnEnd(turn))


def step(state: ChatState) -> object:
    return decide(state, RunLimits)


def ends(state: ChatState) -> str:
    match step(state):
        case AppendEvents(events=events) if isinstance(events[-1], e.RunEnd):
            return events[-1].reason
        case other:
            return str(other)


def wrote(*paths: str) -> e.FilesChanged:
    return e.FilesChanged(tuple(e.FileChange(path, "modified") for path in paths))


def test_changed_files_that_some_tool_reads_are_diagnosed_first() -> None:
    state = build_chat("Do it", wrote("a.py", "b.txt"), wrote("c.ts"), checks=("make",))
    check = step(state)
    assert isinstance(check, RunCheck)
    assert (check.check.command, check.check.paths) == (e.DIAGNOSTICS, ("a.py", "c.ts"))
    state = grow(state, e.CheckStarted(check.check.check, e.DIAGNOSTICS), e.CheckCompleted(check.check.check, True))
    check = step(state)
    assert isinstance(check, RunCheck)
    assert (check.check.command, check.check.check) == ("make", "check.2")
    state = grow(state, e.CheckStarted(check.check.check, "make"), e.CheckCompleted(check.check.check, True))
    assert ends(state) == "done"


@pytest.mark.parametrize("change", [wrote("b.txt"), e.FilesChanged((e.FileChange("a.py", "deleted"),))])
def test_files_that_nothing_reads_are_not_diagnosed(change: e.FilesChanged) -> None:
    assert ends(build_chat("Do it", change)) == "done"


def test_diagnosing_can_be_off() -> None:
    assert ends(build_chat("Do it", wrote("a.py"), diagnose=False)) == "done"


def failed_diagnosis(state: ChatState, text: str) -> ChatState:
    check = step(state)
    assert isinstance(check, RunCheck)
    key = check.check.check
    return grow(state, e.CheckStarted(key, e.DIAGNOSTICS), e.CheckCompleted(key, False, text))


def test_the_same_errors_are_told_once_and_refuse_nothing() -> None:
    state = failed_diagnosis(build_chat("Do it", wrote("a.py")), "a.py:1: error: old")
    next_step = step(state)
    assert isinstance(next_step, AppendEvents)
    assert "a.py:1: error: old" in next_step.events[0].content  # type: ignore[attr-defined]
    state = failed_diagnosis(say(grow(state, *next_step.events), "That one is older than me."), "a.py:1: error: old")
    assert ends(state) == "done"


def test_new_errors_are_told_three_times_at_most() -> None:
    state = build_chat("Do it", wrote("a.py"))
    for number in range(3):
        state = failed_diagnosis(state, f"a.py:{number}: error")
        next_step = step(state)
        assert isinstance(next_step, AppendEvents)
        state = say(grow(state, *next_step.events))
    assert ends(failed_diagnosis(state, "a.py:9: error")) == "done"


def test_a_check_that_always_loses_its_worker_is_given_up() -> None:
    state = build_chat(checks=("make",))
    for number in range(1, 4):
        check = step(state)
        assert isinstance(check, RunCheck)
        assert check.check.check == f"check.{number}"
        state = grow(state, e.CheckStarted(check.check.check, "make"))
        state = grow(state, e.CheckCompleted(check.check.check, False, synthetic="lost"))
    assert ends(state) == "done"


def test_a_check_that_has_begun_is_finished_first() -> None:
    state = grow(build_chat(checks=("make",)), e.CheckStarted(CallKey("check.1"), "make", plan={"x": 1}))
    check = step(state)
    assert isinstance(check, RunCheck)
    assert check.check.plan == {"x": 1}
    stopped = step(grow(state, e.Interrupted()))
    assert isinstance(stopped, AppendEvents)
    assert stopped.events == (e.CheckCompleted(CallKey("check.1"), False, synthetic="stopped"), e.RunEnd("interrupted"))


def test_an_alias_of_a_command_is_known_by_its_tool() -> None:
    request = ToolRequest(make_call_key(1, 0), "bash")
    message = e.AssistantMessage(1, tool_requests=(request,))
    start = e.ExecutionStart(request.call, "run_command", {"command": "make gen"})
    state = build_chat("Fix it", e.TurnStart(1), message, e.TurnEnd(1), start, e.ExecutionComplete(request.call, True))
    assert ends(state) == "done"


@pytest.mark.parametrize(
    ("complete", "counts"),
    [
        (e.ExecutionComplete(make_call_key(1, 0), False, error="denied"), False),
        (e.ExecutionComplete(make_call_key(1, 0), False, error="[exit 1]", sandbox="bubblewrap"), True),
        (e.ExecutionComplete(make_call_key(1, 0), False, error="?", synthetic="unknown"), True),
    ],
)
def test_a_command_that_was_refused_wrote_nothing(complete: e.ExecutionComplete, counts: bool) -> None:
    message = e.AssistantMessage(1, tool_requests=(ToolRequest(make_call_key(1, 0), "run_command"),))
    start = e.ExecutionStart(make_call_key(1, 0), "run_command", {"command": "make gen"})
    state = build_chat("Fix it", e.TurnStart(1), message, e.TurnEnd(1), start, complete)
    assert (ends(state) == "done") == counts


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("ls", False),
        ("cd src && ls -la | grep py", False),
        ("git status; git log -3", False),
        ("cat a.txt > b.txt", True),
        ("echo $(make)", True),
        ("cat a | tee b", True),
        ("make", True),
        ("ls; rm a", True),
        ("git checkout .", True),
        ("lsof", True),
        ("sort -o a a", True),
    ],
)
def test_which_commands_may_write(command: str, writes: bool) -> None:
    assert is_read_only_command(command) != writes
