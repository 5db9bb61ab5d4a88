"""Converts the log to updates of the Agent Client Protocol: recorded and live events alike, all text inert (S-12)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from acp import schema as a
from acp.helpers import SessionUpdate
from acp.helpers import ToolCallContentVariant as Content

from treadle.base.inert import make_inert
from treadle.base.types import CallKey
from treadle.diff.diff import Texts
from treadle.frontends.acp import content as shapes
from treadle.frontends.presentation.notices import describe_end, make_notice
from treadle.protocol import events as e
from treadle.protocol.files import FileChange, decode_path
from treadle.protocol.simple import SimpleView, Token
from treadle.protocol.views import QUIET

Update = SessionUpdate | a.ConfigOptionUpdate | a.UsageUpdate
TextsOf = Callable[[FileChange], Awaitable[Texts]]

AGAIN = "\n\n*(the answer was cut off and is given again)*\n\n"
MOST_DIFFS = 20
MOST_TEXT = 400_000  # Most characters of a changed file that is shown as a diff. A larger file is not shown.
_TAIL = 16_000
_STATUS: dict[str, a.PlanEntryStatus] = {"done": "completed", "in_progress": "in_progress"}


class Projection:
    """Feed it every envelope of the chat, in order. `texts`: returns the text before and after a change. `terminals`:
    True if the editor shows output as a terminal."""

    def __init__(self, root: str, texts: TextsOf, *, terminals: bool = False) -> None:
        self._root, self._texts, self._terminals = root, texts, terminals
        self._view = SimpleView()
        self._shown: tuple[int, str] = (0, "")  # The turn, and what the editor has of its text.
        self._thought = 0  # The turn of which thinking was shown live.
        self._calls: dict[CallKey, _Call] = {}
        self.said: list[str] = []  # Messages that the editor shows already, because they were typed there.

    async def show(self, envelope: e.Envelope) -> list[Update]:
        tokens = [word for _, word in self._view.show(envelope) if isinstance(word, Token)]
        texts: list[Update] = [update for word in tokens for update in self._convert_text(word)]
        match envelope.data:
            case e.FilesChanged(call=call, files=files) if call in self._calls:
                return [await self._build_diff_update(call, files)]
            case e.AssistantMessage() as message:
                thinking = "\n\n".join(block.text for block in message.reasoning if block.text)
                thoughts = [shapes.make_thought_chunk(thinking)] if thinking and self._thought != message.turn else []
                return [*thoughts, *texts, *self._start_calls(message)]
            case data:
                return [*texts, *self._convert_event(data)]

    def _convert_event(self, data: e.Event) -> list[Update]:
        match data:
            case e.UserMessage(content=content, source="person"):
                if content in self.said:
                    self.said.remove(content)
                    return []
                return [shapes.make_user_chunk(content)]
            case e.ReasoningDelta(turn=turn, text=text):
                self._thought = turn
                return [shapes.make_thought_chunk(text)]
            case e.AssistantReset(turn=turn) if self._thought == turn:
                return [shapes.make_thought_chunk("\n\n")]
            case e.ExecutionStart() | e.ExecutionOutput() | e.ExecutionComplete():
                return self._convert_execution(data)
            case e.PlanUpdated(steps=steps):
                entries: list[a.PlanEntry] = []
                for step in steps:
                    status = _STATUS.get(step.status, "pending")
                    entries.append(a.PlanEntry(content=make_inert(step.text), priority="medium", status=status))
                return [a.AgentPlanUpdate(session_update="plan", entries=entries)]
            case e.TaskComplete(summary=summary) if summary:
                return [shapes.make_chunk(summary)]
            case e.TitleChanged(title=title):
                return [a.SessionInfoUpdate(session_update="session_info_update", title=make_inert(title))]
            case e.UsageInfo(tokens=tokens, window=window, cost=cost):
                price = a.Cost(amount=cost, currency="USD")
                return [a.UsageUpdate(session_update="usage_update", used=tokens, size=window, cost=price)]
            case e.RunEnd(reason="interrupted" | "budget" | "guard" | "turn_cap" | "incomplete" as reason, why=words):
                return [shapes.make_remark(describe_end(e.SessionIdle(reason, words)))]
            case e.OptionsChanged() | e.Interrupted() | e.CompactionStart():
                return []
            case _:
                styled_notice = make_notice(data)
                return [shapes.make_remark(styled_notice[0])] if styled_notice is not None else []

    def _convert_text(self, word: Token) -> list[a.AgentMessageChunk]:
        """The protocol cannot take text back: an attempt that differs from a failed one is sent from its beginning."""
        turn, had = self._shown if word.turn and word.turn == self._shown[0] else (word.turn, "")
        again = had[: word.at] + word.text
        self._shown = turn, again
        return [shapes.make_chunk(word.text if word.at == len(had) else AGAIN + again)] if word.text else []

    def _start_calls(self, message: e.AssistantMessage) -> list[Update]:
        updates: list[Update] = []
        for request in (each for each in message.tool_requests if each.name not in QUIET):
            self._calls[request.call] = _Call(request.name)
            title, kind = shapes.format_title(request.name, request.arguments), shapes.get_tool_kind(request.name)
            start = a.ToolCallStart(session_update="tool_call", tool_call_id=request.call, title=title, kind=kind)
            start.status, start.locations = "pending", shapes.find_locations(self._root, request.arguments)
            updates.append(start)
        return updates

    def _convert_execution(self, data: e.ExecutionStart | e.ExecutionOutput | e.ExecutionComplete) -> list[Update]:
        if (tool_call := self._calls.get(data.call)) is None:
            return []
        match data:
            case e.ExecutionStart(arguments=arguments):
                tool_call.opened = self._terminals and tool_call.executes
                content = [_make_terminal(data.call)] if tool_call.opened else None
                update = _make_progress(data.call, status="in_progress", raw_input=arguments, content=content)
                if tool_call.opened:
                    update.field_meta = {"terminal_info": {"terminal_id": data.call, "cwd": self._root}}
                return [update]
            case e.ExecutionOutput(text=text) if tool_call.opened:
                update = _make_progress(data.call)
                update.field_meta = {"terminal_output": {"terminal_id": data.call, "data": make_inert(text)}}
                return [update]
            case e.ExecutionOutput(text=text):
                tool_call.output = (tool_call.output + text)[-_TAIL:]
                return [_make_progress(data.call, content=[shapes.fence_text(tool_call.output)])]
            case e.ExecutionComplete():
                return [self._complete(tool_call, data)]

    def _complete(self, tool_call: "_Call", data: e.ExecutionComplete) -> Update:
        result = data.result if data.success else data.error or data.result
        tool_call.content = [shapes.fence_text(result)] if result and not (tool_call.edits and data.success) else []
        if tool_call.opened:
            tool_call.content = [_make_terminal(data.call)]
        update = _make_progress(data.call, status="completed" if data.success else "failed", content=tool_call.content)
        if tool_call.opened:
            update.field_meta = {"terminal_exit": {"terminal_id": data.call, "exit_code": 0 if data.success else 1}}
        return update

    async def _build_diff_update(self, call: CallKey, files: Sequence[FileChange]) -> Update:
        tool_call = self._calls[call]
        diffs: list[Content] = []
        for change in files[:MOST_DIFFS]:
            old, new = await self._texts(change)
            if old is not None and new is not None and len(old) + len(new) <= MOST_TEXT:
                is_new = change.before is None or change.before.kind != "file"
                diffs.append(shapes.make_diff(self._build_path(change), None if is_new else old, new))
        file_locations = [a.ToolCallLocation(path=self._build_path(change)) for change in files[:MOST_DIFFS]]
        return _make_progress(call, content=[*tool_call.content, *diffs], locations=file_locations)

    def _build_path(self, change: FileChange) -> str:
        return f"{self._root}/{decode_path(change.path)}"


class _Call:
    def __init__(self, name: str) -> None:
        self.executes = shapes.get_tool_kind(name) == "execute"
        self.edits = shapes.get_tool_kind(name) == "edit"
        self.opened = False  # True if the output is shown as a terminal.
        self.output = ""
        self.content: list[Content] = []


def _make_terminal(call: CallKey) -> a.TerminalToolCallContent:
    return a.TerminalToolCallContent(type="terminal", terminal_id=call)


def _make_progress(call: CallKey, **fields: Any) -> a.ToolCallProgress:
    return a.ToolCallProgress(session_update="tool_call_update", tool_call_id=call, **fields)
