"""The methods of a session: parameters in, a call of the library, an answer out."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.adapters.tools.builtin.interaction import SKILL_TOOL
from treadle.base.jsonrpc import INVALID_PARAMS, Connection, RpcError
from treadle.chat.state import compute_status
from treadle.frontends.copilot.session import Session, find_skills
from treadle.frontends.copilot_words.config import Config, Tool
from treadle.frontends.copilot_words.events import MODES, format_agent, format_tool
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.trace_context import extract_traceparent
from treadle.protocol.wire import format_time

if TYPE_CHECKING:
    from treadle.library.mcp_hub.hub import Link

Params = Mapping[str, Any]
_STATES = {"starting": "pending", "ready": "connected", "failed": "failed", "closed": "stopped"}
_COMMANDS = {"compact": "Sum up the conversation to make room.", "model": "Say which model answers."}
_REFUSED_OF_MESSAGES = {
    "responseFormat": "say in the prompt how the answer is to look.",
    "requestHeaders": "give the session a provider with these headers.",
}
_OWN_MODES = {"interactive": "confirm", "plan": "read-only", "autopilot": "autopilot"}


def require_text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RpcError(INVALID_PARAMS, f"{name} is missing, empty, or no text.")
    return value


class Method(msgspec.Struct):
    """One call of a program, of a session that it is attached to."""

    session: Session
    connection: Connection
    method: str
    params: Params

    @property
    def config(self) -> Config:
        return self.session.programs[self.connection]

    # -- the conversation ---------------------------------------------------------------------------------------------

    async def _send_message(self) -> str:
        for field, instead in _REFUSED_OF_MESSAGES.items():
            if self.params.get(field):
                raise RpcError(INVALID_PARAMS, f"Treadle does not support {field} for messages of a session; {instead}")
        if self.params.get("agentMode"):
            await self._change_mode(require_text(self.params, "agentMode"))
        mode = str(self.params.get("mode") or "enqueue")
        attachments, trace = self.params.get("attachments") or (), extract_traceparent(self.params)
        return await self.session.send(require_text(self.params, "prompt"), mode, attachments, trace)

    async def _change_mode(self, name: str) -> None:
        """RpcError for a mode that there is not, and while a run goes on in another one."""
        if (mode := _OWN_MODES.get(name)) is None:
            raise RpcError(INVALID_PARAMS, f"There is no mode {name!r}; there is: {', '.join(_OWN_MODES)}.")
        if mode == self.session.options.mode:
            return
        is_sent = self.method.startswith("session.send")
        if is_sent and compute_status(await self.session.chat.state()) not in ("idle", "error"):
            raise RpcError(INVALID_PARAMS, f"The session works in another mode than {name!r}; wait until it is idle.")
        await self.session.change({"mode": mode})

    async def send(self) -> Any:
        return {"messageId": await self._send_message()}

    async def send_and_wait(self) -> Any:
        return await self.session.wait_for(self._send_message())

    async def abort(self) -> Any:
        return {"success": True, "interrupted": await self.session.abort()}

    async def detach(self) -> Any:
        await self.session.let_program_leave(self.connection)
        return {"success": True}

    async def shutdown(self) -> Any:
        await self.session.abort()
        return await self.detach()

    async def compact(self) -> Any:
        completion: e.CompactionComplete | None = None
        async for envelope in self.session.chat.compact():
            if isinstance(envelope.data, e.CompactionComplete):
                completion = envelope.data
        if completion is None or not completion.success:
            return {"success": False, "tokensRemoved": 0, "messagesRemoved": 0}
        removed_tokens = max(0, completion.tokens_before - completion.tokens_after)
        return {"success": True, "tokensRemoved": removed_tokens, "messagesRemoved": completion.upto}

    # -- programs among themselves ------------------------------------------------------------------------------------

    async def elicit(self) -> Any:
        schema = self.params.get("requestedSchema")
        return await self.session.dialogues.elicit(require_text(self.params, "message"), schema)

    async def dialogue_answer(self) -> Any:
        """To a dialogue, or that a command is done."""
        reply = self.params.get("result", {"error": self.params.get("error")})
        return {"success": self.session.dialogues.answer(require_text(self.params, "requestId"), reply)}

    async def commands(self) -> Any:
        """Those of programs, and what the runtime itself can be told in this way."""
        kinds = [("builtin", _COMMANDS)] if self.params.get("includeBuiltins") is not False else []
        if self.params.get("includeClientCommands") is not False:
            kinds.append(("client", self.session.dialogues.commands))
        entries = [
            {"name": name, "kind": kind, "description": about, "allowDuringAgentExecution": kind == "client"}
            for kind, descriptions in kinds
            for name, about in descriptions.items()
        ]
        return {"commands": entries}

    async def execute_command(self) -> Any:
        name, words = require_text(self.params, "commandName"), str(self.params.get("args") or "")
        error = await self.session.dialogues.execute(name, words)
        return {"error": error} if error else {}

    async def invoke_command(self) -> Any:
        if (name := require_text(self.params, "name")) == "compact":
            outcome = await self.compact()
            return {"kind": "text", "text": f"{outcome['tokensRemoved']:,} tokens less."}
        if name == "model":
            return {"kind": "text", "text": f"The model is {self.session.shown_model}."}
        if error := await self.session.dialogues.execute(name, str(self.params.get("input") or "")):
            raise RpcError(INVALID_PARAMS, error)
        return {"kind": "completed"}

    # -- history ------------------------------------------------------------------------------------------------------

    async def get_messages(self) -> Any:
        return {"events": await self.session.read_history()}

    async def read_events(self) -> Any:
        """A page of the history; the cursor is the number of events before it."""
        events = await self.session.read_history()
        begin = min(len(events), _count_of(self.params, "cursor", 0))
        end = min(len(events), begin + _count_of(self.params, "max", len(events)))
        return {"events": events[begin:end], "cursor": str(end), "hasMore": end < len(events), "cursorStatus": "ok"}

    async def tail(self) -> Any:
        return {"cursor": str(len(await self.session.read_history()))}

    async def interest(self) -> Any:
        """Every program is told everything."""
        return {"success": True, "handle": "all"}

    async def log(self) -> Any:
        level, url = str(self.params.get("level") or "info"), self.params.get("url")
        text = require_text(self.params, "message")
        return {"eventId": await self.session.log(text, level, bool(self.params.get("ephemeral")), url)}

    async def is_processing(self) -> Any:
        return {"processing": compute_status(await self.session.chat.state()) not in ("idle", "error")}

    async def snapshot(self) -> Any:
        summary = (await self.session.agent.deps.store.get(self.session.chat.id)).summary
        times = {"startTime": format_time(summary.created_ms), "modifiedTime": format_time(summary.updated_ms)}
        place = {"workingDirectory": summary.root, "currentMode": await self.mode_get(), "summary": summary.title}
        in_use = len(self.session.programs) > 1
        return {"sessionId": summary.chat, **times, **place, "isRemote": False, "alreadyInUse": in_use}

    # -- requests to a program ----------------------------------------------------------------------------------------

    def _list_open_requests(self, request_kind: str) -> list[dict[str, Any]]:
        return [data for kind, data in self.session.requests.open.values() if kind == request_kind]

    async def tool_result(self) -> Any:
        request = require_text(self.params, "requestId")
        is_open = await self.session.requests.submit(request, self.params.get("result"), self.params.get("error"))
        return {"success": is_open}

    async def permission(self) -> Any:
        answer, request = self.params.get("result"), require_text(self.params, "requestId")
        return {"success": await self.session.requests.decide(request, answer if isinstance(answer, Mapping) else {})}

    async def user_input(self) -> Any:
        response = self.params.get("response")
        answer = response.get("answer") if isinstance(response, Mapping) else self.params.get("answer")
        request = require_text(self.params, "requestId")
        return {"success": await self.session.requests.answer(request, str(answer or ""))}

    async def pending_tools(self) -> Any:
        return {"items": self._list_open_requests("external_tool.requested")}

    async def pending_permissions(self) -> Any:
        requests = self._list_open_requests("permission.requested")
        return {"items": [{**each, "request": each["permissionRequest"]} for each in requests]}

    async def approve_all(self) -> Any:
        requests = self.session.requests
        requests.approve_all = bool(self.params.get("enabled", True))
        for request in self._list_open_requests("permission.requested") if requests.approve_all else ():
            await requests.decide(request["requestId"], {"kind": "approve-once"})
        return {"success": True, "enabled": requests.approve_all}

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def mode_get(self) -> Any:
        return MODES.get(self.session.options.mode, "interactive")

    async def mode_set(self) -> Any:
        await self._change_mode(require_text(self.params, "mode"))
        return {"status": "applied", "modeApplied": True, "modelChanged": False}

    async def name_get(self) -> Any:
        return {"name": (await self.session.chat.state()).title or None}

    async def name_set(self) -> Any:
        await self.session.chat.command(c.Rename(require_text(self.params, "name"), by="program"))
        return {}

    async def list_queue(self) -> Any:
        items = (await self.session.chat.state()).queue
        common = {"kind": "message", "agentMode": "interactive"}
        steering = [each.content for each in items if each.delivery == "steering"]
        entries = [{**common, "id": each.id, "displayText": each.content} for each in items]
        return {"items": entries, "steeringMessages": steering}

    async def drop_queued(self) -> Any:
        items = (await self.session.chat.state()).queue
        for item in items[-1:] if self.method.endswith("removeMostRecent") else items:
            await self.session.chat.command(c.DeleteQueued(item.id))
        return {"removed": bool(items)}

    async def options_update(self) -> Any:
        """Refuse options that have a method of their own. Others are accepted without effect."""
        if self.params.get("model"):
            raise RpcError(INVALID_PARAMS, "Change the model with session.model.switchTo.")
        if self.params.get("reasoningEffort"):
            raise RpcError(INVALID_PARAMS, "Change the reasoning effort with session.model.setReasoningEffort.")
        return {"success": True}

    # -- tools, custom agents, skills, MCP servers ---------------------------------------------------------------------

    async def set_tools(self) -> Any:
        self.config.tools = msgspec.convert(self.params.get("tools") or [], list[Tool], strict=False)
        await self.session.configure(self.config)
        return {}

    async def tools_now(self) -> Any:
        return {"tools": [format_tool(spec) for spec in self.session.agent.deps.tools.list_specs(self.session.options)]}

    async def agents(self) -> Any:
        return {"agents": [format_agent(agent) for agent in self.config.custom_agents or ()]}

    async def agent_now(self) -> Any:
        custom_agent = self.config.custom_agent
        return {"agent": format_agent(custom_agent) if custom_agent is not None else None}

    async def choose_agent(self) -> Any:
        name = self.params.get("name")
        if name and all(agent.name != name for agent in self.config.custom_agents or ()):
            raise RpcError(INVALID_PARAMS, f"There is no custom agent {name!r} in this session.")
        self.config.agent = name or None
        await self.session.configure(self.config)
        return await self.agent_now()

    async def skills(self) -> Any:
        options, disabled = self.session.options, self.config.disabled_skills or ()
        all_skills = await asyncio.to_thread(find_skills, self.session.agent, self.config, options.project)
        entries = []
        for name, (skill, source) in all_skills.items():
            entry = {"name": name, "description": skill.description, "source": source, "userInvocable": True}
            entries.append({**entry, "enabled": name not in disabled, "path": os.path.join(options.root, skill.path)})
        return {"skills": entries}

    async def toggle_skill(self) -> Any:
        name, off = self.params.get("name"), self.config.disabled_skills or []
        self.config.disabled_skills = [each for each in off if each != name]
        if self.method.endswith("disable"):
            self.config.disabled_skills.append(require_text(self.params, "name"))
        await self.session.configure(self.config)
        return {"warnings": [], "errors": []}

    async def used_skills(self) -> Any:
        skill_paths = {skill.name: skill.path for skill in self.session.options.skills}
        events = await self.session.chat.events_of(e.ExecutionStart)
        starts = [each.data for each in events if isinstance(each.data, e.ExecutionStart)]
        skill_calls = {start.arguments.get("name"): start.call for start in starts if start.name == SKILL_TOOL}
        entries = [
            {"name": n, "path": skill_paths[n], "invokedAtTurn": int(call.split(".")[0]), "content": ""}
            for n, call in skill_calls.items()
            if n in skill_paths
        ]
        return {"skills": entries}

    async def _get_links(self) -> "dict[str, Link]":
        options = self.session.options
        hub = self.session.agent.mcp.hub if self.session.servers else None
        links = await hub.list_links(options.root, options.own_servers, options.world) if hub is not None else ()
        return {link.declared.name: link for link in links}

    async def servers(self) -> Any:
        links = await self._get_links()
        servers = []
        for name in {**self.session.servers, **links}:
            link = links.get(name)
            reason = link.connection.why if link is not None and link.connection is not None else ""
            servers.append({"name": name, "status": _describe_state(link), **({"error": reason} if reason else {})})
        return {"servers": servers}

    async def server_tools(self) -> Any:
        name = require_text(self.params, "serverName")
        link = (await self._get_links()).get(name)
        if link is None or link.known is None or _describe_state(link) != "connected":
            raise RpcError(INVALID_PARAMS, f"The MCP server {name!r} is not connected.")
        return {"tools": [{"name": tool.name, "description": tool.description} for tool in link.known.tools]}

    async def server_runs(self) -> Any:
        link = (await self._get_links()).get(require_text(self.params, "serverName"))
        return {"running": _describe_state(link) == "connected"}

    async def toggle_server(self) -> Any:
        if (name := require_text(self.params, "serverName")) not in self.session.servers:
            raise RpcError(INVALID_PARAMS, f"No MCP host initialized for {name!r}: the session has no such server.")
        if not self.method.endswith(("startServer", "enable")) or self.method.endswith("restartServer"):
            self.session.stopped.add(name)
            await self.session.configure(self.config)
            await self._get_links()
        if not self.method.endswith(("stopServer", "disable")):
            self.session.stopped.discard(name)
            await self.session.configure(self.config)
        return {}


def _describe_state(link: "Link | None") -> str:
    if link is None:
        return "disabled"
    failed = link.connecting is not None and link.connecting.done() and link.connection is None
    return "failed" if failed else _STATES[link.connection.state] if link.connection is not None else "pending"


def _count_of(params: Params, name: str, default: int) -> int:
    """A number from 0 on, which may be given as text."""
    value = str(params.get(name) or default)
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise RpcError(INVALID_PARAMS, f"{name} is no number from 0 on.")
    return int(value)
