"""What happened to a chat, in the words of the SDKs: their names, their payloads, one id for the same event live and on
reload (D-04). Events that the SDKs have no word for keep ours. What is asked of a program (`permission.requested` and
its like) is not told from here but by `requests`, which may ask again."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from treadle import __version__
from treadle.copilot_sdk.names import shown_arguments, shown_name
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.events import Envelope

SdkEvent = dict[str, Any]
Told = tuple[str, dict[str, Any], bool]
"""A type, its payload, and whether it is only live."""

_SPACE = UUID("6f0f3f0e-5f0d-4c86-9a53-7c1f4b2a9d11")
_ASKED = (e.PermissionRequested, e.ExternalToolRequested, e.UserInputRequested, e.ActionRequired, e.AssistantReset)
_TRIGGERS = {"context_limit": "context_limit_retry"}
MODES = {"autopilot": "autopilot", "read-only": "plan"}


def stamp(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event_id(chat: str, *place: object) -> str:
    return str(uuid5(_SPACE, ":".join((chat, *map(str, place)))))


class Telling:
    """The events of one chat. `shown_model` gives the name that programs know a model by."""

    def __init__(self, chat: str, shown_model: Callable[[str], str]) -> None:
        self._chat = chat
        self._shown_model = shown_model
        self._last: str | None = None
        self._live = 0
        self._model = ""
        self._messages = 0

    def tell(self, envelope: Envelope) -> list[SdkEvent]:
        """What the SDKs call this; nothing for what is told otherwise."""
        if isinstance(envelope.data, _ASKED):
            return []
        self._messages += isinstance(envelope.data, e.UserMessage | e.AssistantMessage | e.ExecutionComplete)
        told = self._told(envelope)
        made = []
        for number, (kind, data, live) in enumerate(told):
            if envelope.seq:
                made.append(self.make(kind, data, envelope.time_ms, event_id(self._chat, envelope.seq, number), live))
            else:
                made.append(self.live(kind, data, envelope.time_ms))
        return made

    def live(self, kind: str, data: dict[str, Any], time_ms: int) -> SdkEvent:
        """An event that is not in the log."""
        self._live += 1
        return self.make(kind, data, time_ms, event_id(self._chat, "live", id(self), self._live), True)

    def make(self, kind: str, data: dict[str, Any], time_ms: int, id: str, live: bool) -> SdkEvent:
        made: SdkEvent = {"id": id, "timestamp": stamp(time_ms), "parentId": self._last, "type": kind, "data": data}
        if live:
            made["ephemeral"] = True
        else:
            self._last = id
        return made

    def message_id(self, turn: int) -> str:
        return event_id(self._chat, "message", turn)

    # -- one function an event ----------------------------------------------------------------------------------------

    def _told(self, envelope: Envelope) -> Sequence[Told]:
        match envelope.data:
            case e.SessionCreated() as made:
                return [("session.start", self._start(made, envelope.time_ms), False)]
            case e.UserMessage() as said:
                own = event_id(self._chat, envelope.seq, 0)
                return [("user.message", _user_message(said, own), False)]
            case e.TurnStart(turn=turn, model=model):
                self._model = model
                return [("assistant.turn_start", {"turnId": str(turn), "model": self._shown_model(model)}, False)]
            case e.AssistantMessage() as answer:
                return self._answer(answer)
            case e.TurnEnd(turn=turn):
                return [("assistant.turn_end", {"turnId": str(turn)}, False)]
            case e.TurnRetry(turn=turn, message=message):
                return [("assistant.turn_retry", {"turnId": str(turn), "reason": message}, True)]
            case e.MessageDelta(turn=turn, text=text):
                return [("assistant.message_delta", {"messageId": self.message_id(turn), "deltaContent": text}, True)]
            case e.ReasoningDelta(turn=turn, text=text):
                data = {"reasoningId": event_id(self._chat, "reasoning", turn), "deltaContent": text}
                return [("assistant.reasoning_delta", data, True)]
            case e.ToolCallDelta(turn=turn, position=position, name=name, arguments=arguments):
                data = {"toolCallId": f"{turn}.{position}", "inputDelta": arguments}
                return [
                    ("assistant.tool_call_delta", {**data, **({"toolName": shown_name(name)} if name else {})}, True)
                ]
            case (
                e.ExecutionStart()
                | e.ExecutionComplete()
                | e.ExecutionOutput()
                | e.PermissionCompleted()
                | e.ExternalToolCompleted()
                | e.UserInputCompleted()
            ) as call:
                return self._call(call)
            case _:
                return self._session(envelope)

    def _call(self, event: e.Event) -> Sequence[Told]:
        match event:
            case e.ExecutionStart(call=call, name=name, arguments=arguments):
                data = {"toolCallId": call, "toolName": shown_name(name), "arguments": shown_arguments(name, arguments)}
                return [("tool.execution_start", {**data, "turnId": call.partition(".")[0]}, False)]
            case e.ExecutionComplete() as done:
                return [("tool.execution_complete", self._result(done), False)]
            case e.ExecutionOutput(call=call, text=text):
                return [("tool.execution_partial_result", {"toolCallId": call, "partialOutput": text}, True)]
            case e.PermissionCompleted(by="policy"):
                return []  # nobody was asked
            case e.PermissionCompleted(action=action, decision=decision, feedback=feedback):
                kind = "approved" if decision == "allow" else "denied-interactively-by-user"
                result = {"kind": kind, **({"feedback": feedback} if feedback and decision == "deny" else {})}
                return [("permission.completed", {"requestId": action, "toolCallId": action, "result": result}, True)]
            case e.ExternalToolCompleted(call=call):
                return [("external_tool.completed", {"requestId": call}, True)]
            case e.UserInputCompleted(action=action, answer=answer):
                return [("user_input.completed", {"requestId": action, "answer": answer}, True)]
            case _:
                return []

    def _session(self, envelope: Envelope) -> Sequence[Told]:
        match envelope.data:
            case e.SessionIdle(reason=reason):
                return [("session.idle", {"aborted": True} if reason == "interrupted" else {}, True)]
            case e.SessionError(error_class=kind, message=message):
                return [("session.error", {"errorType": _error_type(kind), "message": message}, False)]
            case e.Interrupted():
                return [("abort", {"reason": "user_initiated"}, False)]
            case e.TaskComplete(summary=summary):
                return [("session.task_complete", {"summary": summary, "success": True}, False)]
            case e.TitleChanged(title=title):
                return [("session.title_changed", {"title": title}, True)]
            case e.CompactionStart(trigger=trigger, tokens_before=tokens):
                data = {"trigger": _TRIGGERS.get(trigger, trigger), "currentTokens": tokens}
                return [("session.compaction_start", data, False)]
            case e.CompactionComplete() as done:
                return [("session.compaction_complete", _compaction(done), False)]
            case e.UsageInfo(tokens=tokens, window=window):
                data = {"tokenLimit": window, "currentTokens": tokens, "messagesLength": self._messages + 1}
                return [("session.usage_info", data, True)]
            case e.OptionsChanged(changes=changes):
                return list(self._options(changes))
            case e.QueueChanged():
                return [("pending_messages.modified", {}, True)]
            case e.SessionRewound(message=message):
                data = {"upToEventId": event_id(self._chat, message, 0), "eventsRemoved": envelope.seq - message}
                return [("session.snapshot_rewind", data, True)]
            case e.ModelNotice(text=text) | e.SandboxNotice(text=text):
                return [("session.info", {"infoType": "notification", "message": text}, True)]
            case e.LimitWarning(kind=kind) | e.LimitReached(kind=kind):
                message = f"{envelope.type.removeprefix('session.').replace('_', ' ')}: {kind}"
                return [("session.warning", {"warningType": "limit", "message": message}, True)]
            case e.RunEnd():
                return []  # session.idle is its echo
            case other:
                data = msgspec.to_builtins(other)
                return [(envelope.type, data, envelope.ephemeral)]

    def _options(self, changes: dict[str, Any]) -> list[Told]:
        told: list[Told] = []
        if "model" in changes:
            data = {
                "newModel": self._shown_model(str(changes["model"])),
                "previousModel": self._shown_model(self._model),
            }
            told.append(("session.model_change", data, False))
        if "mode" in changes:
            mode = MODES.get(str(changes["mode"]), "interactive")
            told.append(("session.mode_changed", {"newMode": mode, "previousMode": "interactive"}, False))
        return told

    # -- payloads -----------------------------------------------------------------------------------------------------

    def _start(self, made: e.SessionCreated, time_ms: int) -> dict[str, Any]:
        self._model = made.options.model
        return {
            "sessionId": self._chat,
            "version": 1,
            "producer": "treadle",
            "copilotVersion": __version__,
            "startTime": stamp(time_ms),
            "selectedModel": self._shown_model(made.options.model),
            "context": {"cwd": made.options.root},
        }

    def _answer(self, answer: e.AssistantMessage) -> list[Told]:
        told: list[Told] = []
        message, turn = self.message_id(answer.turn), str(answer.turn)
        model = self._shown_model(self._model)
        thought = "\n".join(block.text for block in answer.reasoning if block.text)
        if thought:
            reasoning = event_id(self._chat, "reasoning", turn)
            told.append(("assistant.reasoning", {"reasoningId": reasoning, "content": thought}, False))
        data: dict[str, Any] = {"messageId": message, "content": answer.content, "turnId": turn, "model": model}
        if answer.tool_requests:
            data["toolRequests"] = [_request(request) for request in answer.tool_requests]
        if thought:
            data["reasoningText"] = thought
        if answer.usage is not None:
            data["outputTokens"] = answer.usage.output
        told.append(("assistant.message", data, False))
        if answer.usage is not None:
            told.append(("assistant.usage", _usage(answer.usage, model), True))
        return told

    def _result(self, done: e.ExecutionComplete) -> dict[str, Any]:
        data: dict[str, Any] = {"toolCallId": done.call, "success": done.success}
        data["turnId"] = done.call.partition(".")[0]
        if done.success:
            data["result"] = {"content": done.result}
        else:
            code = {"denied": "denied", "interrupted": "aborted"}.get(done.synthetic, "failure")
            data["error"] = {"message": done.error or done.result, "code": code}
        return data


def _request(request: ToolRequest) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(request.arguments or "{}")
    except msgspec.MsgspecError:
        arguments = request.arguments
    if isinstance(arguments, dict):
        arguments = shown_arguments(request.name, arguments)
    return {
        "toolCallId": request.call,
        "name": shown_name(request.name),
        "arguments": arguments,
        "type": "function",
    }


def _user_message(said: e.UserMessage, id: str) -> dict[str, Any]:
    data: dict[str, Any] = {"content": said.content, "delivery": said.delivery, "messageId": said.queue_id or id}
    if said.source == "autopilot":
        data["isAutopilotContinuation"] = True
    if said.source != "person":
        data["source"] = said.source
    return data


def _usage(usage: Usage, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "cacheReadTokens": usage.cached,
        "reasoningTokens": usage.reasoning,
        "cost": usage.usd,
    }


def _compaction(done: e.CompactionComplete) -> dict[str, Any]:
    data: dict[str, Any] = {
        "success": done.success,
        "trigger": _TRIGGERS.get(done.trigger, done.trigger),
        "preCompactionTokens": done.tokens_before,
        "postCompactionTokens": done.tokens_after,
        "tokensRemoved": max(0, done.tokens_before - done.tokens_after),
        "messagesRemoved": done.upto,
        "compactionTokensUsed": {"inputTokens": done.usage.input, "outputTokens": done.usage.output},
    }
    if done.summary:
        data["summaryContent"] = done.summary
    return {**data, "error": done.error} if done.error else data


def _error_type(kind: str) -> str:
    """As the SDK's samples know them; ours where they have none."""
    return {"auth": "authentication", "rate_limit": "rate_limit", "quota": "quota"}.get(kind, kind)
