"""Translates events and objects of Treadle to those of the SDKs: one id for the same event live and on reload (D-04);
an event without an equivalent is a custom notification. `requests` sends `permission.requested` and its like."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid5

import msgspec

from treadle import __version__
from treadle.frontends.copilot_words.config import CustomAgent
from treadle.frontends.copilot_words.names import to_shown_arguments, to_shown_name
from treadle.ports.model import ModelInfo
from treadle.ports.store import Listed
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.events import Envelope
from treadle.protocol.tools import ToolSpec
from treadle.protocol.wire import format_time

SdkEvent = dict[str, Any]
Data = dict[str, Any]
Told = tuple[str, Data, bool]  # A type, its payload, and whether it is only live.

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


def make_event_id(chat: str, *place: object) -> str:
    return str(uuid5(_SPACE, ":".join((chat, *map(str, place)))))


class Telling:
    """The events of one chat. `shown_model` gives the name that programs know a model by."""

    def __init__(self, chat: str, shown_model: Callable[[str], str]) -> None:
        self.chat, self.shown_model = chat, shown_model
        self.model, self.messages = "", 0
        self._last: str | None = None
        self._live = 0

    def tell(self, envelope: Envelope) -> list[SdkEvent]:
        """Return the SDK events for an event; empty if it is reported in another way."""
        if isinstance(envelope.data, _NOT_TOLD):
            return []
        self.messages += isinstance(envelope.data, e.UserMessage | e.AssistantMessage | e.ExecutionComplete)
        events = []
        for number, (kind, data, live) in enumerate(self._translate_event(envelope)):
            id = make_event_id(self.chat, envelope.seq, number) if envelope.seq else ""
            events.append(self._make(kind, data, envelope.time_ms, live, id))
        return events

    def make_live_event(self, kind: str, data: Data, time_ms: int) -> SdkEvent:
        return self._make(kind, data, time_ms, True)

    def _make(self, kind: str, data: Data, time_ms: int, live: bool, id: str = "") -> SdkEvent:
        self._live += not id
        event_id = id or make_event_id(self.chat, "live", hash(self), self._live)
        event: SdkEvent = {"id": event_id, "timestamp": format_time(time_ms)}
        event |= {"parentId": self._last, "type": kind, "data": data}
        if live or not id:
            return {**event, "ephemeral": True}
        self._last = id
        return event

    def make_message_id(self, turn: int) -> str:
        return make_event_id(self.chat, "message", turn)

    def make_reasoning_id(self, turn: int) -> str:
        return make_event_id(self.chat, "reasoning", turn)

    def _translate_event(self, envelope: Envelope) -> Iterator[Told]:
        match envelope.data:
            case e.AssistantMessage() as answer:
                yield from self._translate_answer(answer)
            case e.OptionsChanged(changes=changes):
                yield from self._translate_changes(changes)
            case e.PermissionCompleted(by="policy"):
                return  # decided by a rule, not by a person
            case data:
                notification = {"source": "treadle", "name": envelope.type, "version": 1}
                yield (
                    self._translate_turn_event(data, envelope)
                    or self._translate_session_event(data, envelope)
                    or ("session.custom_notification", {**notification, "payload": msgspec.to_builtins(data)}, True)
                )

    def _translate_answer(self, answer: e.AssistantMessage) -> Iterator[Told]:
        model = self.shown_model(self.model)
        message_id = self.make_message_id(answer.turn)
        data: Data = {"messageId": message_id, "content": answer.content, "turnId": str(answer.turn), "model": model}
        if reasoning := "\n".join(block.text for block in answer.reasoning if block.text):
            block = {"reasoningId": self.make_reasoning_id(answer.turn), "content": reasoning}
            yield "assistant.reasoning", block, False
            data["reasoningText"] = reasoning
        if answer.tool_requests:
            data["toolRequests"] = [_format_request(request) for request in answer.tool_requests]
        if answer.usage is None:
            yield "assistant.message", data, False
            return
        usage = answer.usage
        yield "assistant.message", {**data, "outputTokens": usage.output}, False
        tokens = {"model": model, "inputTokens": usage.input, "outputTokens": usage.output, "cost": usage.usd}
        yield "assistant.usage", {**tokens, "cacheReadTokens": usage.cached, "reasoningTokens": usage.reasoning}, True

    def _translate_changes(self, changes: Mapping[str, Any]) -> Iterator[Told]:
        if "model" in changes or "reasoning_effort" in changes:
            previous = self.shown_model(self.model)
            new = self.shown_model(str(changes["model"])) if "model" in changes else previous
            effort = {"reasoningEffort": changes["reasoning_effort"]} if changes.get("reasoning_effort") else {}
            yield "session.model_change", {"newModel": new, "previousModel": previous, **effort}, False
        if "mode" in changes:
            mode = MODES.get(str(changes["mode"]), "interactive")
            yield "session.mode_changed", {"newMode": mode, "previousMode": "interactive"}, False

    def _translate_turn_event(self, data: e.Event, envelope: Envelope) -> Told | None:
        """Events of a turn: the type that each has there, its payload, and whether it is only live there."""
        match data:
            case e.MessageDelta(turn=turn, text=text):
                return "assistant.message_delta", {"messageId": self.make_message_id(turn), "deltaContent": text}, True
            case e.ReasoningDelta(turn=turn, text=text):
                piece = {"reasoningId": self.make_reasoning_id(turn), "deltaContent": text}
                return "assistant.reasoning_delta", piece, True
            case e.ToolCallDelta(turn=turn, position=position, name=name, arguments=arguments):
                piece = {"toolCallId": f"{turn}.{position}", "inputDelta": arguments}
                return "assistant.tool_call_delta", piece | ({"toolName": to_shown_name(name)} if name else {}), True
            case e.ExecutionOutput(call=call, text=text):
                return "tool.execution_partial_result", {"toolCallId": call, "partialOutput": text}, True
            case e.UserMessage(source=source):
                id = data.queue_id or make_event_id(self.chat, envelope.seq, 0)
                message: Data = {"content": data.content, "delivery": data.delivery, "messageId": id}
                message |= {"isAutopilotContinuation": True} if source == "autopilot" else {}
                return "user.message", message | ({"source": source} if source != "person" else {}), False
            case e.TurnStart(turn=turn, model=model):
                self.model = model
                return "assistant.turn_start", {"turnId": str(turn), "model": self.shown_model(model)}, False
            case e.TurnEnd(turn=turn):
                return "assistant.turn_end", {"turnId": str(turn)}, False
            case e.TurnRetry(turn=turn, message=text):
                return "assistant.turn_retry", {"turnId": str(turn), "reason": text}, True
            case e.ExecutionStart(call=call, name=name):
                start = {"toolCallId": call, "toolName": to_shown_name(name), "turnId": call.partition(".")[0]}
                return "tool.execution_start", {**start, "arguments": to_shown_arguments(name, data.arguments)}, False
            case e.ExecutionComplete(call=call, success=success):
                code = _CODES.get(data.synthetic, "failure")
                error = {"error": {"message": data.error or data.result, "code": code}}
                result: Data = {"toolCallId": call, "success": success, "turnId": call.partition(".")[0]}
                result |= {"result": {"content": data.result}} if success else error
                return "tool.execution_complete", result, False
            case e.PermissionCompleted(action=action, decision=decision):
                outcome = {"kind": REFUSED, "feedback": data.feedback} if decision != "allow" else {"kind": APPROVED}
                return "permission.completed", {"requestId": action, "toolCallId": action, "result": outcome}, True
            case e.ExternalToolCompleted(call=call):
                return "external_tool.completed", {"requestId": call}, True
            case e.UserInputCompleted(action=action, answer=text):
                return "user_input.completed", {"requestId": action, "answer": text}, True
            case _:
                return None

    def _translate_session_event(self, data: e.Event, envelope: Envelope) -> Told | None:
        match data:
            case e.SessionCreated(options=options):
                self.model = options.model
                start = {"sessionId": self.chat, "version": 1, "producer": "treadle", "copilotVersion": __version__}
                start |= {"startTime": format_time(envelope.time_ms), "selectedModel": self.shown_model(options.model)}
                return "session.start", {**start, "context": {"cwd": options.root}}, False
            case e.SessionIdle(reason=reason):
                return "session.idle", {"aborted": True} if reason == "interrupted" else {}, True
            case e.SessionError(error_class=kind, message=text):
                return "session.error", {"errorType": _ERRORS.get(kind, kind), "message": text}, False
            case e.Interrupted():
                return "abort", {"reason": "user_initiated"}, False
            case e.TaskComplete(summary=summary):
                return "session.task_complete", {"summary": summary, "success": True}, False
            case e.TitleChanged(title=title):
                return "session.title_changed", {"title": title}, True
            case e.CompactionStart(trigger=trigger, tokens_before=tokens):
                compaction = {"trigger": _TRIGGERS.get(trigger, trigger), "currentTokens": tokens}
                return "session.compaction_start", compaction, False
            case e.CompactionComplete():
                return "session.compaction_complete", _format_compaction(data), False
            case e.UsageInfo(window=window, tokens=tokens):
                usage = {"tokenLimit": window, "currentTokens": tokens, "messagesLength": self.messages + 1}
                return "session.usage_info", usage, True
            case e.QueueChanged():
                return "pending_messages.modified", {}, True
            case e.SessionRewound(message=message):
                rewind = {"upToEventId": make_event_id(self.chat, message, 0), "eventsRemoved": envelope.seq - message}
                return "session.snapshot_rewind", rewind, True
            case e.ModelNotice(text=text) | e.SandboxNotice(text=text):
                return "session.info", {"infoType": "notification", "message": text}, True
            case e.LimitWarning(kind=kind) | e.LimitReached(kind=kind):
                words = envelope.type.removeprefix("session.").replace("_", " ")
                return "session.warning", {"warningType": "limit", "message": f"{words}: {kind}"}, True
            case _:
                return None


def _format_request(request: ToolRequest) -> Data:
    try:
        arguments = msgspec.json.decode(request.arguments or "{}")
    except msgspec.MsgspecError:
        arguments = request.arguments
    if isinstance(arguments, dict):
        arguments = to_shown_arguments(request.name, arguments)
    return {"toolCallId": request.call, "name": to_shown_name(request.name), "arguments": arguments, "type": "function"}


def _format_compaction(completion: e.CompactionComplete) -> Data:
    old, new, usage = completion.tokens_before, completion.tokens_after, completion.usage
    data: Data = {"success": completion.success, "trigger": _TRIGGERS.get(completion.trigger, completion.trigger)}
    data |= {"preCompactionTokens": old, "postCompactionTokens": new, "tokensRemoved": max(0, old - new)}
    data["messagesRemoved"] = completion.upto
    data["compactionTokensUsed"] = {"inputTokens": usage.input, "outputTokens": usage.output}
    more = {"summaryContent": completion.summary, "error": completion.error}
    return data | {name: text for name, text in more.items() if text}


def format_session(listed: Listed) -> dict[str, Any]:
    summary = listed.summary
    times = {"startTime": format_time(summary.created_ms), "modifiedTime": format_time(summary.updated_ms)}
    fields = {"sessionId": summary.chat, **times, "isRemote": False, "context": {"cwd": summary.root}}
    return {**fields, "summary": summary.title} if summary.title else fields


def format_model(name: str, info: ModelInfo) -> dict[str, Any]:
    limits = {"max_context_window_tokens": info.window, "max_prompt_tokens": info.window - info.max_output}
    efforts = info.offered_efforts
    supports = {"vision": info.vision, "reasoningEffort": bool(efforts)}
    fields = {"id": name, "name": info.name, "capabilities": {"supports": supports, "limits": limits}}
    return {**fields, "supportedReasoningEfforts": list(efforts)} if efforts else fields


def format_tool(spec: ToolSpec) -> dict[str, Any]:
    fields = {"name": to_shown_name(spec.name), "description": spec.description}
    return {**fields, "parameters": spec.parameters, "inputSchema": spec.parameters}


def format_agent(agent: CustomAgent) -> dict[str, Any]:
    fields = {"id": agent.name, "name": agent.name, "displayName": agent.display_name or agent.name}
    more = {"model": agent.model, "reasoningEffort": agent.reasoning_effort, "tools": agent.tools}
    more |= {"skills": agent.skills, "prompt": agent.prompt}
    return {**fields, "description": agent.description or "", **{name: value for name, value in more.items() if value}}
