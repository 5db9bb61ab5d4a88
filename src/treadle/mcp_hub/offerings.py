"""What servers offer beside tools, for front ends: prompts, which become slash commands, and resources, which can be
attached to a message as `@server:uri`. A chat in a world has those of its world's servers (W-11)."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.inert import inert_line
from treadle.mcp_hub.hub import Hub, Link, Place
from treadle.mcp_hub.known import tool_name
from treadle.protocol.options import ChatOptions
from treadle.tools.registry import SERVER_MARK, may_call
from treadle.types import ChatId, new_id

if TYPE_CHECKING:
    from mcp import Client

    from treadle.mcp.content import Seen

T = TypeVar("T")

_PAGES = 20
_MENTION = re.compile(r"(?<!\S)@([a-zA-Z0-9][\w-]{0,31}):([a-zA-Z][a-zA-Z0-9+.-]*:\S*[^\s.,;:!?)])")
_COMMAND = re.compile(r"/([a-zA-Z0-9][\w-]{0,31}):(\S+)(?:\s+(.*))?", re.DOTALL)
MOST_ATTACHED = 1_000_000
"""Characters of all that is attached to one message."""

Pictures = tuple[tuple[str, bytes], ...]
"""Each with its media type."""


class Prompt(msgspec.Struct, frozen=True):
    server: str
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The slash command that stands for it."""
        return f"/{self.server}:{self.name}"

    @property
    def hint(self) -> str:
        return " ".join(name if name in self.required else f"[{name}]" for name in self.arguments)

    def given(self, words: str) -> dict[str, str]:
        """Its arguments as they stand behind the command: one word each in their order, the last one takes the rest;
        or `name=value`. InvalidInput if one is missing."""
        try:
            each = shlex.split(words)
        except ValueError:
            each = words.split()
        pairs = [word.partition("=") for word in each]
        if pairs and all(sign and name in self.arguments for name, sign, _ in pairs):
            found = {name: value for name, _, value in pairs}
        else:
            last = max(0, len(self.arguments) - 1)
            cut = [*each[:last], " ".join(each[last:])]
            found = {name: value for name, value in zip(self.arguments, cut, strict=False) if value}
        if missing := [name for name in self.required if not found.get(name)]:
            raise InvalidInput(f"{inert_line(self.command, 80)} needs {inert_line(', '.join(missing), 200)}")
        return found


class Resource(msgspec.Struct, frozen=True):
    server: str
    uri: str
    """With `template`: an RFC 6570 template of addresses."""
    name: str = ""
    description: str = ""
    media_type: str = ""
    template: bool = False

    @property
    def mention(self) -> str:
        return f"@{self.server}:{self.uri}"

    @property
    def typed(self) -> str:
        """What is typed for it; of a template what stands before its first variable."""
        return self.mention.partition("{")[0] if self.template else self.mention


class Offerings:
    """Where a project is asked for, `own` are the servers that a program brought, and `world` the world of it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def known_prompts(self, root: str = "", own: str = "", world: str = "") -> list[Prompt]:
        """The prompts of the servers of a project, as they were last heard of; starts nothing."""
        return [prompt for link in await self._hub.servers(root, own, world) for prompt in _prompts(link)]

    async def prompts(self, root: str = "", own: str = "", world: str = "", *, server: str = "") -> list[Prompt]:
        """The prompts of all servers of a project that can be reached, or of one."""
        async with self._used(Place(root, own, world)) as place:
            return [prompt for link in await self._reached(place, server) for prompt in _prompts(link)]

    async def prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        root: str = "",
        own: str = "",
        world: str = "",
    ) -> "Seen":
        """A prompt, filled in, as what a person would say."""
        from treadle.mcp.content import Seen, seen

        async def get(client: "Client") -> list["Seen"]:
            result = await client.get_prompt(name, dict(arguments or {}))
            return [
                seen([message.content])
                if message.role == "user"
                else Seen(f"(you would say) {seen([message.content]).text}")
                for message in result.messages
            ]

        async with self._used(Place(root, own, world)) as place:
            said = await self._use(server, place, get)
        return Seen("\n\n".join(each.text for each in said), tuple(p for each in said for p in each.pictures))

    async def resources(self, root: str = "", own: str = "", world: str = "", *, server: str = "") -> list[Resource]:
        """The resources of all servers of a project, or of one, and the templates of more."""
        found: list[Resource] = []
        async with self._used(Place(root, own, world)) as place:
            for link in await self._reached(place, server):
                if link.known is not None and link.known.resources:
                    name = link.declared.name
                    found += await self._use(name, place, partial(_resources, name))
        return found

    async def resource(self, mention: str, root: str = "", own: str = "", world: str = "") -> "Seen":
        """What lies at `@server:uri`."""
        from treadle.mcp.content import Seen, contents

        server, colon, uri = mention.removeprefix("@").partition(":")
        if not colon or not uri:
            raise InvalidInput(f"{inert_line(mention, 100)} names no resource; write @server:uri")

        async def read(client: "Client") -> "Seen":
            pictures: list[tuple[str, bytes]] = []
            text = contents((await client.read_resource(uri)).contents, pictures)
            return Seen(text, tuple(pictures))

        async with self._used(Place(root, own, world)) as place:
            return await self._use(server, place, read)

    async def names(self, options: ChatOptions, *, callable_only: bool = False) -> frozenset[str]:
        """The servers of a chat; or only those of which it may call a tool, as far as their tools are known."""
        links = await self._hub.servers(options.root, options.own_servers, options.world)
        return frozenset(link.declared.name for link in links if not callable_only or _may_call(link, options))

    async def with_resources(self, root: str = "", own: str = "", world: str = "") -> frozenset[str]:
        """The servers of a project that had resources when they were last heard of; starts nothing."""
        links = await self._hub.servers(root, own, world)
        return frozenset(link.declared.name for link in links if link.known is not None and link.known.resources)

    async def spoken(
        self, text: str, root: str = "", own: str = "", world: str = "", *, names: Collection[str] | None = None
    ) -> tuple[str, Pictures]:
        """A message as its writer means it: the prompt that `/server:prompt words` stands for, and behind the text
        what lies at each `@server:uri` that they wrote. What names no server here stays as it is; `names`: only these
        are here."""
        written = text
        declared = {link.declared.name for link in await self._hub.servers(root, own, world)}
        names = declared if names is None else declared.intersection(names)
        pictures: Pictures = ()
        if (found := _COMMAND.fullmatch(text)) is not None and found[1] in names:
            offered = await self.prompts(root, own, world, server=found[1])
            prompt = next((each for each in offered if each.name == found[2]), None)
            if prompt is None:
                raise NotFound(f"the MCP server {found[1]} has no prompt {inert_line(found[2], 80)!r}")
            said = await self.prompt(found[1], found[2], prompt.given(found[3] or ""), root, own, world)
            text, pictures = said.text, said.pictures
        parts = [text]
        mentions = (f"@{named[1]}:{named[2]}" for named in _MENTION.finditer(written) if named[1] in names)
        for mention in dict.fromkeys(mentions):
            held = await self.resource(mention, root, own, world)
            parts.append(f"{mention}, as attached:\n{held.text}")
            pictures += held.pictures
        if sum(map(len, parts)) - (len(text) if text is written else 0) > MOST_ATTACHED:
            raise InvalidInput(f"what is attached has more than {MOST_ATTACHED:,} characters")
        return "\n\n".join(parts), pictures

    @asynccontextmanager
    async def _used(self, place: Place) -> AsyncIterator[Place]:
        """What was started for a world ends again, unless a chat is worked on there."""
        user = ChatId(new_id("use"))
        await self._hub.join(place, user)
        try:
            yield place
        finally:
            self._hub.rest(user)

    async def _reached(self, place: Place, server: str = "") -> list[Link]:
        """Those that are ready, once all have started or failed to."""
        links = [link for link in await self._hub.servers(*place) if server in ("", link.declared.name)]

        async def settle(link: Link) -> None:
            connection, _ = await self._hub.connected(link.declared.name, *place)
            await connection.settled()

        await asyncio.gather(*map(settle, links))
        return [link for link in links if link.connection is not None and link.connection.state == "ready"]

    async def _use(self, server: str, place: Place, work: "Callable[[Client], Awaitable[T]]") -> T:
        if all(link.declared.name != server for link in await self._hub.servers(*place)):
            raise NotFound(f"there is no MCP server {inert_line(server, 60)!r} for this project")
        from treadle.mcp.connection import Lost

        connection, _ = await self._hub.connected(server, *place)
        patience_s = (await self._hub.link(server, *place)).declared.server.timeout_s
        try:
            async with asyncio.timeout(patience_s):
                found: T = await connection.use(work)
        except Lost as error:
            raise ToolError(str(error)) from error
        except TimeoutError as error:
            raise ToolError(f"the MCP server {server} did not answer within {patience_s:g} seconds") from error
        return found


def _may_call(link: Link, options: ChatOptions) -> bool:
    """Of a server without tools: whether it could call any."""
    server, known = link.declared, link.known.tools if link.known is not None else ()
    tools = [tool.name for tool in known if server.server.takes(tool.name)]
    names = [tool_name(server.name, name) for name in tools] or [f"{server.name}{SERVER_MARK}*"]
    return any(may_call(name, options) for name in names)


def _prompts(link: Link) -> list[Prompt]:
    known = link.known.commands if link.known is not None else ()
    return [Prompt(link.declared.name, each.name, each.description, each.arguments, each.required) for each in known]


async def _resources(server: str, client: "Client") -> list[Resource]:
    found: list[Resource] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_resources(cursor=cursor)
        found += [
            Resource(server, str(each.uri), each.name, each.description or "", each.mime_type or "")
            for each in page.resources
        ]
        if not (cursor := page.next_cursor):
            break
    templates = await client.list_resource_templates()
    found += [
        Resource(server, each.uri_template, each.name, each.description or "", each.mime_type or "", template=True)
        for each in templates.resource_templates
    ]
    return found
