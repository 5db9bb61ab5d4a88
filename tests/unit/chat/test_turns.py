"""Turns end after their calls (L-02). Logs in which they ended before them, and in which only the end told the cost,
are read as before: the golden logs are what earlier versions of Treadle wrote, with the states that they came to."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.base.types import ChatId, make_call_key
from treadle.chat.divergence import find_first_divergence, reorder_log, upgrade_log
from treadle.chat.fold import fold, fold_all
from treadle.chat.state import ChatState, compute_status
from treadle.chat.transcript import build_entries
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import ToolRequest, Usage
from treadle.testing import checker

LOGS = Path(__file__).parents[2] / "golden" / "logs"
OLD = sorted(path.stem for path in (LOGS / "v1").glob("*.jsonl"))
NEW = sorted(path.stem for path in (LOGS / "v2").glob("*.jsonl"))
STATES: dict[str, Any] = json.loads((LOGS / "v1" / "states.json").read_text(encoding="utf-8"))
CHAT = ChatId("c_turns")


def read(version: str, name: str) -> list[e.Envelope]:
    lines = (LOGS / version / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [wire.from_json(line) for line in lines]


def conversation(state: ChatState) -> str:
    return hashlib.sha256(msgspec.json.encode([list(build_entries(state)), state.history.slice(0)])).hexdigest()


@pytest.mark.parametrize("name", OLD)
def test_an_old_log_comes_to_the_state_that_it_came_to(name: str) -> None:  # V-06, L-11
    log, expected = read("v1", name), STATES[name]
    state = ChatState(chat=log[0].chat)
    for envelope, (input_tokens, output_tokens, usd, tokens, chars, expected_status) in zip(
        log, expected["steps"], strict=True
    ):
        state = fold(state, envelope)
        usage = state.totals.usage
        assert (usage.input, usage.output, round(usage.usd, 9)) == (input_tokens, output_tokens, usd), envelope
        assert (state.context_tokens, state.context_chars, compute_status(state)) == (tokens, chars, expected_status), (
            envelope
        )
    assert (state.totals.turns, state.totals.tool_calls) == (expected["turns"], expected["tool_calls"])
    assert state.last_end == expected["last_end"]
    assert conversation(state) == expected["conversation"]  # L-21: not a byte of a request is another


@pytest.mark.parametrize("name", OLD)
def test_an_old_log_that_was_copied_by_a_newer_treadle_is_the_same(name: str) -> None:
    """A copy is written with today's version numbers."""
    log = read("v1", name)
    copied = [wire.decode(envelope.chat, wire.encode(envelope)) for envelope in log]
    assert fold_all(ChatState(), copied) == fold_all(ChatState(), log)


@pytest.mark.parametrize("name", OLD)
def test_an_old_log_in_the_order_of_today_comes_to_the_same(name: str) -> None:
    log = read("v1", name)
    old_state, new_state = (fold_all(ChatState(chat=log[0].chat), each) for each in (log, upgrade_log(log)))
    assert new_state.totals == old_state.totals
    assert build_entries(new_state) == build_entries(old_state)
    assert compute_status(new_state) == compute_status(old_state)
    is_idle = old_state.run is None
    assert checker.check_turns(upgrade_log(log), is_idle=is_idle) == []
    assert checker.check_results(upgrade_log(log), is_idle=is_idle) == []


@pytest.mark.parametrize("name", NEW)
def test_the_same_chat_written_by_both_differs_in_nothing_else(name: str) -> None:
    old, new = read("v1", name), read("v2", name)
    divergence = find_first_divergence(old, new)
    assert divergence is None, divergence.text
    assert [envelope.data for envelope in reorder_log(new)] == [envelope.data for envelope in new]
    assert [envelope.type for envelope in old] != [envelope.type for envelope in new]
    state = fold_all(ChatState(chat=new[0].chat), new)
    assert conversation(state) == STATES[name]["conversation"]


def log_of(*events: e.Event) -> list[e.Envelope]:
    return [e.Envelope(seq, CHAT, seq, event, 1) for seq, event in enumerate(events, 1)]


def test_the_cost_is_spent_with_the_message_and_not_again_with_the_end() -> None:  # L-11
    """A worker that dies between the two has spent it all the same."""
    cost = Usage(70, 30, usd=0.5)
    requests = (ToolRequest(make_call_key(1, 0), "look"),)
    message = e.AssistantMessage(1, "", (), requests, usage=cost)
    state = fold_all(ChatState(), log_of(e.UserMessage("go"), e.TurnStart(1, reserved=Usage(500)), message))
    assert state.totals.usage == cost
    last_events = (e.ExecutionComplete(make_call_key(1, 0), True, "ok"), e.TurnEnd(1, cost), e.RunEnd("done"))
    log = log_of(e.UserMessage("go"), e.TurnStart(1, reserved=Usage(500)), message, *last_events)
    assert fold_all(ChatState(), log).totals.usage == cost


def test_a_turn_that_left_no_message_is_spent_at_its_end() -> None:
    log = log_of(e.UserMessage("go"), e.TurnStart(1), e.TurnEnd(1, Usage(70), "interrupted"), e.RunEnd("interrupted"))
    assert fold_all(ChatState(), log).totals.usage == Usage(70)


def test_the_cost_of_a_message_whose_record_was_lost_is_spent_at_the_end_of_its_turn() -> None:  # D-06
    lost_record = e.RecordLost("assistant.message", "damaged")
    log = log_of(e.UserMessage("go"), e.TurnStart(1), lost_record, e.TurnEnd(1, Usage(70)), e.RunEnd("done"))
    assert fold_all(ChatState(), log).totals.usage == Usage(70)


def test_an_end_that_was_lost_does_not_close_the_next_turn() -> None:
    first = e.AssistantMessage(1, "One.", usage=Usage(10))
    log = log_of(e.UserMessage("go"), e.TurnStart(1), first, e.RecordLost("assistant.turn_end", "damaged"))
    state = fold_all(ChatState(), log)
    state = fold_all(state, [e.Envelope(5, CHAT, 5, e.TurnStart(2), 1)])
    assert state.answered_turn is None
    assert state.open_turn is not None
