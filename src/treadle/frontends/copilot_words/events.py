"""Translates events of a chat to those of the SDKs: their names, their payloads, one id for the same event live and on
reload (D-04). Events without an equivalent in the SDKs become custom notifications of the source `treadle`. Requests to
a program (`permission.requested` and its like) are sent by `requests`, which may ask again."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from treadle import __version__
from treadle.frontends.copilot_words.names import shown_arguments, shown_name
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.events import Envelope

SdkEvent = dict[str, Any]
Data = dict[str, Any]
Told = tuple[str, Data, bool]
"""A type, its payload, and whether it is only live."""

_SPACE = UUID("6f0f3f0e-5f0d-4c86-9a53-7c1f4b2a9d11")
_NOT_TOLD = (
    *(e.PermissionRequested, e.ExternalToolRequested, e.UserInputRequested, e.ActionRequired, e.AssistantReset),
    e.RunEnd,  # session.idle is its echo
)
_TRIGGERS = {"context_limit": "context_limit_retry"}
_ERRORS = {"auth": "authentication"}
_CODES = {"denied": "denied", "rejected": "rejected", "timeout": "timeout", "interrupted": "aborted"}
MODES = {"autopilot": "autopilot", "read-only": "plan"}
APPROVED, REFUSED = "approved", "denied-interactively-by-user"


def stamp(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_id(chat: str, *place: object) -> str:
    return str(uuid5(_SPACE, ":".join((chat, *map(str, place)))))


class Telling:
    """The events of one chat. `shown_model` gives the name that programs know a model by."""

    def __init__(self, chat: str, shown_model: Callable[[str], str]) -> None:
        self.chat = chat
        self.shown_model = shown_model
        self.model = ""
        self.messages = 0
        self._last: str | None = None
        self._live = 0

    def tell(self, envelope: Envelope) -> list[SdkEvent]:
        """Return the SDK events for an event; empty if it is reported in another way."""
        if isinstance(envelope.data, _NOT_TOLD):
            return []
        self.messages += isinstance(envelope.data, e.UserMessage | e.AssistantMessage | e.ExecutionComplete)
        events = []
        for number, (kind, data, live) in enumerate(self._translate_event(envelope)):
            id = event_id(self.chat, envelope.seq, number) if envelope.seq else ""
            events.append(self._make(kind, data, envelope.time_ms, live, id))
        return events

    def live(self, kind: str, data: Data, time_ms: int) -> SdkEvent:
        """An event that is not in the log."""
        return self._make(kind, data, time_ms, True)

    def _make(self, kind: str, data: Data, time_ms: int, live: bool, id: str = "") -> SdkEvent:
        self._live += not id
        event: SdkEvent = {"id": id or event_id(self.chat, "live", hash(self), self._live), "timestamp": stamp(time_ms)}
        event |= {"parentId": self._last, "type": kind, "data": data}
        if live or not id:
            return {**event, "ephemeral": True}
        self._last = id
        return event

    def _model_change(self, changes: Mapping[str, Any]) -> Data:
        previous = self.shown_model(self.model)
        data: Data = {"newModel": previous, "previousModel": previous}
        if "model" in changes:
            data["newModel"] = self.shown_model(str(changes["model"]))
        if changes.get("reasoning_effort"):
            data["reasoningEffort"] = changes["reasoning_effort"]
        return data

    def message_id(self, turn: int) -> str:
        return event_id(self.chat, "message", turn)

    def reasoning_id(self, turn: int) -> str:
        return event_id(self.chat, "reasoning", turn)

    def _translate_event(self, envelope: Envelope) -> Iterator[Told]:
        match envelope.data:
            case e.AssistantMessage() as answer:
                yield from self._answer(answer)
            case e.OptionsChanged(changes=changes):
                if "model" in changes or "reasoning_effort" in changes:
                    yield "session.model_change", self._model_change(changes), False
                if "mode" in changes:
                    mode = MODES.get(str(changes["mode"]), "interactive")
                    yield "session.mode_changed", {"newMode": mode, "previousMode": "interactive"}, False
            case e.PermissionCompleted(by="policy"):
                return  # decided by a rule, not by a person
            case data if type(data) in _WORDS:
                kind, live, payload = _WORDS[type(data)]
                yield kind, payload(self, data, envelope), live
            case other:
                notification = {"source": "treadle", "name": envelope.type, "version": 1}
                yield "session.custom_notification", {**notification, "payload": msgspec.to_builtins(other)}, True

    def _answer(self, answer: e.AssistantMessage) -> Iterator[Told]:
        model = self.shown_model(self.model)
        data: Data = {"messageId": self.message_id(answer.turn), "content": answer.content, "turnId": str(answer.turn)}
        data["model"] = model
        if reasoning := "\n".join(block.text for block in answer.reasoning if block.text):
            yield "assistant.reasoning", {"reasoningId": self.reasoning_id(answer.turn), "content": reasoning}, False
            data["reasoningText"] = reasoning
        if answer.tool_requests:
            data["toolRequests"] = [_request(request) for request in answer.tool_requests]
        if answer.usage is not None:
            data["outputTokens"] = answer.usage.output
        yield "assistant.message", data, False
        if answer.usage is not None:
            yield "assistant.usage", _usage(answer.usage, model), True


# -- payloads -----------------------------------------------------------------------------------------------------


def _start(telling: Telling, created: e.SessionCreated, envelope: Envelope) -> Data:
    telling.model = created.options.model
    data = {"sessionId": telling.chat, "version": 1, "producer": "treadle", "copilotVersion": __version__}
    data |= {"startTime": stamp(envelope.time_ms), "selectedModel": telling.shown_model(created.options.model)}
    return {**data, "context": {"cwd": created.options.root}}


def _turn(telling: Telling, turn_start: e.TurnStart, _envelope: Envelope) -> Data:
    telling.model = turn_start.model
    return {"turnId": str(turn_start.turn), "model": telling.shown_model(turn_start.model)}


def _user_message(telling: Telling, message: e.UserMessage, envelope: Envelope) -> Data:
    id = message.queue_id or event_id(telling.chat, envelope.seq, 0)
    data: Data = {"content": message.content, "delivery": message.delivery, "messageId": id}
    if message.source == "autopilot":
        data["isAutopilotContinuation"] = True
    return {**data, "source": message.source} if message.source != "person" else data


def _request(request: ToolRequest) -> Data:
    try:
        arguments = msgspec.json.decode(request.arguments or "{}")
    except msgspec.MsgspecError:
        arguments = request.arguments
    if isinstance(arguments, dict):
        arguments = shown_arguments(request.name, arguments)
    return {"toolCallId": request.call, "name": shown_name(request.name), "arguments": arguments, "type": "function"}


def _usage(usage: Usage, model: str) -> Data:
    data = {"model": model, "inputTokens": usage.input, "outputTokens": usage.output, "cost": usage.usd}
    return {**data, "cacheReadTokens": usage.cached, "reasoningTokens": usage.reasoning}


def _call(_telling: Telling, call: e.ExecutionStart, _envelope: Envelope) -> Data:
    data = {"toolCallId": call.call, "toolName": shown_name(call.name), "turnId": call.call.partition(".")[0]}
    return {**data, "arguments": shown_arguments(call.name, call.arguments)}


def _piece(_telling: Telling, piece: e.ToolCallDelta, _envelope: Envelope) -> Data:
    data = {"toolCallId": f"{piece.turn}.{piece.position}", "inputDelta": piece.arguments}
    return {**data, "toolName": shown_name(piece.name)} if piece.name else data


def _result(_telling: Telling, completion: e.ExecutionComplete, _envelope: Envelope) -> Data:
    call, success = completion.call, completion.success
    data: Data = {"toolCallId": call, "success": success, "turnId": call.partition(".")[0]}
    if success:
        return {**data, "result": {"content": completion.result}}
    code = _CODES.get(completion.synthetic, "failure")
    return {**data, "error": {"message": completion.error or completion.result, "code": code}}


def _permission(_telling: Telling, completion: e.PermissionCompleted, _envelope: Envelope) -> Data:
    is_allowed = completion.decision == "allow"
    result = {"kind": APPROVED} if is_allowed else {"kind": REFUSED, "feedback": completion.feedback}
    return {"requestId": completion.action, "toolCallId": completion.action, "result": result}


def _compaction(_telling: Telling, completion: e.CompactionComplete, _envelope: Envelope) -> Data:
    data: Data = {
        "success": completion.success,
        "trigger": _TRIGGERS.get(completion.trigger, completion.trigger),
        "preCompactionTokens": completion.tokens_before,
        "postCompactionTokens": completion.tokens_after,
        "tokensRemoved": max(0, completion.tokens_before - completion.tokens_after),
        "messagesRemoved": completion.upto,
        "compactionTokensUsed": {"inputTokens": completion.usage.input, "outputTokens": completion.usage.output},
    }
    more = {"summaryContent": completion.summary, "error": completion.error}
    return data | {name: text for name, text in more.items() if text}


def _limit(_telling: Telling, limit: e.LimitWarning | e.LimitReached, envelope: Envelope) -> Data:
    words = envelope.type.removeprefix("session.").replace("_", " ")
    return {"warningType": "limit", "message": f"{words}: {limit.kind}"}


def _notice(_telling: Telling, notice: e.ModelNotice | e.SandboxNotice, _envelope: Envelope) -> Data:
    return {"infoType": "notification", "message": notice.text}


_WORDS: Mapping[type, tuple[str, bool, Callable[[Telling, Any, Envelope], Data]]] = {
    e.SessionCreated: ("session.start", False, _start),
    e.UserMessage: ("user.message", False, _user_message),
    e.TurnStart: ("assistant.turn_start", False, _turn),
    e.TurnEnd: ("assistant.turn_end", False, lambda _t, d, _e: {"turnId": str(d.turn)}),
    e.TurnRetry: ("assistant.turn_retry", True, lambda _t, d, _e: {"turnId": str(d.turn), "reason": d.message}),
    e.MessageDelta: (
        "assistant.message_delta",
        True,
        lambda t, d, _e: {"messageId": t.message_id(d.turn), "deltaContent": d.text},
    ),
    e.ReasoningDelta: (
        "assistant.reasoning_delta",
        True,
        lambda t, d, _e: {"reasoningId": t.reasoning_id(d.turn), "deltaContent": d.text},
    ),
    e.ToolCallDelta: ("assistant.tool_call_delta", True, _piece),
    e.ExecutionStart: ("tool.execution_start", False, _call),
    e.ExecutionComplete: ("tool.execution_complete", False, _result),
    e.ExecutionOutput: (
        "tool.execution_partial_result",
        True,
        lambda _t, d, _e: {"toolCallId": d.call, "partialOutput": d.text},
    ),
    e.PermissionCompleted: ("permission.completed", True, _permission),
    e.ExternalToolCompleted: ("external_tool.completed", True, lambda _t, d, _e: {"requestId": d.call}),
    e.UserInputCompleted: (
        "user_input.completed",
        True,
        lambda _t, d, _e: {"requestId": d.action, "answer": d.answer},
    ),
    e.SessionIdle: ("session.idle", True, lambda _t, d, _e: {"aborted": True} if d.reason == "interrupted" else {}),
    e.SessionError: (
        "session.error",
        False,
        lambda _t, d, _e: {"errorType": _ERRORS.get(d.error_class, d.error_class), "message": d.message},
    ),
    e.Interrupted: ("abort", False, lambda _t, _d, _e: {"reason": "user_initiated"}),
    e.TaskComplete: ("session.task_complete", False, lambda _t, d, _e: {"summary": d.summary, "success": True}),
    e.TitleChanged: ("session.title_changed", True, lambda _t, d, _e: {"title": d.title}),
    e.CompactionStart: (
        "session.compaction_start",
        False,
        lambda _t, d, _e: {"trigger": _TRIGGERS.get(d.trigger, d.trigger), "currentTokens": d.tokens_before},
    ),
    e.CompactionComplete: ("session.compaction_complete", False, _compaction),
    e.UsageInfo: (
        "session.usage_info",
        True,
        lambda t, d, _e: {"tokenLimit": d.window, "currentTokens": d.tokens, "messagesLength": t.messages + 1},
    ),
    e.QueueChanged: ("pending_messages.modified", True, lambda _t, _d, _e: {}),
    e.SessionRewound: (
        "session.snapshot_rewind",
        True,
        lambda t, d, at: {"upToEventId": event_id(t.chat, d.message, 0), "eventsRemoved": at.seq - d.message},
    ),
    e.ModelNotice: ("session.info", True, _notice),
    e.SandboxNotice: ("session.info", True, _notice),
    e.LimitWarning: ("session.warning", True, _limit),
    e.LimitReached: ("session.warning", True, _limit),
}
"""By type: the name that it has there, whether it is only live there, and its payload."""
