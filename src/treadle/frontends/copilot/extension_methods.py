"""Methods of a session for its tools, custom agents, skills and MCP servers; and the base of all calls."""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.adapters.tools.builtin.skill import SKILL_TOOL
from treadle.base.jsonrpc.connection import INVALID_PARAMS, Connection, RpcError
from treadle.frontends.copilot.extensions import found_skills
from treadle.frontends.copilot.session import Session
from treadle.frontends.copilot_words.config import Config, Tool
from treadle.frontends.copilot_words.shapes import agent_shown, tool_shown
from treadle.protocol import events as e

if TYPE_CHECKING:
    from treadle.library.mcp_hub.hub import Link

Params = Mapping[str, Any]
_STATES = {"starting": "pending", "ready": "connected", "failed": "failed", "closed": "stopped"}


def text_of(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RpcError(INVALID_PARAMS, f"{name} is missing, empty, or no text.")
    return value


class ExtensionCall(msgspec.Struct):
    """One call of a program, of a session that it is attached to."""

    session: Session
    connection: Connection
    method: str
    params: Params

    @property
    def config(self) -> Config:
        return self.session.programs[self.connection]

    async def set_tools(self) -> Any:
        self.config.tools = msgspec.convert(self.params.get("tools") or [], list[Tool], strict=False)
        await self.session.configure(self.config)
        return {}

    async def tools_now(self) -> Any:
        return {"tools": [tool_shown(spec) for spec in self.session.agent.deps.tools.specs(self.session.options)]}

    async def agents(self) -> Any:
        return {"agents": [agent_shown(agent) for agent in self.config.custom_agents or ()]}

    async def agent_now(self) -> Any:
        custom_agent = self.config.custom_agent
        return {"agent": agent_shown(custom_agent) if custom_agent is not None else None}

    async def choose_agent(self) -> Any:
        name = self.params.get("name")
        if name and all(agent.name != name for agent in self.config.custom_agents or ()):
            raise RpcError(INVALID_PARAMS, f"There is no custom agent {name!r} in this session.")
        self.config.agent = name or None
        await self.session.configure(self.config)
        return await self.agent_now()

    async def skills(self) -> Any:
        all_skills = await asyncio.to_thread(
            found_skills, self.session.agent, self.config, self.session.options.project
        )
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
                for name, (skill, source) in all_skills.items()
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
        skill_paths = {skill.name: skill.path for skill in self.session.options.skills}
        events = await self.session.chat.events_of(e.ExecutionStart)
        starts = [each.data for each in events if isinstance(each.data, e.ExecutionStart)]
        skill_calls = {start.arguments.get("name"): start.call for start in starts if start.name == SKILL_TOOL}
        entries = [
            {"name": n, "path": skill_paths[n], "invokedAtTurn": int(call.split(".")[0])}
            for n, call in skill_calls.items()
            if n in skill_paths
        ]
        return {"skills": [{**each, "content": ""} for each in entries]}

    async def _links(self) -> "dict[str, Link]":
        options = self.session.options
        hub = self.session.agent.mcp.hub if self.session.servers else None
        links = await hub.servers(options.root, options.own_servers, options.world) if hub is not None else ()
        return {link.declared.name: link for link in links}

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


def _state(link: "Link | None") -> str:
    if link is None:
        return "disabled"
    failed = link.connecting is not None and link.connecting.done() and link.connection is None
    return "failed" if failed else _STATES[link.connection.state] if link.connection is not None else "pending"


def _server(name: str, link: "Link | None") -> dict[str, Any]:
    reason = link.connection.why if link is not None and link.connection is not None else ""
    return {"name": name, "status": _state(link), **({"error": reason} if reason else {})}
