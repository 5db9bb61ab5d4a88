"""What may be called of a session, by name. Each is a few lines: parameters in, the library, an answer out. A name that
is not here is answered with an error that says so."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.chat.state import status
from treadle.copilot_sdk.config import Config, CustomAgent, Tool
from treadle.copilot_sdk.events import MODES, stamp
from treadle.copilot_sdk.extensions import found_skills
from treadle.copilot_sdk.names import shown_name
from treadle.copilot_sdk.session import Session
from treadle.jsonrpc.connection import INVALID_PARAMS, Connection, RpcError
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.tools import ToolSpec
from treadle.tools.builtin.skill import SKILL_TOOL

if TYPE_CHECKING:
    from treadle.mcp_hub.hub import Link

Params = Mapping[str, Any]
_OWN_MODES = {"interactive": "confirm", "plan": "read-only", "autopilot": "autopilot"}
_STATES = {"starting": "pending", "ready": "connected", "failed": "failed", "closed": "stopped"}


def text_of(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RpcError(INVALID_PARAMS, f"{name} is missing, empty, or no text.")
    return value


def tool_shown(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.parameters
    return {"name": shown_name(spec.name), "description": spec.description, "parameters": schema, "inputSchema": schema}


class Call(msgspec.Struct):
    """One call of a program, of a session that it is attached to."""

    session: Session
    connection: Connection
    method: str
    params: Params

    @property
    def config(self) -> Config:
        return self.session.programs[self.connection]

    # -- the conversation ---------------------------------------------------------------------------------------------

    def _sending(self) -> Awaitable[str]:
        if self.params.get("responseFormat"):
            raise RpcError(INVALID_PARAMS, "Treadle does not support responseFormat for messages of a session.")
        mode = str(self.params.get("mode") or "enqueue")
        return self.session.send(text_of(self.params, "prompt"), mode, self.params.get("attachments") or ())

    async def send(self) -> Any:
        return {"messageId": await self._sending()}

    async def send_and_wait(self) -> Any:
        return await self.session.wait_for(self._sending())

    async def abort(self) -> Any:
        return {"success": True, "interrupted": await self.session.abort()}

    async def detach(self) -> Any:
        await self.session.end(self.connection)
        return {"success": True}

    async def shutdown(self) -> Any:
        await self.session.abort()
        return await self.detach()

    async def compact(self) -> Any:
        done: e.CompactionComplete | None = None
        async for envelope in self.session.chat.compact():
            if isinstance(envelope.data, e.CompactionComplete):
                done = envelope.data
        if done is None or not done.success:
            return {"success": False, "tokensRemoved": 0, "messagesRemoved": 0}
        removed = max(0, done.tokens_before - done.tokens_after)
        return {"success": True, "tokensRemoved": removed, "messagesRemoved": done.upto}

    # -- what happened ------------------------------------------------------------------------------------------------

    async def get_messages(self) -> Any:
        return {"events": await self.session.events()}

    async def read_events(self) -> Any:
        """A page of the history; the cursor is the number of events before it."""
        told = await self.session.events()
        begin = int(self.params.get("cursor") or 0)
        end = min(len(told), begin + int(self.params.get("max") or len(told)))
        return {"events": told[begin:end], "cursor": str(end), "hasMore": end < len(told), "cursorStatus": "ok"}

    async def tail(self) -> Any:
        return {"cursor": str(len(await self.session.events()))}

    async def interest(self) -> Any:
        """Every program is told everything."""
        return {"success": True, "handle": "all"}

    async def log(self) -> Any:
        level, url = str(self.params.get("level") or "info"), self.params.get("url")
        text = text_of(self.params, "message")
        return {"eventId": await self.session.log(text, level, bool(self.params.get("ephemeral")), url)}

    async def is_processing(self) -> Any:
        return {"processing": status(await self.session.chat.state()) not in ("idle", "error")}

    async def snapshot(self) -> Any:
        summary = (await self.session.agent.deps.store.get(self.session.chat.id)).summary
        return {
            "sessionId": summary.chat,
            "startTime": stamp(summary.created_ms),
            "modifiedTime": stamp(summary.updated_ms),
            "workingDirectory": summary.root,
            "currentMode": MODES.get(self.session.options.mode, "interactive"),
            "summary": summary.title,
            "isRemote": False,
            "alreadyInUse": len(self.session.programs) > 1,
        }

    # -- what a program is asked for ----------------------------------------------------------------------------------

    def _asked(self, wanted: str) -> list[dict[str, Any]]:
        return [data for kind, data in self.session.requests.open.values() if kind == wanted]

    async def tool_result(self) -> Any:
        request = text_of(self.params, "requestId")
        done = await self.session.requests.submit(request, self.params.get("result"), self.params.get("error"))
        return {"success": done}

    async def permission(self) -> Any:
        given = self.params.get("result")
        decided = self.session.requests.decide(
            text_of(self.params, "requestId"), given if isinstance(given, Mapping) else {}
        )
        return {"success": await decided}

    async def user_input(self) -> Any:
        response = self.params.get("response")
        answer = response.get("answer") if isinstance(response, Mapping) else self.params.get("answer")
        return {"success": await self.session.requests.answer(text_of(self.params, "requestId"), str(answer or ""))}

    async def pending_tools(self) -> Any:
        return {"items": self._asked("external_tool.requested")}

    async def pending_permissions(self) -> Any:
        return {
            "items": [{**each, "request": each["permissionRequest"]} for each in self._asked("permission.requested")]
        }

    async def approve_all(self) -> Any:
        requests = self.session.requests
        requests.approve_all = bool(self.params.get("enabled", True))
        for asked in self._asked("permission.requested") if requests.approve_all else ():
            await requests.decide(asked["requestId"], {"kind": "approve-once"})
        return {"success": True, "enabled": requests.approve_all}

    # -- tools, agents, skills, servers -------------------------------------------------------------------------------

    async def set_tools(self) -> Any:
        self.config.tools = msgspec.convert(self.params.get("tools") or [], list[Tool], strict=False)
        await self.session.configure(self.config)
        return {}

    async def tools_now(self) -> Any:
        return {"tools": [tool_shown(spec) for spec in self.session.agent.deps.tools.specs(self.session.options)]}

    async def agents(self) -> Any:
        return {"agents": [_agent(agent) for agent in self.config.custom_agents or ()]}

    async def agent_now(self) -> Any:
        chosen = self.config.custom_agent
        return {"agent": _agent(chosen) if chosen is not None else None}

    async def choose_agent(self) -> Any:
        name = self.params.get("name")
        if name and all(agent.name != name for agent in self.config.custom_agents or ()):
            raise RpcError(INVALID_PARAMS, f"There is no custom agent {name!r} in this session.")
        self.config.agent = name or None
        await self.session.configure(self.config)
        return await self.agent_now()

    async def skills(self) -> Any:
        found = await asyncio.to_thread(found_skills, self.session.agent, self.config, self.session.options.project)
        root, disabled = self.session.options.root, self.config.disabled_skills or ()
        return {
            "skills": [
                {
                    "name": name,
                    "description": skill.description,
                    "source": source,
                    "userInvocable": True,
                    "enabled": name not in disabled,
                    "path": os.path.join(root, skill.path),
                }
                for name, (skill, source) in found.items()
            ]
        }

    async def toggle_skill(self) -> Any:
        """Enable one, disable one, or only look again."""
        name, off = self.params.get("name"), self.config.disabled_skills or []
        self.config.disabled_skills = [each for each in off if each != name]
        if self.method.endswith("disable"):
            self.config.disabled_skills.append(text_of(self.params, "name"))
        await self.session.configure(self.config)
        return {"warnings": [], "errors": []}

    async def used_skills(self) -> Any:
        known = {skill.name: skill.path for skill in self.session.options.skills}
        starts = [each.data for each in await self.session.chat.events() if isinstance(each.data, e.ExecutionStart)]
        used = {start.arguments.get("name"): start.call for start in starts if start.name == SKILL_TOOL}
        shown = [
            {"name": n, "path": known[n], "invokedAtTurn": int(call.split(".")[0])}
            for n, call in used.items()
            if n in known
        ]
        return {"skills": [{**each, "content": ""} for each in shown]}

    async def _links(self) -> "dict[str, Link]":
        options = self.session.options
        hub = self.session.agent.mcp.hub if self.session.servers else None
        found = await hub.servers(options.root, options.own_servers) if hub is not None else ()
        return {link.declared.name: link for link in found}

    async def servers(self) -> Any:
        links = await self._links()
        return {"servers": [_server(name, links.get(name)) for name in {**self.session.servers, **links}]}

    async def server_tools(self) -> Any:
        name = text_of(self.params, "serverName")
        link = (await self._links()).get(name)
        if link is None or link.known is None or _state(link) != "connected":
            raise RpcError(INVALID_PARAMS, f"The MCP server {name!r} is not connected.")
        return {"tools": [{"name": tool.name, "description": tool.description} for tool in link.known.tools]}

    async def server_runs(self) -> Any:
        return {"running": _state((await self._links()).get(text_of(self.params, "serverName"))) == "connected"}

    async def toggle_server(self) -> Any:
        """Start, stop, or start anew."""
        name = text_of(self.params, "serverName")
        if name not in self.session.servers:
            raise RpcError(INVALID_PARAMS, f"No MCP host initialized for {name!r}: the session has no such server.")
        if not self.method.endswith(("startServer", "enable")) or self.method.endswith("restartServer"):
            self.session.stopped.add(name)
            await self.session.configure(self.config)
            await self._links()
        if not self.method.endswith(("stopServer", "disable")):
            self.session.stopped.discard(name)
            await self.session.configure(self.config)
        return {}

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def mode_get(self) -> Any:
        return MODES.get(self.session.options.mode, "interactive")

    async def mode_set(self) -> Any:
        wanted = _OWN_MODES.get(text_of(self.params, "mode"))
        if wanted is None:
            raise RpcError(
                INVALID_PARAMS, f"There is no mode {self.params['mode']!r}; there is: {', '.join(_OWN_MODES)}."
            )
        await self.session.change({"mode": wanted} if wanted != self.session.options.mode else {})
        return {"status": "applied", "modeApplied": True, "modelChanged": False}

    async def name_get(self) -> Any:
        return {"name": (await self.session.chat.state()).title or None}

    async def name_set(self) -> Any:
        await self.session.chat.command(c.Rename(text_of(self.params, "name"), by="program"))
        return {}

    async def queued(self) -> Any:
        items = (await self.session.chat.state()).queue
        common = {"kind": "message", "agentMode": "interactive"}
        steering = [each.content for each in items if each.delivery == "steering"]
        shown = [{**common, "id": each.id, "displayText": each.content} for each in items]
        return {"items": shown, "steeringMessages": steering}

    async def drop_queued(self) -> Any:
        """The last one, or all."""
        items = (await self.session.chat.state()).queue
        for item in items[-1:] if self.method.endswith("removeMostRecent") else items:
            await self.session.chat.command(c.DeleteQueued(item.id))
        return {"removed": bool(items)}

    async def options_update(self) -> Any:
        """Of what a program may change later, only its model is something that Treadle has."""
        if self.params.get("model"):
            raise RpcError(INVALID_PARAMS, "Change the model with session.model.switchTo.")
        return {"success": True}


def _agent(agent: CustomAgent) -> dict[str, Any]:
    shown = {"id": agent.name, "name": agent.name, "displayName": agent.display_name or agent.name}
    more = {"model": agent.model, "tools": agent.tools, "skills": agent.skills, "prompt": agent.prompt}
    return {**shown, "description": agent.description or "", **{name: value for name, value in more.items() if value}}


def _state(link: "Link | None") -> str:
    if link is None:
        return "disabled"
    failed = link.connecting is not None and link.connecting.done() and link.connection is None
    return "failed" if failed else _STATES[link.connection.state] if link.connection is not None else "pending"


def _server(name: str, link: "Link | None") -> dict[str, Any]:
    why = link.connection.why if link is not None and link.connection is not None else ""
    return {"name": name, "status": _state(link), **({"error": why} if why else {})}


SESSION_METHODS: Mapping[str, Callable[[Call], Awaitable[Any]]] = {
    "session.send": Call.send,
    "session.sendAndWait": Call.send_and_wait,
    "session.abort": Call.abort,
    "session.interruptMainTurn": Call.abort,
    "session.detach": Call.detach,
    "session.destroy": Call.detach,
    "session.suspend": Call.detach,
    "session.shutdown": Call.shutdown,
    "session.history.compact": Call.compact,
    "session.getMessages": Call.get_messages,
    "session.eventLog.read": Call.read_events,
    "session.eventLog.tail": Call.tail,
    "session.eventLog.registerInterest": Call.interest,
    "session.eventLog.releaseInterest": Call.interest,
    "session.log": Call.log,
    "session.metadata.isProcessing": Call.is_processing,
    "session.metadata.snapshot": Call.snapshot,
    "session.tools.handlePendingToolCall": Call.tool_result,
    "session.tools.listPendingRequests": Call.pending_tools,
    "session.tools.set": Call.set_tools,
    "session.tools.getCurrentMetadata": Call.tools_now,
    "session.permissions.handlePendingPermissionRequest": Call.permission,
    "session.permissions.pendingRequests": Call.pending_permissions,
    "session.permissions.setApproveAll": Call.approve_all,
    "session.ui.handlePendingUserInput": Call.user_input,
    "session.agent.list": Call.agents,
    "session.agent.reload": Call.agents,
    "session.agent.getCurrent": Call.agent_now,
    "session.agent.select": Call.choose_agent,
    "session.agent.deselect": Call.choose_agent,
    "session.skills.list": Call.skills,
    "session.skills.enable": Call.toggle_skill,
    "session.skills.disable": Call.toggle_skill,
    "session.skills.reload": Call.toggle_skill,
    "session.skills.ensureLoaded": Call.toggle_skill,
    "session.skills.getInvoked": Call.used_skills,
    "session.mcp.list": Call.servers,
    "session.mcp.listTools": Call.server_tools,
    "session.mcp.isServerRunning": Call.server_runs,
    "session.mcp.startServer": Call.toggle_server,
    "session.mcp.stopServer": Call.toggle_server,
    "session.mcp.restartServer": Call.toggle_server,
    "session.mcp.enable": Call.toggle_server,
    "session.mcp.disable": Call.toggle_server,
    "session.mode.get": Call.mode_get,
    "session.mode.set": Call.mode_set,
    "session.name.get": Call.name_get,
    "session.name.set": Call.name_set,
    "session.queue.pendingItems": Call.queued,
    "session.queue.clear": Call.drop_queued,
    "session.queue.removeMostRecent": Call.drop_queued,
    "session.options.update": Call.options_update,
}
