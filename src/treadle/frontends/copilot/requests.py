"""Passes the open actions of a chat to the attached programs: approvals, their own tools, questions. The actions are
durable in the chat: a program that attaches later is asked again. Tools of programs pass a gate: hooks, then the
approval that the SDKs ask for. Results are held until all calls of a turn have theirs (A-03). A session whose program
had hooks and has left runs no calls: a call that a hook should check never runs unchecked."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from treadle.adapters.tools.registry import ALIASES
from treadle.base.jsonrpc import Connection, PeerDisconnected, RpcError
from treadle.base.types import CallKey
from treadle.chat.state import ChatState, compute_status, list_open_actions
from treadle.errors import NotFound, Refused, ToolError
from treadle.frontends.copilot_words import names
from treadle.frontends.copilot_words.config import HOOKS, Tool
from treadle.frontends.copilot_words.names import to_shown_arguments, to_shown_name
from treadle.library.chat import Chat
from treadle.library.feeds import read_patiently
from treadle.ports.hooks import AskPerson, HookVerdict, Instead
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.commands import Result
from treadle.protocol.events import OpenAction
from treadle.protocol.tools import ToolSpec

UNCHECKED = "The program that checks the calls of this session is not connected, so nothing is run; try again later."
NO_ANSWER = "The program's hook {} gave no valid answer, so nothing was done; try again later."
REFUSED = "The program's hook refused this call."
ASKED = "the program's hook wants a person's approval"
ANSWER_S = 600.0  # How long a program may take to answer a hook. It may ask a person meanwhile.
_DECISIONS = (None, "allow", "deny", "ask")

Verdict = str | dict[str, Any] | None
"""Why a call must not run, its arguments if they are to be others, or None: it may run."""


class HookFailed(Exception):
    """A program left, failed or answered nonsense: its hook has checked nothing."""


class SessionHooks:
    def __init__(self, session: str, root: str, programs: Callable[[], Iterable[Connection]]) -> None:
        self._session, self._root, self._programs = session, root, programs
        self.wanted = False  # True if a program with hooks was ever attached.
        self.asking: set[str] = set()  # Calls for which a hook wants a person to be asked.
        self._context: dict[str, str] = {}  # By call: text for the model in addition to the result.
        self._verdicts: dict[str, tuple[Sequence[Connection], Mapping[str, Any], Verdict]] = {}
        """By call: which programs were asked, about which arguments, and their verdict. A call is looked at again after
        an approval; the same programs are asked once about the same arguments."""

    async def invoke(self, kind: str, **hook_input: Any) -> list[Mapping[str, Any]]:
        """The outputs of the hooks. Use it where a hook that fails decides nothing."""
        outputs = []
        for program in list(self._programs()):
            with suppress(HookFailed):
                outputs.append(await self._ask(program, kind, hook_input))
        return outputs

    async def stream_outputs(self, kind: str, payload: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """The outputs of the hooks, where they decide. The caller changes `payload` between two programs. HookFailed if
        one does not answer, or if no program with hooks is connected any more."""
        programs = list(self._programs())
        if self.wanted and not programs:
            raise HookFailed(UNCHECKED)
        for program in programs:
            yield await self._ask(program, kind, payload)

    async def _ask(self, program: Connection, kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The output of a program's hook; an empty one if it has no opinion. HookFailed if it does not answer."""
        common = {"sessionId": self._session, "timestamp": int(time.time() * 1000), "cwd": self._root}
        params = {"sessionId": self._session, "hookType": kind, "input": {**common, **payload}}
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await program.request("hooks.invoke", params)
        except (RpcError, PeerDisconnected, TimeoutError) as error:
            raise HookFailed(NO_ANSWER.format(kind)) from error
        output = answer.get("output") if isinstance(answer, Mapping) else answer
        if output is not None and not isinstance(output, Mapping):
            raise HookFailed(NO_ANSWER.format(kind))
        return output or {}

    async def judge_call(self, call: str, name: str, arguments: Mapping[str, Any]) -> Verdict:
        if not self.wanted:
            return None
        programs = list(self._programs())
        cached = self._verdicts.get(call)
        if cached is not None and programs and cached[:2] == (programs, arguments):
            return cached[2]
        try:
            verdict = await self._check_call(call, name, arguments)
        except HookFailed as failure:
            return str(failure)
        if not isinstance(verdict, str):  # a refused call is over
            self._verdicts[call] = programs, dict(arguments), verdict
        return verdict

    async def _check_call(self, call: str, name: str, arguments: Mapping[str, Any]) -> Verdict:
        payload: dict[str, Any] = {"toolName": to_shown_name(name), "toolArgs": to_shown_arguments(name, arguments)}
        is_modified = False
        async for output in self.stream_outputs("preToolUse", payload):
            decision, modified = output.get("permissionDecision"), output.get("modifiedArgs")
            if decision not in _DECISIONS or not isinstance(modified, Mapping | None):
                raise HookFailed(NO_ANSWER.format("preToolUse"))
            if decision == "deny":
                return str(output.get("permissionDecisionReason") or REFUSED)
            if decision == "ask":
                self.asking.add(call)
            if modified is not None:
                payload["toolArgs"], is_modified = dict(modified), True
            if output.get("additionalContext"):
                self._context[call] = str(output["additionalContext"])
        return names.to_own_arguments(name, payload["toolArgs"]) if is_modified else None

    async def review_result(self, call: str, name: str, arguments: Mapping[str, Any], text: str, success: bool) -> str:
        """The text of a result as the hooks leave it. The call is done: a hook that fails is reported beside it."""
        self._verdicts.pop(call, None)
        self.asking.discard(call)
        context = [self._context.pop(call)] if call in self._context else []
        kind = "postToolUse" if success else "postToolUseFailure"
        payload: dict[str, Any] = {"toolName": to_shown_name(name), "toolArgs": to_shown_arguments(name, arguments)}
        payload |= {"toolResult": _make_result(text)} if success else {"error": text}
        try:
            async for output in self.stream_outputs(kind, payload):
                if success and output.get("modifiedResult") is not None:
                    text = extract_result_text(output["modifiedResult"])
                    payload["toolResult"] = _make_result(text)
                if output.get("additionalContext"):
                    context.append(str(output["additionalContext"]))
        except HookFailed:
            context.append(f"[The program's hook {kind} gave no valid answer: it has not seen this result.]")
        return "\n\n".join((text, *context))

    async def fetch_meta(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The metadata that a server gets beside the arguments of a call. ToolError if a hook has not answered."""
        meta: dict[str, Any] | None = None
        payload = {"serverName": server, "toolName": tool, "arguments": arguments}
        try:
            async for output in self.stream_outputs("preMcpToolCall", payload):
                meta = output.get("metaToUse", meta)
                if not isinstance(meta, dict | None):
                    raise HookFailed(NO_ANSWER.format("preMcpToolCall"))
        except HookFailed as failure:
            raise ToolError(str(failure)) from failure
        return meta

    async def check_prompt(self, prompt: str) -> tuple[str, str]:
        """A message as the hooks leave it, and why it must not be sent."""
        payload = {"prompt": prompt}
        try:
            async for output in self.stream_outputs("userPromptSubmitted", payload):
                if output.get("decision") == "block":
                    return prompt, str(output.get("reason") or "The program's hook refused the message.")
                if isinstance(output.get("modifiedPrompt"), str):
                    payload["prompt"] = output["modifiedPrompt"]
                if output.get("additionalContext"):
                    payload["prompt"] += f"\n\n{output['additionalContext']}"
        except HookFailed as failure:
            return prompt, str(failure)
        return payload["prompt"], ""

    async def fetch_start_context(self, source: str, prompt: str) -> str:
        outputs = await self.invoke("sessionStart", source=source, initialPrompt=prompt)
        return "\n\n".join(str(each["additionalContext"]) for each in outputs if each.get("additionalContext"))

    async def fetch_stop_message(self, *, again: bool) -> str:
        """The message that makes the model go on instead of ending; empty: it may end. `again`: a hook made it go on
        before."""
        outputs = await self.invoke("agentStop", stopReason="end_turn", stopHookActive=again)
        return next((str(each.get("reason") or "Go on.") for each in outputs if each.get("decision") == "block"), "")


def _make_result(text: str) -> dict[str, str]:
    return {"textResultForLlm": text, "resultType": "success"}


def extract_result_text(result: Any) -> str:
    """The text for the model in any of the shapes that a tool's result has."""
    if isinstance(result, str):
        return result
    if isinstance(result, Mapping) and isinstance(result.get("textResultForLlm"), str):
        return str(result["textResultForLlm"])
    return msgspec.json.encode(result).decode()


class ProgramHooks:
    """Implements `treadle.ports.hooks.Hooks` for the chats that are sessions here."""

    def __init__(self) -> None:
        self.of: Callable[[str], SessionHooks | None] = lambda _chat: None

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> HookVerdict:
        hooks = self.of(invocation.chat)
        if hooks is None:  # a run that went on after a restart, before its program came again
            return UNCHECKED if HOOKS in invocation.options.labels else ""
        verdict = await hooks.judge_call(invocation.call, spec.name, invocation.arguments)
        arguments = verdict if isinstance(verdict, dict) else None
        if invocation.call in hooks.asking and not isinstance(verdict, str):
            return AskPerson(ASKED, arguments)
        return Instead(arguments) if arguments is not None else str(verdict or "")

    async def fetch_meta(self, invocation: Invocation, server: str, tool: str) -> dict[str, Any] | None:
        """As of `treadle.adapters.mcp.tool.ResultHandling.meta`."""
        hooks = self.of(invocation.chat)
        return await hooks.fetch_meta(server, tool, invocation.arguments) if hooks is not None else None

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        if (hooks := self.of(invocation.chat)) is None:
            return outcome
        text = await hooks.review_result(
            invocation.call, spec.name, invocation.arguments, outcome.text, outcome.success
        )
        return outcome if text == outcome.text else msgspec.structs.replace(outcome, text=text)


Announce = Callable[[str, dict[str, Any]], object]
GATE = "permission-"  # Begins the id of an approval for a program's own tool.
_FAILURES: tuple[Literal["rejected", "denied", "timeout"], ...] = ("rejected", "denied", "timeout")
"""The types of results that say why there is none."""
_FAILED = "Failed to execute `{}` tool with arguments: {} due to error: Error: Tool execution failed"
"""The result of a failed tool, without the program's exception: it may contain data that the model must not see."""


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
        self._chat, self._hooks, self._tell, self._tools = chat, hooks, tell, tools
        self._answering, self._background, self._trace = answering, background, trace
        self.open: dict[str, tuple[str, dict[str, Any]]] = {}
        """By request: the event that asks for it, for programs that attach later."""
        self.again: set[str] = set()
        """Requests that a later program got, too. Its answer that no person is available is ignored."""
        self.approve_all = False
        self._begun: set[str] = set()
        self._arguments: dict[str, dict[str, Any]] = {}  # Of calls of programs' tools: as hooks left them.
        self._results: dict[str, Result] = {}
        self._final, self._settling = False, asyncio.Lock()

    async def attend(self) -> None:
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
                request = names.build_permission_request(action, ALIASES.get(name, name), arguments)
                self._announce_permission(action.action, request)
            case "external_tool":
                await self._gate_call(action)
            case "user_input":
                await self._ask_question(action)

    def _announce(self, request: str, kind: str, data: dict[str, Any]) -> None:
        self.open[request] = kind, data
        self._tell(kind, data)

    def _announce_permission(self, request: str, permission_request: dict[str, Any]) -> None:
        data = {"requestId": request, "permissionRequest": permission_request}
        if self.approve_all:
            self.open[request] = "permission.requested", data
            self._background(read_patiently(lambda: self.decide(request, {"kind": "approve-once"})))
        else:
            self._announce(request, "permission.requested", data)

    async def decide(self, request: str, result: Mapping[str, Any]) -> bool:
        """A program's answer to an approval; False if it is no longer asked for."""
        if (decision := names.parse_decision(result)) is None or (decision.absent and request in self.again):
            return True
        action = next((each for each in await self._chat.actions() if each.action == request.removeprefix(GATE)), None)
        if action is None or (request.startswith(GATE) and self.open.pop(request, None) is None):
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
                await self._chat.approve(action, rule=names.find_rule(action, decision.scope))
            else:
                await self._chat.deny(action, decision.feedback)
        except (Refused, NotFound):
            return False
        self.open.pop(request, None)
        if decision.final:
            await self._stop_run()
        return True

    async def _stop_run(self) -> None:
        with suppress(Refused):
            await read_patiently(lambda: self._chat.interrupt("program"))

    async def _gate_call(self, action: OpenAction) -> None:
        verdict = await self._hooks.judge_call(action.call, action.name, action.arguments)
        if isinstance(verdict, str):
            await self._keep(action, verdict, failed=True, kind="denied")
            return
        arguments = self._arguments[action.call] = action.arguments if verdict is None else verdict
        tool = next((each for each in self._tools() if each.name == action.name), None)
        if tool is not None and tool.skip_permission and action.call not in self._hooks.asking:
            await self._announce_tool(action)
            return
        description = (tool.description if tool else "") or ""
        permission_request = names.build_custom_request(action.call, action.name, description, arguments)
        self._announce_permission(f"{GATE}{action.action}", permission_request)

    async def _announce_tool(self, action: OpenAction) -> None:
        trace = self._trace(await read_patiently(self._chat.state), action.call)
        ids = {"requestId": action.tool_call_id, "sessionId": self._chat.id, "toolCallId": action.call}
        data = {**ids, "toolName": action.name, "arguments": self._arguments.get(action.call, action.arguments)}
        data |= {"traceparent": trace} if trace else {}
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
        text = _FAILED.format(action.name, arguments_json) if error is not None else extract_result_text(result)
        text = await self._hooks.review_result(action.call, action.name, arguments, text, not failed)
        await self._keep(action, text, failed=failed, kind=str(kind), final=kind == "rejected")
        return True

    async def _keep(self, action: OpenAction, text: str, *, failed: bool, kind: str = "", final: bool = False) -> None:
        """With `final` the run is over once the chat has its results."""
        reason: Literal["", "rejected", "denied", "timeout"] = next((each for each in _FAILURES if each == kind), "")
        self._results[action.tool_call_id] = Result(action.tool_call_id, text, failed, reason)
        self._final = self._final or final
        await self._settle()

    async def _settle(self) -> None:
        async with self._settling:
            state = await read_patiently(self._chat.state)
            calls = [action.tool_call_id for action in list_open_actions(state) if action.kind == "external_tool"]
            is_complete = bool(calls) and all(call in self._results for call in calls)
            if compute_status(state) != "requires_action" or not is_complete:
                return
            try:
                await read_patiently(lambda: self._chat.submit([self._results[call] for call in calls]))
            except Refused:
                return  # something else is asked first; the chat says so when it comes to these
            for call in calls:
                self._results.pop(call)
                self._arguments.pop(call, None)
            if self._final:
                self._final = False
                await self._stop_run()

    async def _ask_question(self, action: OpenAction) -> None:
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
