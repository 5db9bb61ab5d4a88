"""What a person typed, and what it stands for: `/name words` for a command of the user's or the project's own, or for a
prompt of an MCP server; `@server:uri` for what lies there. For front ends: what a program says is never looked at.

With `own` the person is the user of this machine. Others, on a server, have the project's commands, and of its servers
those whose tools their chat has."""

import asyncio
from typing import TYPE_CHECKING

from treadle.errors import TreadleError
from treadle.inert import inert_line
from treadle.protocol.content import Image
from treadle.protocol.options import ChatOptions
from treadle.runtime import Agent

if TYPE_CHECKING:
    from treadle.mcp_hub.offerings import Resource
    from treadle.skills.reading import OwnCommand

MOST_LISTED = 500


async def spoken(agent: Agent, options: ChatOptions, text: str, *, own: bool = True) -> tuple[str, tuple[Image, ...]]:
    """What a message says, with the pictures that come with it: in place of a command its text, and behind it what is
    mentioned."""
    if text.startswith("/"):
        name, _, words = text[1:].partition(" ")
        found = (await asyncio.to_thread(agent.own_commands, options.project, own=own)).get(name.strip())
        if found is not None:
            text = found.expand(words.strip())
    servers = agent.servers_of(options) if text.startswith("/") or "@" in text else None
    if servers is None:
        return text, ()
    names = await servers.names(options, callable_only=not own)
    said, pictures = await servers.spoken(text, options.root, options.own_servers, options.world, names=names)
    return said, tuple([Image(kind, await agent.deps.store.put_blob(data)) for kind, data in pictures])


async def commands(agent: Agent, options: ChatOptions, *, own: bool = True) -> "dict[str, OwnCommand]":
    """What can be typed behind a slash, by name: own commands, and the prompts that servers are known to have, as
    commands that say themselves."""
    from treadle.skills.reading import OwnCommand

    found = await asyncio.to_thread(agent.own_commands, options.project, own=own)
    servers = agent.servers_of(options)
    if servers is None:
        return found
    names = await servers.names(options, callable_only=not own)
    for each in await servers.known_prompts(options.root, options.own_servers):
        name, about = each.command[1:], inert_line(each.description, 200)
        if each.server in names and _can_be_typed(name):
            found.setdefault(name, OwnCommand(name, about, f"{each.command} $ARGUMENTS", inert_line(each.hint, 80)))
    return found


async def resources(agent: Agent, options: ChatOptions, *, own: bool = True) -> "list[Resource]":
    """What can be typed behind an @, beside files. Asks the servers that are known to have resources, and passes over
    one that does not answer."""
    servers = agent.servers_of(options)
    if servers is None:
        return []
    place = options.root, options.own_servers, options.world
    names = await servers.names(options, callable_only=not own) & await servers.with_resources(*place)
    asked = [servers.resources(*place, server=name) for name in sorted(names)]
    found: list[Resource] = []
    for listed in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(listed, TreadleError):
            continue
        if isinstance(listed, BaseException):
            raise listed
        found += [each for each in listed if _can_be_typed(each.typed)]
    return found[:MOST_LISTED]


def _can_be_typed(name: str) -> bool:
    return len(name) < 500 and not any(map(str.isspace, name)) and inert_line(name, 500) == name
