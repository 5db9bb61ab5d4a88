"""Expands messages that people type: `/name words` for a command or a prompt of an MCP server, `@server:uri` for a
resource. `include_own`: the person is the user of this machine; others have the commands of the project, and only those
MCP servers whose tools their chat has."""

import asyncio
from typing import TYPE_CHECKING

from treadle.base.inert import make_inert_line
from treadle.errors import TreadleError
from treadle.library.agent import Agent
from treadle.protocol.content import Image
from treadle.protocol.options import ChatOptions

if TYPE_CHECKING:
    from treadle.library.mcp_hub.offerings import Resource
    from treadle.library.skills.reading import OwnCommand

MOST_LISTED = 500


async def expand_message(
    agent: Agent, options: ChatOptions, text: str, *, include_own: bool = True
) -> tuple[str, tuple[Image, ...]]:
    """The text of a message, with a command replaced by its text and mentioned resources appended; and its pictures."""
    if text.startswith("/"):
        name, _, words = text[1:].partition(" ")
        own = await asyncio.to_thread(agent.own_commands, options.project, include_own=include_own)
        if (command := own.get(name.strip())) is not None:
            text = command.expand(words.strip())
    servers = agent.servers_of(options) if text.startswith("/") or "@" in text else None
    if servers is None:
        return text, ()
    names = await servers.names(options, callable_only=not include_own)
    place = options.root, options.own_servers, options.world
    expanded, pictures = await servers.expand_message(text, *place, names=names)
    return expanded, tuple([Image(kind, await agent.deps.store.put_blob(data)) for kind, data in pictures])


async def list_commands(agent: Agent, options: ChatOptions, *, include_own: bool = True) -> "dict[str, OwnCommand]":
    """The slash commands by name: the user's and the project's, and the known prompts of servers."""
    from treadle.library.skills.reading import OwnCommand

    commands_by_name = await asyncio.to_thread(agent.own_commands, options.project, include_own=include_own)
    if (servers := agent.servers_of(options)) is None:
        return commands_by_name
    names = await servers.names(options, callable_only=not include_own)
    for each in await servers.known_prompts(options.root, options.own_servers, options.world):
        name, about = each.command[1:], make_inert_line(each.description, 200)
        if each.server in names and _can_be_typed(name):
            command = OwnCommand(name, about, f"{each.command} $ARGUMENTS", make_inert_line(each.hint, 80))
            commands_by_name.setdefault(name, command)
    return commands_by_name


async def list_resources(agent: Agent, options: ChatOptions, *, include_own: bool = True) -> "list[Resource]":
    """The resources that can be mentioned with @. A server that does not answer is skipped."""
    if (servers := agent.servers_of(options)) is None:
        return []
    place = options.root, options.own_servers, options.world
    names = await servers.names(options, callable_only=not include_own) & await servers.with_resources(*place)
    requests = [servers.resources(*place, server=name) for name in sorted(names)]
    listed_resources: list[Resource] = []
    for listed in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(listed, BaseException) and not isinstance(listed, TreadleError):
            raise listed
        if not isinstance(listed, BaseException):
            listed_resources += [each for each in listed if _can_be_typed(each.typed)]
    return listed_resources[:MOST_LISTED]


def _can_be_typed(name: str) -> bool:
    return len(name) < 500 and not any(map(str.isspace, name)) and make_inert_line(name, 500) == name
