"""Passes the open actions of a chat to the attached programs: approvals, their own tools, questions. The actions are
durable in the chat; this module only remembers which programs were asked. A program that attaches later, or after the
runtime was killed, is asked again.

Tools of programs pass a gate here: their hooks, then the approval that the SDKs ask for each of them. Results are held
until all calls of a turn have theirs, because the chat takes them together (A-03)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from treadle.adapters.tools.registry import ALIASES
from treadle.base.jsonrpc import Connection, PeerDisconnected, RpcError
from treadle.base.types import CallKey
from treadle.chat.state import ChatState, open_actions, status
from treadle.errors import NotFound, Refused
from treadle.frontends.copilot.hooks import SessionHooks, result_text
from treadle.frontends.copilot_words.config import Tool
from treadle.frontends.copilot_words.permissions import build_permission_request, custom_tool, parse_decision, rule_of
from treadle.library.chat import Chat
from treadle.library.watching import read_patiently
from treadle.protocol.commands import Result
from treadle.protocol.events import OpenAction

Announce = Callable[[str, dict[str, Any]], object]
GATE = "permission-"
"""Begins the id of an approval for a program's own tool."""
_FAILURES: tuple[Literal["rejected", "denied", "timeout"], ...] = ("rejected", "denied", "timeout")
"""The types of results that say why there is none."""
_FAILED = "Failed to execute `{}` tool with arguments: {} due to error: Error: Tool execution failed"
"""The result of a failed tool. The text of a program's exception is left out: it may contain data that the model must
not see."""


class Requests:
    def __init__(
        self,
        chat: Chat,
        hooks: SessionHooks,
        tell: Announce,
        tools: Callable[[], Iterable[Tool]],
        answering: Callable[[], Sequence[Connection]],
        background: Callable[[Coroutine[Any, Any, object]], None],
        trace: Callable[[ChatState, CallKey], str],
    ) -> None:
        self._chat = chat
        self._hooks = hooks
        self._tell = tell
        self._tools = tools
        self._answering = answering
        self._background = background
        self._trace = trace
        self.open: dict[str, tuple[str, dict[str, Any]]] = {}
        """By request: the event that asks for it, for programs that attach later."""
        self.again: set[str] = set()
        """Requests that were also sent to a program that attached later. Its answer that no person is available is
        ignored."""
        self.approve_all = False
        self._begun: set[str] = set()
        self._arguments: dict[str, dict[str, Any]] = {}
        """Of calls of programs' tools: as hooks left them."""
        self._results: dict[str, Result] = {}
        self._final = False
        self._settling = asyncio.Lock()

    async def attend(self) -> None:
        """Send the actions that the chat waits for and that were not sent yet."""
        waiting = {action.action: action for action in await self._chat.actions()}
        for request in [each for each in self.open if each.removeprefix(GATE) not in waiting]:
            del self.open[request]
        for action in waiting.values():
            if action.action not in self._begun:
                self._begun.add(action.action)
                self._background(read_patiently(partial(self._ask, action)))
        await self._settle()

    async def _ask(self, action: OpenAction) -> None:
        match action.kind:
            case "permission":
                arguments = await self._chat.arguments(action)
                state = await self._chat.state()
                name = next((call.request.name for call in state.calls if call.key == action.call), action.name)
                request = build_permission_request(action, ALIASES.get(name, name), arguments)
                self._announce_permission(action.action, request)
            case "external_tool":
                await self._gate(action)
            case "user_input":
                await self._question(action)

    def _announce(self, request: str, kind: str, data: dict[str, Any]) -> None:
        self.open[request] = kind, data
        self._tell(kind, data)

    def _announce_permission(self, request: str, permission_request: dict[str, Any]) -> None:
        data = {"requestId": request, "permissionRequest": permission_request}
        if self.approve_all:
            self.open[request] = "permission.requested", data
            self._background(self.decide(request, {"kind": "approve-once"}))
        else:
            self._announce(request, "permission.requested", data)

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def decide(self, request: str, result: Mapping[str, Any]) -> bool:
        """A program's answer to an approval; False if it is no longer asked for."""
        decision = parse_decision(result)
        if decision is None or (decision.absent and request in self.again):
            return True
        action = next((each for each in await self._chat.actions() if each.action == request.removeprefix(GATE)), None)
        if action is None or (self.open.pop(request, None) is None and request.startswith(GATE)):
            return False
        if request.startswith(GATE):
            kind = "approved" if decision.decision == "allow" else "denied-interactively-by-user"
            event_data = {"requestId": request, "toolCallId": action.call, "result": {"kind": kind}}
            self._tell("permission.completed", event_data)
            if decision.decision == "allow":
                await self._announce_tool(action)
            else:
                await self._keep(action, decision.feedback, failed=True, kind="rejected", final=decision.final)
            return True
        try:
            if decision.decision == "allow":
                await self._chat.approve(action, rule=rule_of(action, decision.scope))
            else:
                await self._chat.deny(action, decision.feedback)
        except (Refused, NotFound):
            return False
        if decision.final:
            await self._stop()
        return True

    async def _stop(self) -> None:
        with suppress(Refused):
            await self._chat.interrupt("program")

    # -- tools of programs --------------------------------------------------------------------------------------------

    async def _gate(self, action: OpenAction) -> None:
        verdict = await self._hooks.before_call(action.call, action.name, action.arguments)
        if isinstance(verdict, str):
            await self._keep(action, verdict, failed=True, kind="denied")
            return
        self._arguments[action.call] = action.arguments if verdict is None else verdict
        tool = next((each for each in self._tools() if each.name == action.name), None)
        if tool is not None and tool.skip_permission and action.call not in self._hooks.asking:
            await self._announce_tool(action)
            return
        description = (tool.description if tool else "") or ""
        permission_request = custom_tool(action.call, action.name, description, self._arguments[action.call])
        self._announce_permission(f"{GATE}{action.action}", permission_request)

    async def _announce_tool(self, action: OpenAction) -> None:
        trace = self._trace(await self._chat.state(), action.call)
        data = {
            "requestId": action.tool_call_id,
            "sessionId": self._chat.id,
            "toolCallId": action.call,
            "toolName": action.name,
            "arguments": self._arguments.get(action.call, action.arguments),
            **({"traceparent": trace} if trace else {}),
        }
        self._announce(action.tool_call_id, "external_tool.requested", data)

    async def submit(self, request: str, result: Any, error: str | None) -> bool:
        """A program's result; False if it is not, or no longer, asked for."""
        action = next((each for each in await self._chat.actions() if each.tool_call_id == request), None)
        if action is None or action.kind != "external_tool" or request in self._results:
            return False
        self.open.pop(request, None)
        self.open.pop(f"{GATE}{request}", None)
        kind = result.get("resultType") if isinstance(result, Mapping) else None
        failed = error is not None or (kind is not None and kind != "success")
        arguments = self._arguments.get(action.call, action.arguments)
        arguments_json = msgspec.json.encode(arguments).decode()
        text = _FAILED.format(action.name, arguments_json) if error is not None else result_text(result)
        text = await self._hooks.after_call(action.call, action.name, arguments, text, not failed)
        await self._keep(action, text, failed=failed, kind=str(kind), final=kind == "rejected")
        return True

    async def _keep(self, action: OpenAction, text: str, *, failed: bool, kind: str = "", final: bool = False) -> None:
        """With `final` the run is over once the chat has its results."""
        reason: Literal["", "rejected", "denied", "timeout"] = next((each for each in _FAILURES if each == kind), "")
        self._results[action.tool_call_id] = Result(action.tool_call_id, text, failed, reason)
        self._final = self._final or final
        await self._settle()

    async def _settle(self) -> None:
        """Give the chat its results once all are there."""
        async with self._settling:
            state = await self._chat.state()
            calls = [action.tool_call_id for action in open_actions(state) if action.kind == "external_tool"]
            if status(state) != "requires_action" or not calls or any(call not in self._results for call in calls):
                return
            try:
                await self._chat.submit([self._results[call] for call in calls])
            except Refused:
                return  # something else is asked first; the chat says so when it comes to these
            for call in calls:
                self._results.pop(call)
                self._arguments.pop(call, None)
            if self._final:
                self._final = False
                await self._stop()

    # -- questions ----------------------------------------------------------------------------------------------------

    async def _question(self, action: OpenAction) -> None:
        """Ask one program after the other; if none answers, programs that attach later are asked."""
        question = {"question": action.text, "choices": list(action.options), "allowFreeform": True}
        event_data = {"requestId": action.action, **question, "toolCallId": action.call}
        self._announce(action.action, "user_input.requested", event_data)
        for program in self._answering():
            try:
                answer = await program.request("userInput.request", {"sessionId": self._chat.id, **question})
            except (RpcError, PeerDisconnected):
                continue
            if isinstance(answer, Mapping) and await self.answer(action.action, str(answer.get("answer", ""))):
                return
        self._begun.discard(action.action)

    async def answer(self, request: str, text: str) -> bool:
        try:
            await self._chat.answer(request, text)
        except (Refused, NotFound):
            return False
        self.open.pop(request, None)
        return True
