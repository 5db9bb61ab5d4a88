"""The MCP tools that Treadle offers to other agents. A task is a chat: it is stored before the call that begins it
returns, and it continues without a follower. After a crash, following it resumes it."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Literal

import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError as Refusal
from mcp_types import ToolAnnotations

from treadle._version import __version__
from treadle.base.file_system import is_below
from treadle.diff.diff import FileDiff
from treadle.errors import InvalidInput, NotFound, TreadleError
from treadle.library.agent import Agent
from treadle.library.chat import Chat
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry
from treadle.protocol.options import MODES
from treadle.protocol.trace_context import extract_traceparent

LABEL = "mcp"  # The label of the chats that this server began.
_WAIT_S = 25.0
_LONGEST_S = 300.0
_MOST_EVENTS = 200
_INSTRUCTIONS = (
    "Treadle is an agent that works in a project on this machine. start_task hands work over and returns at once; "
    "follow_task waits for news. When its status is requires_action, answer each open action with decide or answer. "
    "When it is idle, look at task_changes; undo_task takes everything back. A task survives restarts of this server."
)
_LONGEST_TEXT = 4_000
_LOOKS = ToolAnnotations(read_only_hint=True)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True)

Reply = dict[str, Any]


class TaskTools:
    """Where tasks are handed over. Work is done only below `roots`."""

    def __init__(self, agent: Agent, roots: Sequence[str]) -> None:
        self._agent = agent
        self._roots = [os.path.realpath(root) for root in roots]

    def make_server(self) -> MCPServer:
        mcp_server = MCPServer("treadle", version=__version__, instructions=_INSTRUCTIONS)
        tools: tuple[Any, ...] = (self.start_task, self.follow_task, self.list_tasks, self.send_message, self.decide)
        tools += (self.answer, self.stop_task, self.task_changes, self.undo_task)
        for tool in tools:
            hints = _LOOKS if tool.__name__ in ("follow_task", "list_tasks", "task_changes") else _CHANGES
            mcp_server.add_tool(_explain_refusals(tool), name=tool.__name__, annotations=hints)
        return mcp_server

    async def start_task(self, prompt: str, context: Context, root: str = "", mode: str = "", model: str = "") -> Reply:
        """Start a task. Returns its id at once; the work continues in the background.

        root: the folder to work in, if it is not the server's own. mode: read-only, confirm, review, ask, auto-edit or
        autopilot; it decides which actions need no approval. model: as provider:name."""
        options: dict[str, Any] = {"root": self._resolve_root(root), "interactive": True, "labels": (LABEL,)}
        if mode and mode not in MODES:
            raise InvalidInput(f"there is no mode {mode!r}; there is: {', '.join(MODES)}")
        options |= {name: value for name, value in (("mode", mode), ("model", model)) if value}
        chat = self._agent.chat(**options)
        await chat.send(prompt, traceparent=extract_traceparent(context.request_context.meta))
        return await _describe_status(chat)

    async def follow_task(self, task: str, context: Context, after: int = 0, wait_s: float = _WAIT_S) -> Reply:
        """Return the news of a task since the event number `after`. Waits for news at most wait_s seconds.

        The result has the status, the news as text, the open actions, the last answer, and `after` for the next call.
        If the status is pending or running, follow the task again."""
        chat = await self._require_chat(task)
        events = [each for each in await chat.events(after) if not each.ephemeral][:_MOST_EVENTS]
        reached = events[-1].seq if events else after
        if not events and await chat.status() in ("pending", "running", "interrupting"):
            # Starts a worker if the chat has none.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.0), _LONGEST_S)):
                    async for envelope in chat.resume(after_seq=after):
                        reached = max(reached, envelope.seq)
                        if line := describe_event(envelope.data):
                            await context.report_progress(envelope.seq, message=line)
            events = [each for each in await chat.events(after) if each.seq <= reached][:_MOST_EVENTS]
        state = await chat.state()
        answers = (entry.text for entry in reversed(state.history) if isinstance(entry, AssistantEntry))
        return {
            **await _describe_status(chat),
            "news": [line for each in events if (line := describe_event(each.data))],
            "actions": [find_action(each) for each in await chat.actions()],
            "answer": next(filter(None, answers), ""),
            "after": events[-1].seq if events else reached,
            "tokens": state.totals.usage.tokens,
            "usd": round(state.totals.usage.usd, 4),
        }

    async def list_tasks(self, limit: int = 20) -> list[Reply]:
        """The newest tasks of this server's projects."""
        listed = [each.summary for each in await self._agent.chats() if self._is_ours(each.summary.root)]
        newest = listed[: max(1, min(limit, 100))]
        return [{"task": each.chat, "status": each.status, "title": each.title} for each in newest]

    async def send_message(self, task: str, message: str, context: Context, steer: bool = False) -> Reply:
        """Say more to a task: it is done next, or with `steer` taken into account at once."""
        chat = await self._require_chat(task)
        trace = extract_traceparent(context.request_context.meta)
        await chat.send(message, delivery="steering" if steer else "queued", traceparent=trace)
        return await _describe_status(chat)

    async def decide(
        self, task: str, action: str, decision: Literal["allow", "deny"], hash: str, feedback: str = ""
    ) -> Reply:
        """Allow or deny what a task asks for. `action` and `hash` are those that follow_task showed: an approval holds
        for exactly what was shown. With a denial say in `feedback` what to do instead."""
        chat = await self._require_chat(task)
        shown_action = msgspec.structs.replace(await self._open(chat, action, "permission"), hash=hash)
        await (chat.approve(shown_action) if decision == "allow" else chat.deny(shown_action, feedback))
        return await _describe_status(chat)

    async def answer(self, task: str, action: str, text: str) -> Reply:
        """Answer a question of a task."""
        chat = await self._require_chat(task)
        await chat.answer(await self._open(chat, action, "user_input"), text)
        return await _describe_status(chat)

    async def stop_task(self, task: str) -> Reply:
        """Stop the work of a task. Its changes stay until undo_task."""
        chat = await self._require_chat(task)
        await chat.interrupt("mcp")
        return await _describe_status(chat)

    async def task_changes(self, task: str, paths: list[str] | None = None) -> list[Reply]:
        """Return the changes that a task has made in the project, as diffs, without changes that were undone."""
        return [describe_change(each) for each in await (await self._require_chat(task)).files.diff(None, paths or [])]

    async def undo_task(self, task: str, paths: list[str] | None = None, everything: bool = False) -> Reply:
        """Undo the changes of a task's last run, or of all its runs with `everything`; with `paths` only those files.
        Files that were changed by others since are left alone and listed."""
        from treadle.library.files import RunSpan

        restored = await (await self._require_chat(task)).files.undo(RunSpan() if everything else None, paths or [])
        conflicts = [{"path": each.path, "reason": each.reason} for each in restored.conflicts]
        return {"undone": [each.path for each in restored.files], "left_alone": conflicts, "error": restored.error}

    def _is_ours(self, root: str) -> bool:
        return any(is_below(root, each) for each in self._roots)

    def _resolve_root(self, folder: str) -> str:
        root = os.path.realpath(os.path.join(self._roots[0], folder))
        if not os.path.isdir(root) or not self._is_ours(root):
            roots = ", ".join(self._roots)
            raise InvalidInput(f"{folder} is no folder in which this server works; it works in {roots}")
        return root

    async def _require_chat(self, task: str) -> Chat:
        """NotFound for what does not exist, and for chats of other projects."""
        chat = self._agent.chat(task)
        if not self._is_ours((await chat.state()).options.root):
            raise NotFound(f"there is no task {task!r} here")
        return chat

    async def _open(self, chat: Chat, action: str, kind: str) -> e.OpenAction:
        for each in await chat.actions():
            if each.action == action and each.kind == kind:
                return each
        raise NotFound(f"the task does not wait for {action!r} any more; follow it to see what it waits for")


async def _describe_status(chat: Chat) -> Reply:
    return {"task": chat.id, "status": await chat.status()}


def _explain_refusals(tool: Any) -> Any:
    """The same, with what Treadle refuses told as such."""

    @wraps(tool)
    async def call_and_explain(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except TreadleError as error:
            raise Refusal(str(error)) from error

    return call_and_explain


# -- events, actions and changes as another agent reads them: short, and nothing that is not shown to people -----------


def describe_event(event: e.Event) -> str:
    """Describe an event in one line. Empty for events that a follower of a task does not need."""
    match event:
        case e.AssistantMessage(content=text) if text:
            return f"said: {_truncate_text(text)}"
        case e.ExecutionStart(name=name, args_summary=about):
            return f"calls {name} {about}".rstrip()
        case e.ExecutionComplete(success=success, result_summary=summary):
            return f"{'done' if success else 'failed'}: {summary}"
        case e.FilesChanged(files=files):
            return "changed " + ", ".join(f"{file.path} (+{file.added} -{file.removed})" for file in files[:20])
        case e.PermissionRequested(reason=reason, shown=text):
            return f"asks for approval ({reason}): {_truncate_text(text, 500)}"
        case e.UserInputRequested(question=question):
            return f"asks: {_truncate_text(question)}"
        case e.TaskComplete(summary=summary):
            return f"complete: {_truncate_text(summary)}"
        case e.SessionError(error_class=kind, message=message):
            return f"error ({kind}): {_truncate_text(message)}"
        case e.RunEnd(reason=reason, why=explanation):
            return f"ended: {reason}" + (f" ({explanation})" if explanation else "")
        case e.ModelNotice(text=text) | e.SandboxNotice(text=text) | e.GuardNotice(text=text):
            return f"notice: {_truncate_text(text)}"
        case _:
            return ""


def find_action(action: e.OpenAction) -> dict[str, Any]:
    """Return an open action of a task, with the fields that an answer needs."""
    fields = {"action": action.action, "kind": action.kind, "text": action.text, "options": list(action.options)}
    if action.kind != "permission":
        return fields
    return {**fields, "tool": action.name, "reason": action.reason, "severity": action.severity, "hash": action.hash}


def describe_change(file_diff: FileDiff) -> dict[str, Any]:
    fields = {name: getattr(file_diff.change, name) for name in ("path", "action", "added", "removed")}
    diff = "\n".join(line for hunk in file_diff.hunks for line in (hunk.header, *hunk.lines))
    return {**fields, "diff": diff, "notes": list(file_diff.notes)}


def _truncate_text(text: str, most: int = _LONGEST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
