"""The hooks of programs. They are asked at the one place where every call passes (`treadle.ports.hooks`); the rest of
them at the beginning and the end of a session, before a message is sent, and when a run fails.

A session whose program has hooks and has left runs no calls: what was to be checked is not let through unchecked."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from treadle.copilot_words.names import own_arguments, shown_arguments, shown_name
from treadle.jsonrpc.connection import Connection, Gone, RpcError
from treadle.ports.hooks import Instead
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec

UNCHECKED = "The program that checks the calls of this session is not connected, so nothing is run; try again later."
REFUSED = "The program's hook refused this call."


class SessionHooks:
    """The hooks of one session: those of all programs that are attached to it."""

    def __init__(self, session: str, root: str, programs: Callable[[], Iterable[Connection]]) -> None:
        self._session = session
        self._root = root
        self._programs = programs
        self.wanted = False
        """Whether a program with hooks was ever attached."""
        self._context: dict[str, str] = {}
        """By call: what the model is to read beside its result."""
        self._said: dict[str, str | dict[str, Any] | None] = {}
        """By call: what was said before it. It is looked at again after an approval, and the program asked once."""

    async def invoke(self, kind: str, **given: Any) -> list[Mapping[str, Any]]:
        """What the hooks say; those that fail or have nothing to say are left out."""
        common = {"sessionId": self._session, "timestamp": int(time.time() * 1000), "cwd": self._root}
        said = []
        for program in list(self._programs()):
            params = {"sessionId": self._session, "hookType": kind, "input": common | given}
            try:
                answer = await program.request("hooks.invoke", params)
            except (RpcError, Gone):
                continue
            output = answer.get("output") if isinstance(answer, Mapping) else None
            if isinstance(output, Mapping):
                said.append(output)
        return said

    async def before(self, call: str, name: str, arguments: Mapping[str, Any]) -> str | dict[str, Any] | None:
        """Why a call must not run, or its arguments if they are to be others."""
        if not self.wanted:
            return None
        if not any(True for _ in self._programs()):
            return UNCHECKED
        if call not in self._said:
            self._said[call] = await self._before(call, name, arguments)
        return self._said[call]

    async def _before(self, call: str, name: str, arguments: Mapping[str, Any]) -> str | dict[str, Any] | None:
        shown = shown_arguments(name, arguments)
        changed = False
        for said in await self.invoke("preToolUse", toolName=shown_name(name), toolArgs=shown):
            if said.get("permissionDecision") == "deny":
                return str(said.get("permissionDecisionReason") or REFUSED)
            if isinstance(said.get("modifiedArgs"), Mapping):
                shown, changed = dict(said["modifiedArgs"]), True
            if said.get("additionalContext"):
                self._context[call] = str(said["additionalContext"])
        return own_arguments(name, shown) if changed else None

    async def after(self, call: str, name: str, arguments: Mapping[str, Any], text: str, success: bool) -> str:
        """The text of a result as the hooks leave it."""
        self._said.pop(call, None)
        context = [self._context.pop(call)] if call in self._context else []
        if self.wanted:
            common = {"toolName": shown_name(name), "toolArgs": shown_arguments(name, arguments)}
            if success:
                result = {"textResultForLlm": text, "resultType": "success"}
                outputs = await self.invoke("postToolUse", **common, toolResult=result)
            else:
                outputs = await self.invoke("postToolUseFailure", **common, error=text)
            for said in outputs:
                if success and said.get("modifiedResult") is not None:
                    text = result_text(said["modifiedResult"])
                if said.get("additionalContext"):
                    context.append(str(said["additionalContext"]))
        return "\n\n".join((text, *context))

    async def meta(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a server is told beside the arguments of a call."""
        said: dict[str, Any] | None = None
        if self.wanted:
            given = {"serverName": server, "toolName": tool, "arguments": arguments}
            for each in await self.invoke("preMcpToolCall", **given):
                said = each.get("metaToUse", said)
        return said

    async def submitted(self, prompt: str) -> tuple[str, str]:
        """A message as the hooks leave it, and why it must not be sent."""
        for said in await self.invoke("userPromptSubmitted", prompt=prompt):
            if said.get("decision") == "block":
                return prompt, str(said.get("reason") or "The program's hook refused the message.")
            if isinstance(said.get("modifiedPrompt"), str):
                prompt = said["modifiedPrompt"]
            if said.get("additionalContext"):
                prompt = f"{prompt}\n\n{said['additionalContext']}"
        return prompt, ""

    async def started(self, source: str, prompt: str) -> str:
        """What the model is to know at the beginning of the session."""
        said = await self.invoke("sessionStart", source=source, initialPrompt=prompt)
        return "\n\n".join(str(each["additionalContext"]) for each in said if each.get("additionalContext"))

    async def stopping(self, *, again: bool) -> str:
        """What the model is to be told instead of coming to an end; `again`: it was told so already."""
        said = await self.invoke("agentStop", stopReason="end_turn", stopHookActive=again)
        return next((str(each.get("reason") or "Go on.") for each in said if each.get("decision") == "block"), "")


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

    async def before(self, spec: ToolSpec, invocation: Invocation) -> str | Instead:
        hooks = self.of(invocation.chat)
        if hooks is None:
            return ""
        said = await hooks.before(invocation.call, spec.name, invocation.arguments)
        return Instead(said) if isinstance(said, dict) else said or ""

    async def meta(self, invocation: Invocation, server: str, tool: str) -> dict[str, Any] | None:
        """As of `treadle.mcp.tool.Keeping.meta`."""
        hooks = self.of(invocation.chat)
        return await hooks.meta(server, tool, invocation.arguments) if hooks is not None else None

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        hooks = self.of(invocation.chat)
        if hooks is None:
            return outcome
        text = await hooks.after(invocation.call, spec.name, invocation.arguments, outcome.text, outcome.success)
        return outcome if text == outcome.text else msgspec.structs.replace(outcome, text=text)
