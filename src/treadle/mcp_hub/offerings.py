"""What servers offer beside tools, for front ends: prompts, which become slash commands, and resources, which can be
attached to a message as `@server:uri`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.errors import InvalidInput, NotFound
from treadle.inert import inert_line
from treadle.mcp_hub.hub import Hub, Link

if TYPE_CHECKING:
    from mcp import Client

    from treadle.mcp.content import Seen

T = TypeVar("T")

_PAGES = 20


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


class Offerings:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def prompts(self, root: str = "") -> list[Prompt]:
        """The prompts of all servers of a project that can be reached."""
        found: list[Prompt] = []
        for link in await self._reached(root):
            if link.known is not None and link.known.prompts:
                found += await self._use(link.declared.name, root, _prompts)
        return found

    async def prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None, root: str = ""
    ) -> "Seen":
        """A prompt, filled in, as what a person would say."""
        from treadle.mcp.content import Seen, seen

        async def get(client: "Client", _server: str) -> list["Seen"]:
            result = await client.get_prompt(name, dict(arguments or {}))
            return [
                seen([message.content])
                if message.role == "user"
                else Seen(f"(you would say) {seen([message.content]).text}")
                for message in result.messages
            ]

        said = await self._use(server, root, get)
        return Seen("\n\n".join(each.text for each in said), tuple(p for each in said for p in each.pictures))

    async def resources(self, root: str = "") -> list[Resource]:
        """The resources of all servers of a project, and the templates of more."""
        found: list[Resource] = []
        for link in await self._reached(root):
            if link.known is not None and link.known.resources:
                found += await self._use(link.declared.name, root, _resources)
        return found

    async def resource(self, mention: str, root: str = "") -> "Seen":
        """What lies at `@server:uri`."""
        from treadle.mcp.content import Seen, contents

        server, colon, uri = mention.removeprefix("@").partition(":")
        if not colon or not uri:
            raise InvalidInput(f"{inert_line(mention, 100)} names no resource; write @server:uri")

        async def read(client: "Client", _server: str) -> list["Seen"]:
            pictures: list[tuple[str, bytes]] = []
            text = contents((await client.read_resource(uri)).contents, pictures)
            return [Seen(text, tuple(pictures))]

        return (await self._use(server, root, read))[0]

    async def _reached(self, root: str) -> list[Link]:
        links = await self._hub.servers(root)
        for link in links:
            connection, _ = await self._hub.connected(link.declared.name, root)
            await connection.settled()
        return [link for link in links if link.connection is not None and link.connection.state == "ready"]

    async def _use(self, server: str, root: str, work: "Callable[[Client, str], Awaitable[list[T]]]") -> list[T]:
        if all(link.declared.name != server for link in await self._hub.servers(root)):
            raise NotFound(f"there is no MCP server {inert_line(server, 60)!r} for this project")
        connection, _ = await self._hub.connected(server, root)
        found: list[T] = await connection.use(lambda client: work(client, server))
        return found


async def _prompts(client: "Client", server: str) -> list[Prompt]:
    found: list[Prompt] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_prompts(cursor=cursor)
        for each in page.prompts:
            arguments = each.arguments or []
            names = tuple(argument.name for argument in arguments)
            required = tuple(argument.name for argument in arguments if argument.required)
            found.append(Prompt(server, each.name, each.description or "", names, required))
        if not (cursor := page.next_cursor):
            break
    return found


async def _resources(client: "Client", server: str) -> list[Resource]:
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
