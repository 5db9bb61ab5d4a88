"""The web app folds events in JavaScript, the terminal app in Python: both show the same conversation."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.unit.frontends.tui.recorded import asking_log, ended_log, long_log, question_log
from treadle.base.types import CallKey, ChatId
from treadle.frontends.presentation import conversation as b
from treadle.frontends.presentation.conversation import Conversation
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import PlanStep, Thinking, ToolRequest, Usage
from treadle.protocol.options import ChatOptions

SHOWN_OTHERWISE = ("task_complete", "update_plan", "ask_user")
"""Calls that the web app shows as what they do."""

OUTLINE = """
import { readFileSync } from "node:fs";
const { ChatFold } = await import(process.argv[1]);
const outlines = JSON.parse(readFileSync(0, "utf8")).map((events) => {
  const fold = new ChatFold();
  for (const event of events) fold.take(event);
  const state = (call) => ["done", "failed", "asked"].includes(call.state) ? call.state : "open";
  const rows = fold.rows.flatMap((row) => row.kind === "user" ? [["user", row.source, row.text]]
    : row.kind === "calls" ? row.calls.map((call) => ["call", call.name, state(call)])
    : row.kind === "answer" ? [["thought", row.thinking], ["answer", row.text]].filter(([, text]) => text.trim())
    : row.kind === "end" ? [["end"]] : []);
  return { rows, plan: fold.plan.map((step) => step.status), actions: fold.actions.map((each) => each.action),
    ended: fold.lastEnd, model: fold.options.model, title: fold.title, tokens: fold.usage.input + fold.usage.output };
});
console.log(JSON.stringify(outlines));
"""


def _rows(block: b.AnyBlock) -> list[list[str]]:
    match block:
        case b.UserBlock(text=text, source=source):
            return [["user", source, text]]
        case b.ThoughtBlock(text=text) if text.strip():
            return [["thought", text]]
        case b.AnswerBlock(text=text) if text.strip():
            return [["answer", text]]
        case b.Calls(calls=calls):
            return [["call", call.name, _state(call)] for call in calls if call.name not in SHOWN_OTHERWISE]
        case b.RunEndBlock():
            return [["end"]]
        case _:
            return []


def _state(call: b.ShownCall) -> str:
    if call.completion is not None:
        return "done" if call.completion.success else "failed"
    return "asked" if call.waits else "open"


def outline(envelopes: Sequence[e.Envelope]) -> dict[str, Any]:
    conversation = Conversation()
    for envelope in envelopes:
        conversation.apply(envelope)
    view = conversation.view
    return {
        "rows": [row for block in conversation.blocks for row in _rows(block)],
        "plan": [step.status for step in view.plan],
        "actions": [each.action for each in view.actions],
        "ended": view.last_end,
        "model": view.options.model,
        "title": view.title,
        "tokens": view.usage.input + view.usage.output,
    }


def _turn(turn: int, content: str, *requests: ToolRequest, thinking: str = "") -> list[e.Event]:
    spent, reasoning = Usage(100, 10), (Thinking(thinking),) if thinking else ()
    return [e.TurnStart(turn, "m:x"), e.AssistantMessage(turn, content, reasoning, requests, usage=spent)]


def _begin_chat(*events: e.Event) -> list[e.Event]:
    options = ChatOptions(model="m:x", root="/p")
    return [e.SessionCreated(options), e.TitleChanged("A title"), e.UserMessage("Do it."), *events]


def _end_run(turn: int) -> list[e.Event]:
    return [e.TurnEnd(turn, Usage(100, 10)), e.RunEnd("done")]


FIRST, SECOND = CallKey("1.0"), CallKey("1.1")
READ, RUN = ToolRequest(FIRST, "read_file", '{"path":"a"}'), ToolRequest(SECOND, "run_command", '{"command":"make"}')
CASES: dict[str, list[e.Event]] = {
    "an answer": _begin_chat(*_turn(1, "Done.", thinking="Hm."), *_end_run(1)),
    "calls": _begin_chat(
        *_turn(1, "Look.", READ, RUN),
        e.ExecutionStart(FIRST, "read_file", args_summary="a"),
        e.ExecutionComplete(FIRST, True, "x"),
        e.ExecutionStart(SECOND, "run_command", args_summary="make"),
        e.ExecutionComplete(SECOND, False, error="exit 2"),
        e.TurnEnd(1, Usage(100, 10)),
        e.PlanUpdated((PlanStep("one", "done"), PlanStep("two", "pending"))),
        *_turn(2, "Done."),
        *_end_run(2),
    ),
    "an approval": _begin_chat(
        *_turn(1, "", RUN), e.PermissionRequested("1.1", SECOND, "high", "risky", "run_command", "h")
    ),
    "an approval that was given": _begin_chat(
        *_turn(1, "", RUN),
        e.PermissionRequested("1.1", SECOND, "high", "risky", "run_command", "h"),
        e.PermissionCompleted("1.1", "allow", "person"),
        e.ExecutionStart(SECOND, "run_command", args_summary="make"),
    ),
    "a failed attempt and a compaction cost tokens": _begin_chat(
        e.TurnStart(1, "m:x"),
        e.TurnRetry(1, 1, "overloaded", "busy", 2.0, usage=Usage(50, 5)),
        e.ModelCall("compaction", Usage(30, 3)),
        e.CompactionComplete("manual", usage=Usage(30, 3)),
        *_turn(1, "Done.")[1:],
        *_end_run(1),
    ),
    "an edit": _begin_chat(
        *_turn(1, "No."), *_end_run(1), e.UserMessage("Do it now.", edits=3), *_turn(2, "Yes."), *_end_run(2)
    ),
}
RECORDED = {"ended": ended_log, "asking": asking_log, "question": question_log, "long": lambda: long_log(80)}
LIVE: dict[str, list[tuple[int, e.Event]]] = {
    "text that comes": [(1, e.SessionCreated(ChatOptions(model="m:x"))), (2, e.UserMessage("Hi.")),
        (3, e.TurnStart(1, "m:x")), (0, e.ReasoningDelta(1, "Hm.")), (0, e.MessageDelta(1, "Hel")),
        (0, e.MessageDelta(1, "lo"))],
    "text that is begun again": [(1, e.SessionCreated(ChatOptions(model="m:x"))), (2, e.UserMessage("Hi.")),
        (3, e.TurnStart(1, "m:x")), (0, e.MessageDelta(1, "Hel")), (0, e.AssistantReset(1)),
        (0, e.MessageDelta(1, "Good day"))],
}  # fmt: skip


def _envelopes(numbered: Sequence[tuple[int, e.Event]]) -> list[e.Envelope]:
    return [e.Envelope(seq, ChatId("c_1"), 1_000 * at, event) for at, (seq, event) in enumerate(numbered, 1)]


def test_the_web_app_shows_the_same_conversation() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    chats = {name: _envelopes(list(enumerate(log, 1))) for name, log in CASES.items()}
    chats |= {name: _envelopes(log) for name, log in LIVE.items()}
    recorded = {name: _envelopes(list(enumerate(log(), 1))) for name, log in RECORDED.items()}
    events = [[wire.to_dict(each) for each in chat] for chat in (chats | recorded).values()]
    module = (Path(treadle.__file__).parent / "frontends" / "web" / "chat-fold.js").as_uri()
    program = [node, "--input-type=module", "-e", OUTLINE, module]
    run = subprocess.run(program, input=json.dumps(events), capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    outlines = dict(zip(chats | recorded, json.loads(run.stdout), strict=True))
    for name, chat in (chats | recorded).items():
        expected = outline(chat)
        if not any(isinstance(each.data, e.TitleChanged) for each in chat):
            expected["title"] = ""  # the terminal app uses the first message until then
        if name in recorded or not isinstance(chat[-1].data, e.RunEnd):
            # The web app counts the cost of a message, as version 2 records it; the terminal app that of a whole turn.
            del expected["tokens"], outlines[name]["tokens"]
        assert outlines[name] == expected, name
