"""MCP servers that the editor passes on: declared for the project of the session, as long as this process lives."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from acp import schema as a

from treadle.base.inert import inert, inert_line
from treadle.errors import InvalidInput
from treadle.library.agent import Agent

NO_PACKAGE = "they need the package mcp (pip install 'treadle[mcp]')"


def installed() -> bool:
    return find_spec("mcp") is not None


def declare(agent: Agent, root: str, servers: list[Any] | None) -> list[str]:
    """Register the MCP servers of the editor. Return a remark for each server that is not used, for the person to
    read."""
    problems: list[str] = []
    for server in servers or ():
        try:
            if not installed():
                raise InvalidInput(NO_PACKAGE)
            agent.mcp.add(_name(server.name), _read(server), root)
        except InvalidInput as error:
            problems.append(
                f"the MCP server {inert_line(server.name, 60)} of the editor is not used: {inert(str(error))}"
            )
    return problems


def _name(raw_name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "-", raw_name).strip("-")[:32]


def _read(server: object) -> Mapping[str, Any]:
    match server:
        case a.McpServerStdio(command=command, args=args, env=env):
            return {"command": command, "args": args, "env": {each.name: each.value for each in env}}
        case a.HttpMcpServer(url=url, headers=headers):
            return {"url": url, "headers": {each.name: each.value for each in headers}, "type": "http"}
        case a.SseMcpServer(url=url, headers=headers):
            return {"url": url, "headers": {each.name: each.value for each in headers}, "type": "sse"}
        case _:
            raise InvalidInput("only programs, streamable HTTP and SSE are spoken here")
