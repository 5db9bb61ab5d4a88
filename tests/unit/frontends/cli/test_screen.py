"""How events look as text, without a process around them."""

import asyncio
import io

import pytest

from treadle.base.types import CallKey, ChatId
from treadle.frontends.cli.screen import Screen
from treadle.frontends.cli.terminal import Terminal, _shorten_to_fit
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.views import Coalescer

CHAT = ChatId("c_test")
CALL = CallKey("1.0")


class ReadableScreen:
    """A screen on streams that can be read."""

    def __init__(self) -> None:
        self._out, self._err = io.BytesIO(), io.BytesIO()
        streams = [io.TextIOWrapper(raw, encoding="utf-8", write_through=True) for raw in (self._out, self._err)]
        self._streams = streams  # or they would be closed at once
        self._screen = Screen(Terminal(streams[0], streams[1], {}))

    def show(self, *events: e.Event) -> str:
        for event in events:
            self._screen.show_event(e.Envelope(0, CHAT, 0, event))
        return self.out

    @property
    def out(self) -> str:
        return self._out.getvalue().decode()

    @property
    def err(self) -> str:
        return self._err.getvalue().decode()


async def test_live_text_is_coalesced(monkeypatch: pytest.MonkeyPatch) -> None:  # U-02
    monkeypatch.setattr(Coalescer, "INTERVAL_S", 1000.0)
    screen = ReadableScreen()
    assert screen.show(e.MessageDelta(1, "Hel")) == ""  # the first update needs 8 word characters
    assert screen.show(e.MessageDelta(1, "lo there")) == "Hello there"
    assert screen.show(e.MessageDelta(1, ", you")) == "Hello there"
    assert screen.show(e.MessageDelta(1, "!"), e.AssistantMessage(1, "Hello there, you!")) == "Hello there, you!\n"


async def test_no_live_text_is_held_for_long() -> None:  # U-02
    screen = ReadableScreen()
    screen.show(e.MessageDelta(1, "Hello there"), e.MessageDelta(1, ", you"))
    async with asyncio.timeout(60):
        while screen.out != "Hello there, you":  # noqa: ASYNC110 - a stream sets no event
            await asyncio.sleep(0.005)


async def test_an_answer_that_was_not_seen_live_is_shown_whole_and_a_half_seen_one_is_completed() -> None:
    screen = ReadableScreen()
    assert screen.show(e.AssistantMessage(1, "All of it.")) == "All of it.\n"
    assert screen.show(e.MessageDelta(2, "Half "), e.AssistantMessage(2, "Half of it.")).endswith("\nHalf of it.\n")


async def test_a_retry_says_that_the_answer_begins_again() -> None:
    screen = ReadableScreen()
    screen.show(e.MessageDelta(1, "Something wrong"), e.AssistantReset(1), e.TurnRetry(1, 1, "network", "reset", 2.0))
    screen.show(e.MessageDelta(1, "Something right"), e.AssistantMessage(1, "Something right"))
    assert screen.out == "Something wrong\nSomething right\n"
    assert screen.err == "(that answer was broken off and is begun again)\nretry 1 (network): reset; again in 2.0 s\n"


async def test_partial_text_is_marked() -> None:  # L-07
    assert ReadableScreen().show(e.AssistantMessage(1, "Half a", partial=True)) == "Half a\n(cut short)\n"


COMMAND = ToolRequest(CALL, "run_command", '{"timeout":5,"command":"make all"}')


@pytest.mark.parametrize(
    "events",
    [
        [e.ExecutionComplete(CALL, False, error="No.", result_summary="denied")],
        [e.ExecutionComplete(CALL, False, error="No.", result_summary="interrupted", synthetic="interrupted")],
        [e.ExecutionStart(CALL, "run_command"), e.ExecutionComplete(CALL, False, error="No.", result_summary="bad")],
    ],
    ids=["denied", "interrupted", "not understood"],
)
def test_a_call_that_did_not_run_keeps_its_command(events: list[e.Event]) -> None:  # U-02
    assert "run_command make all … " in ReadableScreen().show(e.AssistantMessage(1, tool_requests=(COMMAND,)), *events)


async def test_what_a_check_says_keeps_its_lines() -> None:  # L-17, U-02
    screen = ReadableScreen()
    screen.show(e.UserMessage("The check failed:\n  E1 in a.py\n  E2 in b.py", source="check"))
    assert screen.err.splitlines() == ["> (check)", "  The check failed:", "    E1 in a.py", "    E2 in b.py"]


def test_a_call_that_was_never_started_still_has_its_name() -> None:
    screen = ReadableScreen()
    message = e.AssistantMessage(1, tool_requests=(ToolRequest(CALL, "write_file"),))
    denied = e.ExecutionComplete(CALL, False, error="This chat is read-only.", result_summary="denied")
    assert screen.show(message, denied) == "✗ write_file … denied\n  │ This chat is read-only.\n"


def test_a_long_diff_is_cut_and_says_so() -> None:
    lines = "\n".join(f"+line {number}" for number in range(20))
    completion = e.ExecutionComplete(
        CALL, True, f"Created a (+20 -0).\n--- /dev/null\n+++ a\n@@ -0,0 +1,20 @@\n{lines}", diff_stat=e.DiffStat(20)
    )
    output_lines = (
        ReadableScreen().show(e.ExecutionStart(CALL, "write_file", args_summary="a"), completion).splitlines()
    )
    assert output_lines[0] == "● write_file a … +20 \N{MINUS SIGN}0"
    assert output_lines[1] == "  │ +line 0"
    assert output_lines[-1] == "  │ … 6 more lines"


def test_everything_that_was_spent_is_in_the_sum() -> None:  # L-02, L-11
    screen = ReadableScreen()
    screen.show(
        e.TurnRetry(1, 1, "network", usage=Usage(10, 1, usd=0.1)),
        e.TurnEnd(1, Usage(100, 20, usd=1.0)),
        e.ModelCall("summary", Usage(5, 5, usd=0.01), "In short."),
        e.ModelCall("compaction", Usage(1000, 0)),
        e.CompactionComplete("threshold", usage=Usage(1000, 0)),
        e.SessionIdle("done"),
    )
    assert "1 turn · 0 calls · 1,115 tokens in, 26 out · $1.1100" in screen.err
    assert screen.out == "In short.\n"


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (e.SessionError("auth", "The key is wrong."), "error (auth): The key is wrong."),
        (e.LimitWarning("turns", 17, 20), "warning: 17 of 20 turns of this run used"),
        (e.LimitReached("usd", 0.5, 0.5, "chat"), "limit reached: $0.50 of $0.50 of this chat used"),
        (e.ModelNotice("ladder", "No tools."), "note: No tools."),
        (e.GuardNotice("nudge", 1, 3), "the model repeats itself; it was asked to stop that"),
        (e.RecordLost("user.message", "bad"), "a damaged record was left out (user.message): bad"),
        (e.UserMessage("Go on.", source="autopilot"), "> (autopilot) Go on."),
        (e.CompactionComplete("manual", False, error="no"), "summing up failed: no"),
    ],
)
def test_what_is_told_beside_the_work(event: e.Event, message: str) -> None:
    screen = ReadableScreen()
    screen.show(event)
    assert (screen.out, screen.err) == ("", f"{message}\n")


def test_a_passing_line_fits_into_its_row() -> None:
    assert _shorten_to_fit("abcdef", 4) == "abcd"
    assert _shorten_to_fit("中文字", 4) == "中文"
    assert _shorten_to_fit("ä中", 2) == "ä"


def test_the_time_in_which_a_person_was_asked_is_not_shown_as_the_run_s(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("treadle.frontends.cli.screen.time.monotonic", lambda: now)
    screen = ReadableScreen()
    screen.show(e.TurnEnd(1))
    now = 102.0
    screen.show(e.ActionRequired((e.OpenAction("p1", "permission", CALL),)))
    now = 900.0
    screen.show(e.PermissionCompleted("p1", "allow"))
    now = 901.0
    screen.show(e.SessionIdle("done"))
    assert " · 3.0 s\n" in screen.err
