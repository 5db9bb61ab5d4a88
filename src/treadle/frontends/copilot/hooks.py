"""The hooks of programs. Call hooks run at the one place that every call passes (`treadle.ports.hooks`); the others run
at the beginning and the end of a session, before a message is sent, and when a run fails.

A session whose program had hooks and has left runs no calls: a call that a hook should check never runs unchecked."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from treadle.base.jsonrpc import Connection, PeerDisconnected, RpcError
from treadle.errors import ToolError
from treadle.frontends.copilot_words.config import HOOKS
from treadle.frontends.copilot_words.names import own_arguments, shown_arguments, shown_name
from treadle.ports.hooks import AskPerson, HookVerdict, Instead
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec

UNCHECKED = "The program that checks the calls of this session is not connected, so nothing is run; try again later."
NO_ANSWER = "The program's hook {} gave no valid answer, so nothing was done; try again later."
REFUSED = "The program's hook refused this call."
ASKED = "the program's hook wants a person's approval"
ANSWER_S = 600.0
"""How long a program may take to answer a hook. It may ask a person meanwhile."""
_DECISIONS = (None, "allow", "deny", "ask")

Verdict = str | dict[str, Any] | None
"""Why a call must not run, its arguments if they are to be others, or None: it may run."""


class HookFailed(Exception):
    """A program left, failed or answered nonsense: its hook has checked nothing."""


class SessionHooks:
    """The hooks of one session: those of all programs that are attached to it."""

    def __init__(self, session: str, root: str, programs: Callable[[], Iterable[Connection]]) -> None:
        self._session = session
        self._root = root
        self._programs = programs
        self.wanted = False
        """True if a program with hooks was ever attached."""
        self.asking: set[str] = set()
        """Calls for which a hook wants a person to be asked."""
        self._context: dict[str, str] = {}
        """By call: text for the model in addition to the result."""
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

    async def check(self, kind: str, payload: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """The outputs of the hooks, where they decide. The caller changes `payload` between two programs: each is asked
        about what the one before it left. HookFailed if one of them does not answer, or if no program with hooks is
        connected any more."""
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

    async def before_call(self, call: str, name: str, arguments: Mapping[str, Any]) -> Verdict:
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
        payload: dict[str, Any] = {"toolName": shown_name(name), "toolArgs": shown_arguments(name, arguments)}
        is_modified = False
        async for output in self.check("preToolUse", payload):
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
        return own_arguments(name, payload["toolArgs"]) if is_modified else None

    async def after_call(self, call: str, name: str, arguments: Mapping[str, Any], text: str, success: bool) -> str:
        """The text of a result as the hooks leave it. The call is done: a hook that fails is reported beside it."""
        self._verdicts.pop(call, None)
        self.asking.discard(call)
        context = [self._context.pop(call)] if call in self._context else []
        kind = "postToolUse" if success else "postToolUseFailure"
        payload: dict[str, Any] = {"toolName": shown_name(name), "toolArgs": shown_arguments(name, arguments)}
        payload |= {"toolResult": _result(text)} if success else {"error": text}
        try:
            async for output in self.check(kind, payload):
                if success and output.get("modifiedResult") is not None:
                    text = result_text(output["modifiedResult"])
                    payload["toolResult"] = _result(text)
                if output.get("additionalContext"):
                    context.append(str(output["additionalContext"]))
        except HookFailed:
            context.append(f"[The program's hook {kind} gave no valid answer: it has not seen this result.]")
        return "\n\n".join((text, *context))

    async def meta(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The metadata that a server gets beside the arguments of a call. ToolError if a hook has not answered."""
        meta: dict[str, Any] | None = None
        payload = {"serverName": server, "toolName": tool, "arguments": arguments}
        try:
            async for output in self.check("preMcpToolCall", payload):
                meta = output.get("metaToUse", meta)
                if not isinstance(meta, dict | None):
                    raise HookFailed(NO_ANSWER.format("preMcpToolCall"))
        except HookFailed as failure:
            raise ToolError(str(failure)) from failure
        return meta

    async def submitted(self, prompt: str) -> tuple[str, str]:
        """A message as the hooks leave it, and why it must not be sent."""
        payload = {"prompt": prompt}
        try:
            async for output in self.check("userPromptSubmitted", payload):
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
        """Return additional context for the model at the beginning of the session."""
        outputs = await self.invoke("sessionStart", source=source, initialPrompt=prompt)
        return "\n\n".join(str(each["additionalContext"]) for each in outputs if each.get("additionalContext"))

    async def stopping(self, *, again: bool) -> str:
        """Return the message that makes the model continue instead of ending; empty if it may end. `again`: True if a
        hook made it continue already."""
        outputs = await self.invoke("agentStop", stopReason="end_turn", stopHookActive=again)
        return next((str(each.get("reason") or "Go on.") for each in outputs if each.get("decision") == "block"), "")


def _result(text: str) -> dict[str, str]:
    return {"textResultForLlm": text, "resultType": "success"}


def result_text(result: Any) -> str:
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
        verdict = await hooks.before_call(invocation.call, spec.name, invocation.arguments)
        arguments = verdict if isinstance(verdict, dict) else None
        if invocation.call in hooks.asking and not isinstance(verdict, str):
            return AskPerson(ASKED, arguments)
        return Instead(arguments) if arguments is not None else str(verdict or "")

    async def meta(self, invocation: Invocation, server: str, tool: str) -> dict[str, Any] | None:
        """As of `treadle.adapters.mcp.tool.ResultHandling.meta`."""
        hooks = self.of(invocation.chat)
        return await hooks.meta(server, tool, invocation.arguments) if hooks is not None else None

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        hooks = self.of(invocation.chat)
        if hooks is None:
            return outcome
        text = await hooks.after_call(invocation.call, spec.name, invocation.arguments, outcome.text, outcome.success)
        return outcome if text == outcome.text else msgspec.structs.replace(outcome, text=text)
