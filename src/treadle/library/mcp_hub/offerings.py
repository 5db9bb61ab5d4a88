"""The prompts and resources of MCP servers, for front ends. Prompts become slash commands; resources can be attached to
a message as `@server:uri`. A chat in a world has those of its world's servers (W-11)."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.adapters.tools.registry import SERVER_MARK, can_call
from treadle.base.inert import make_inert_line
from treadle.base.types import ChatId, make_id
from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.library.mcp_hub.hub import Link, McpHub, Place
from treadle.library.mcp_hub.search import make_tool_name
from treadle.protocol.options import ChatOptions
from treadle.protocol.wire import encode_value

if TYPE_CHECKING:
    from mcp import Client

    from treadle.adapters.mcp.calls import RenderedContent

T = TypeVar("T")

_PAGES = 20
_MENTION = re.compile(r"(?<!\S)@([a-zA-Z0-9][\w-]{0,31}):([a-zA-Z][a-zA-Z0-9+.-]*:\S*[^\s.,;:!?)])")
_COMMAND = re.compile(r"/([a-zA-Z0-9][\w-]{0,31}):(\S+)(?:\s+(.*))?", re.DOTALL)
MOST_ATTACHED = 1_000_000  # Characters of all that is attached to one message

Pictures = tuple[tuple[str, bytes], ...]  # Each with its media type


class Prompt(msgspec.Struct, frozen=True):
    server: str
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return f"/{self.server}:{self.name}"

    @property
    def hint(self) -> str:
        return " ".join(name if name in self.required else f"[{name}]" for name in self.arguments)

    def parse_arguments(self, words: str) -> dict[str, str]:
        """One word each in their order, the last takes the rest; or `name=value`. InvalidInput if one is missing."""
        try:
            each = shlex.split(words)
        except ValueError:
            each = words.split()
        pairs = [word.partition("=") for word in each]
        if pairs and all(sign and name in self.arguments for name, sign, _ in pairs):
            arguments = {name: value for name, _, value in pairs}
        else:
            last = max(0, len(self.arguments) - 1)
            split_words = [*each[:last], " ".join(each[last:])]
            arguments = {name: value for name, value in zip(self.arguments, split_words, strict=False) if value}
        if missing := [name for name in self.required if not arguments.get(name)]:
            raise InvalidInput(f"{make_inert_line(self.command, 80)} needs {make_inert_line(', '.join(missing), 200)}")
        return arguments


class Resource(msgspec.Struct, frozen=True):
    server: str
    uri: str  # With `template`: an RFC 6570 template of addresses
    name: str = ""
    description: str = ""
    media_type: str = ""
    template: bool = False

    @property
    def mention(self) -> str:
        return f"@{self.server}:{self.uri}"

    @property
    def typed(self) -> str:
        """The text to type for the resource; for a template, the text before its first variable."""
        return self.mention.partition("{")[0] if self.template else self.mention


class Offerings:
    """Where a project is asked for, `own` are the servers that a program brought, and `world` the world of it."""

    def __init__(self, hub: McpHub) -> None:
        self._hub = hub

    async def known_prompts(self, root: str = "", own_servers: str = "", world: str = "") -> list[Prompt]:
        """The prompts of the servers of a project, as they were last heard of; starts nothing."""
        links = await self._hub.list_links(root, own_servers, world)
        return [prompt for link in links for prompt in _list_prompts(link)]

    async def prompts(
        self, root: str = "", own_servers: str = "", world: str = "", *, server: str = ""
    ) -> list[Prompt]:
        async with self._use_place(Place(root, own_servers, world)) as place:
            return [prompt for link in await self._connect_servers(place, server) for prompt in _list_prompts(link)]

    async def prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        root: str = "",
        own_servers: str = "",
        world: str = "",
    ) -> "RenderedContent":
        from treadle.adapters.mcp.calls import RenderedContent, render_content

        encode_value((name, arguments))  # a server's connection ends at what cannot be written

        async def get(client: "Client") -> list["RenderedContent"]:
            result = await client.get_prompt(name, dict(arguments or {}))
            parts = [(message.role, render_content([message.content])) for message in result.messages]
            return [each if role == "user" else RenderedContent(f"(you would say) {each.text}") for role, each in parts]

        async with self._use_place(Place(root, own_servers, world)) as place:
            messages = await self._use(server, place, get)
        pictures = tuple(picture for each in messages for picture in each.pictures)
        return RenderedContent("\n\n".join(each.text for each in messages), pictures)

    async def resources(
        self, root: str = "", own_servers: str = "", world: str = "", *, server: str = ""
    ) -> list[Resource]:
        resources: list[Resource] = []
        async with self._use_place(Place(root, own_servers, world)) as place:
            for link in await self._connect_servers(place, server):
                if link.known is not None and link.known.resources:
                    name = link.declared.name
                    resources += await self._use(name, place, partial(_list_resources, name))
        return resources

    async def resource(self, mention: str, root: str = "", own_servers: str = "", world: str = "") -> "RenderedContent":
        from treadle.adapters.mcp.calls import RenderedContent, render_resources

        server, colon, uri = mention.removeprefix("@").partition(":")
        if not colon or not uri:
            raise InvalidInput(f"{make_inert_line(mention, 100)} names no resource; write @server:uri")
        encode_value(uri)

        async def read(client: "Client") -> "RenderedContent":
            pictures: list[tuple[str, bytes]] = []
            text = render_resources((await client.read_resource(uri)).contents, pictures)
            return RenderedContent(text, tuple(pictures))

        async with self._use_place(Place(root, own_servers, world)) as place:
            return await self._use(server, place, read)

    async def names(self, options: ChatOptions, *, callable_only: bool = False) -> frozenset[str]:
        """The servers of a chat; or only those of which it may call a tool, as far as their tools are known."""
        links = await self._hub.list_links(options.root, options.own_servers, options.world)
        return frozenset(link.declared.name for link in links if not callable_only or _can_call_server(link, options))

    async def with_resources(self, root: str = "", own_servers: str = "", world: str = "") -> frozenset[str]:
        """The servers of a project that had resources when they were last heard of; starts nothing."""
        links = await self._hub.list_links(root, own_servers, world)
        return frozenset(link.declared.name for link in links if link.known is not None and link.known.resources)

    async def expand_message(
        self, text: str, root: str = "", own_servers: str = "", world: str = "", *, names: Collection[str] | None = None
    ) -> tuple[str, Pictures]:
        """Replace `/server:prompt words` by the prompt, append the resource of each `@server:uri` that the person
        wrote. References to unknown servers stay; `names` limits the known ones."""
        original = text
        declared = {link.declared.name for link in await self._hub.list_links(root, own_servers, world)}
        names = declared if names is None else declared.intersection(names)
        pictures: Pictures = ()
        if (command_match := _COMMAND.fullmatch(text)) is not None and command_match[1] in names:
            prompts = await self.prompts(root, own_servers, world, server=command_match[1])
            prompt = next((each for each in prompts if each.name == command_match[2]), None)
            if prompt is None:
                name = make_inert_line(command_match[2], 80)
                raise NotFound(f"the MCP server {command_match[1]} has no prompt {name!r}")
            arguments = prompt.parse_arguments(command_match[3] or "")
            filled_prompt = await self.prompt(prompt.server, prompt.name, arguments, root, own_servers, world)
            text, pictures = filled_prompt.text, filled_prompt.pictures
        parts = [text]
        mentions = (f"@{match[1]}:{match[2]}" for match in _MENTION.finditer(original) if match[1] in names)
        for mention in dict.fromkeys(mentions):
            resource = await self.resource(mention, root, own_servers, world)
            parts.append(f"{mention}, as attached:\n{resource.text}")
            pictures += resource.pictures
        if sum(map(len, parts)) - (len(text) if text is original else 0) > MOST_ATTACHED:
            raise InvalidInput(f"what is attached has more than {MOST_ATTACHED:,} characters")
        return "\n\n".join(parts), pictures

    @asynccontextmanager
    async def _use_place(self, place: Place) -> AsyncIterator[Place]:
        """Use the servers of a place. Those of a world end afterwards, unless a chat is worked on there."""
        user = ChatId(make_id("use"))
        await self._hub.join(place, user)
        try:
            yield place
        finally:
            self._hub.release_chat(user)

    async def _connect_servers(self, place: Place, server: str = "") -> list[Link]:
        links = [link for link in await self._hub.list_links(*place) if server in ("", link.declared.name)]

        async def settle(link: Link) -> None:
            connection, _ = await self._hub.connect_server(link.declared.name, *place)
            await connection.wait_until_started()

        await asyncio.gather(*map(settle, links))
        return [link for link in links if link.connection is not None and link.connection.state == "ready"]

    async def _use(self, server: str, place: Place, work: "Callable[[Client], Awaitable[T]]") -> T:
        if all(link.declared.name != server for link in await self._hub.list_links(*place)):
            raise NotFound(f"there is no MCP server {make_inert_line(server, 60)!r} for this project")
        from treadle.adapters.mcp.connection import ServerLost

        connection, _ = await self._hub.connect_server(server, *place)
        timeout_s = (await self._hub.get_link(server, *place)).declared.server.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                outcome: T = await connection.use(work)
        except ServerLost as error:
            raise ToolError(str(error)) from error
        except TimeoutError as error:
            raise ToolError(f"the MCP server {server} did not answer within {timeout_s:g} seconds") from error
        return outcome


def _can_call_server(link: Link, options: ChatOptions) -> bool:
    """True if the chat may call a tool of the server; without known tools, any tool of that server."""
    server, listed_tools = link.declared, link.known.tools if link.known is not None else ()
    tools = [tool.name for tool in listed_tools if server.server.accepts_tool(tool.name)]
    names = [make_tool_name(server.name, name) for name in tools] or [f"{server.name}{SERVER_MARK}*"]
    return any(can_call(name, options) for name in names)


def _list_prompts(link: Link) -> list[Prompt]:
    prompts, server = link.known.commands if link.known is not None else (), link.declared.name
    return [Prompt(server, each.name, each.description, each.arguments, each.required) for each in prompts]


async def _list_resources(server: str, client: "Client") -> list[Resource]:
    resources: list[Resource] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_resources(cursor=cursor)
        for each in page.resources:
            resources.append(Resource(server, str(each.uri), each.name, each.description or "", each.mime_type or ""))
        if not (cursor := page.next_cursor):
            break
    for template in (await client.list_resource_templates()).resource_templates:
        about = template.name, template.description or "", template.mime_type or ""
        resources.append(Resource(server, template.uri_template, *about, template=True))
    return resources
