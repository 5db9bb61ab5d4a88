"""The hooks of programs. They are asked at the one place where every call passes (`treadle.ports.hooks`); the rest of
them at the beginning and the end of a session, before a message is sent, and when a run fails.

A session whose program has hooks and has left runs no calls: what was to be checked is not let through unchecked."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.copilot_words.names import own_arguments, shown_arguments, shown_name
from treadle.errors import ToolError
from treadle.jsonrpc.connection import Connection, Gone, RpcError
from treadle.ports.hooks import Instead
from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec

UNCHECKED = "The program that checks the calls of this session is not connected, so nothing is run; try again later."
NO_ANSWER = "The program's hook {} gave no valid answer, so nothing was done; try again later."
REFUSED = "The program's hook refused this call."
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
        """Whether a program with hooks was ever attached."""
        self._context: dict[str, str] = {}
        """By call: what the model is to read beside its result."""
        self._verdicts: dict[str, tuple[Sequence[Connection], Mapping[str, Any], Verdict]] = {}
        """By call: which programs were asked, about which arguments, and their verdict. A call is looked at again after
        an approval; the same programs are asked once about the same arguments."""

    async def invoke(self, kind: str, **given: Any) -> list[Mapping[str, Any]]:
        """The outputs of the hooks. Use it where a hook that fails decides nothing."""
        return [output for output in await self._ask_all(kind, given) if not isinstance(output, HookFailed)]

    async def check(self, kind: str, **given: Any) -> list[Mapping[str, Any]]:
        """The outputs of the hooks, where they decide. HookFailed if one of them has not answered, or if no program
        with hooks is connected any more."""
        outputs = await self._ask_all(kind, given)
        for output in outputs:
            if isinstance(output, HookFailed):
                raise output
        if self.wanted and not outputs:
            raise HookFailed(UNCHECKED)
        return [output for output in outputs if not isinstance(output, HookFailed)]

    async def _ask_all(self, kind: str, given: Mapping[str, Any]) -> list[Mapping[str, Any] | HookFailed]:
        common = {"sessionId": self._session, "timestamp": int(time.time() * 1000), "cwd": self._root}
        params = {"sessionId": self._session, "hookType": kind, "input": {**common, **given}}
        return [await _ask(program, kind, params) for program in list(self._programs())]

    async def before(self, call: str, name: str, arguments: Mapping[str, Any]) -> Verdict:
        if not self.wanted:
            return None
        programs = list(self._programs())
        known = self._verdicts.get(call)
        if known is not None and programs and known[:2] == (programs, arguments):
            return known[2]
        try:
            verdict = await self._before(call, name, arguments)
        except HookFailed as failure:
            return str(failure)
        self._verdicts[call] = programs, dict(arguments), verdict
        return verdict

    async def _before(self, call: str, name: str, arguments: Mapping[str, Any]) -> Verdict:
        shown = shown_arguments(name, arguments)
        changed = False
        for output in await self.check("preToolUse", toolName=shown_name(name), toolArgs=shown):
            if output.get("permissionDecision") not in _DECISIONS:
                raise HookFailed(NO_ANSWER.format("preToolUse"))
            if output.get("permissionDecision") == "deny":
                return str(output.get("permissionDecisionReason") or REFUSED)
            if output.get("modifiedArgs") is not None:
                if not isinstance(output["modifiedArgs"], Mapping):
                    raise HookFailed(NO_ANSWER.format("preToolUse"))
                shown, changed = dict(output["modifiedArgs"]), True
            if output.get("additionalContext"):
                self._context[call] = str(output["additionalContext"])
        return own_arguments(name, shown) if changed else None

    async def after(self, call: str, name: str, arguments: Mapping[str, Any], text: str, success: bool) -> str:
        """The text of a result as the hooks leave it. The call is done: a hook that fails is reported beside it."""
        self._verdicts.pop(call, None)
        context = [self._context.pop(call)] if call in self._context else []
        if self.wanted:
            kind = "postToolUse" if success else "postToolUseFailure"
            result = {"toolResult": {"textResultForLlm": text, "resultType": "success"}} if success else {"error": text}
            try:
                outputs = await self.check(
                    kind, toolName=shown_name(name), toolArgs=shown_arguments(name, arguments), **result
                )
            except HookFailed:
                outputs = []
                context.append(f"[The program's hook {kind} gave no valid answer: it has not seen this result.]")
            for output in outputs:
                if success and output.get("modifiedResult") is not None:
                    text = result_text(output["modifiedResult"])
                if output.get("additionalContext"):
                    context.append(str(output["additionalContext"]))
        return "\n\n".join((text, *context))

    async def meta(self, server: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a server is told beside the arguments of a call. ToolError if a hook has not answered."""
        meta: dict[str, Any] | None = None
        if self.wanted:
            try:
                outputs = await self.check("preMcpToolCall", serverName=server, toolName=tool, arguments=arguments)
            except HookFailed as failure:
                raise ToolError(str(failure)) from failure
            for output in outputs:
                meta = output.get("metaToUse", meta)
        return meta

    async def submitted(self, prompt: str) -> tuple[str, str]:
        """A message as the hooks leave it, and why it must not be sent."""
        try:
            outputs = await self.check("userPromptSubmitted", prompt=prompt)
        except HookFailed as failure:
            return prompt, str(failure)
        for output in outputs:
            if output.get("decision") == "block":
                return prompt, str(output.get("reason") or "The program's hook refused the message.")
            if isinstance(output.get("modifiedPrompt"), str):
                prompt = output["modifiedPrompt"]
            if output.get("additionalContext"):
                prompt = f"{prompt}\n\n{output['additionalContext']}"
        return prompt, ""

    async def started(self, source: str, prompt: str) -> str:
        """What the model is to know at the beginning of the session."""
        said = await self.invoke("sessionStart", source=source, initialPrompt=prompt)
        return "\n\n".join(str(each["additionalContext"]) for each in said if each.get("additionalContext"))

    async def stopping(self, *, again: bool) -> str:
        """What the model is to be told instead of coming to an end; `again`: it was told so already."""
        said = await self.invoke("agentStop", stopReason="end_turn", stopHookActive=again)
        return next((str(each.get("reason") or "Go on.") for each in said if each.get("decision") == "block"), "")


async def _ask(program: Connection, kind: str, params: dict[str, Any]) -> Mapping[str, Any] | HookFailed:
    """What a program's hook answers; an empty output if it has no opinion."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await program.request("hooks.invoke", params)
    except (RpcError, Gone, TimeoutError):
        return HookFailed(NO_ANSWER.format(kind))
    output = answer.get("output") if isinstance(answer, Mapping) else answer
    if output is None:
        return {}
    return output if isinstance(output, Mapping) else HookFailed(NO_ANSWER.format(kind))


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
