"""All servers of an agent: for each project those that are declared for it, started when a chat of it is first worked
on. The tools that models are told of are fixed then (L-21). Those of a server that starts late are appended; those that
a server adds later are named behind the next result, and found by `find_tools`."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from treadle.adapters.mcp.listing import ListedTool, Listing
from treadle.adapters.mcp.tool import ResultHandling, ServerTool
from treadle.adapters.tools.registry import SERVER_MARK, can_call
from treadle.base.home_file import HomeFile
from treadle.base.types import CallKey, ChatId
from treadle.errors import ConfigError, ToolError
from treadle.library.mcp_hub.search import CALL, FIND, CallTool, FindTools, make_spec, needs_deferral
from treadle.library.mcp_hub.settings import Declared
from treadle.ports.toolset import Invocation, Tool
from treadle.protocol.content import ToolRequest
from treadle.protocol.options import ChatOptions

if TYPE_CHECKING:
    from treadle.adapters.mcp.calls import Calls
    from treadle.adapters.mcp.connection import McpConnection

WAIT_S = 10.0  # how long the first model call waits for servers of which nothing is known; others start beside it
_ANNOUNCED = 20  # Names of new tools behind one result
_MOST_LISTINGS = 64


class Place(NamedTuple):
    """Where chats share servers. A world has programs of its own (W-11), which end with its last chat."""

    root: str = ""
    own_servers: str = ""  # The name under which a program brought servers of its own, if one did
    world: str = ""


DeclaredFor = Callable[[str, str], "tuple[Sequence[Declared], Sequence[str]]"]  # (root, own) → servers, warnings


class ListingsFile(msgspec.Struct, frozen=True):
    servers: dict[str, Listing] = {}  # the last known one of each server, by the mark of its declaration


def remember(book: ListingsFile, mark: str, listing: Listing) -> ListingsFile:
    others = [(each, entry) for each, entry in book.servers.items() if each != mark]
    return ListingsFile(dict([*others[-(_MOST_LISTINGS - 1) :], (mark, listing)]))


class Link:
    def __init__(self, declared: Declared, listing: Listing | None) -> None:
        self.declared = declared
        self.known = listing  # The server's listing, or the one of its last run. None if unknown.
        self.connecting: asyncio.Task[McpConnection] | None = None

    @property
    def connection(self) -> "McpConnection | None":
        task = self.connecting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()


class Project(msgspec.Struct):
    links: dict[str, Link]
    warnings: tuple[str, ...] = ()
    offered_tools: tuple[Tool, ...] | None = None  # Fixed at the first model call
    known_tool_names: frozenset[str] = frozenset()  # models know them: offered, or in the text of `find_tools`
    awaited: frozenset[str] = frozenset()  # The servers of which no tool was known at the first model call
    chats: set[ChatId] = msgspec.field(default_factory=set)  # Those that are worked on


Connect = Callable[[Declared, Place, Callable[[Listing], None]], "McpConnection"]
"""(declared, place, what is told of new lists) → the connection, which starts by itself."""


class McpHub:
    """Implements `treadle.ports.toolset.ToolSource`."""

    def __init__(
        self, declared_for: DeclaredFor, connect: Connect, keeping: ResultHandling, listings: HomeFile[ListingsFile]
    ) -> None:
        self._declared_for, self._connect, self._keeping = declared_for, connect, keeping
        self._listings = listings
        self._projects: dict[Place, Project] = {}
        self._calls: Calls | None = None
        self._told: set[tuple[ChatId, str]] = set()
        self._announced: dict[ChatId, set[str]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    # -- the tools of a chat ------------------------------------------------------------------------------------------
    async def prepare_tools(self, chat: ChatId, options: ChatOptions) -> list[str]:
        """Start the servers, wait for those whose tools are unknown. Returns the messages that are new to this chat."""
        if options.tools is not None and not any("__" in name or name == FIND for name in options.tools):
            return []
        project = await self.start(options)
        project.chats.add(chat)
        if project.offered_tools is None:
            await self._await_unknown(project)
            tools = [tool for link in project.links.values() for tool in self._make_tools(link, _make_place(options))]
            deferred = tools if needs_deferral(tools) else []
            helpers: tuple[Tool, ...] = ()
            if project.links:
                helpers = (FindTools(self.find_available_tools, self._list_starting, deferred), CallTool())
            project.offered_tools = (*(tools if not deferred else ()), *helpers)
            project.known_tool_names = frozenset(tool.spec.name for tool in tools)
            project.awaited = frozenset(name for name, link in project.links.items() if link.known is None)
        messages = [*project.warnings, *(describe_failure(link) for link in project.links.values())]
        news = [text for text in messages if text and (chat, text) not in self._told]
        self._told.update((chat, text) for text in news)
        return news

    async def start(self, options: ChatOptions) -> Project:
        project = await self._refresh_project(_make_place(options))
        for link in project.links.values():
            self._start_link(link, _make_place(options))
        return project

    def list_tools(self, options: ChatOptions) -> tuple[Tool, ...]:
        project = self._projects.get(_make_place(options))
        if project is None or project.offered_tools is None:
            return ()
        here = {name for name in project.awaited if (link := project.links.get(name)) and link.known is not None}
        if here:  # servers that have started since; too many tools are announced and found instead
            project.awaited -= here
            place = _make_place(options)
            tools = [tool for name in sorted(here) for tool in self._make_tools(project.links[name], place)]
            offered_tools = project.offered_tools
            if not needs_deferral([*(tool for tool in offered_tools if isinstance(tool, ServerTool)), *tools]):
                project.offered_tools = (*offered_tools, *tools)
                project.known_tool_names |= {tool.spec.name for tool in tools}
        return project.offered_tools

    def find(self, name: str, options: ChatOptions) -> Tool | None:
        listed = next((tool for tool in self.list_tools(options) if tool.spec.name == name), None)
        return self.find_available_tools(options).get(name) or listed

    async def await_tool(self, request: ToolRequest, options: ChatOptions) -> str:
        """Wait for the server of an unknown tool while it starts; if it runs, ask it for its tools again."""
        name, _ = _decode_tool_request(request)
        server, mark, _ = name.partition(SERVER_MARK)
        place = _make_place(options)
        project = self._projects.get(place)
        is_declared = mark and project is not None and server in project.links and can_call(name, options)
        if not is_declared or name in self.find_available_tools(options):
            return ""
        try:
            connection, _ = await self.connect_server(server, *place)
            await connection.ensure_client()
        except ToolError as error:
            return str(error)
        if name not in self.find_available_tools(options):
            await connection.renew_listing()
        return ""

    def resolve_call(self, request: ToolRequest, options: ChatOptions) -> ToolRequest:
        name, arguments = _decode_tool_request(request)
        if request.name != CALL or name not in self.find_available_tools(options):
            return request
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return replace(request, name=name, arguments=text)

    def find_available_tools(self, options: ChatOptions) -> dict[str, ServerTool]:
        project = self._projects.get(_make_place(options))
        if project is None:
            return {}
        tools = [tool for link in project.links.values() for tool in self._make_tools(link, _make_place(options))]
        return {tool.spec.name: tool for tool in tools if can_call(tool.spec.name, options)}

    def _list_starting(self, options: ChatOptions) -> list[str]:
        project = self._projects.get(_make_place(options))
        links = project.links.values() if project is not None else ()
        return [link.declared.name for link in links if link.known is None and not describe_failure(link)]

    def _announce(self, invocation: Invocation) -> str:
        """The names of tools that the chat's model has not been told of, each once."""
        project = self._projects.get(_make_place(invocation.options))
        if project is None:
            return ""
        announced = self._announced.setdefault(invocation.chat, set())
        announced.add(invocation.name)
        known_names = project.known_tool_names | announced
        names = [each for each in self.find_available_tools(invocation.options) if each not in known_names]
        announced.update(names)
        more = f" and {len(names) - _ANNOUNCED} more" if len(names) > _ANNOUNCED else ""
        text = f"\n[New MCP tools: {', '.join(names[:_ANNOUNCED])}{more}. {FIND} shows how to call them.]"
        return text if names else ""

    def _make_tools(self, link: Link, place: Place) -> list[ServerTool]:
        name, server = link.declared.name, link.declared.server
        server_tools: list[ServerTool] = []
        for tool in link.known.tools if link.known is not None else ():
            if server.accepts_tool(tool.name):
                spec = make_spec(name, tool, server.timeout_s, accept_hints=server.accept_hints)
                connect = partial(self._connect_for_call, tool, name, place)
                server_tools.append(ServerTool(spec, tool, connect, self._keeping, self._announce))
        return server_tools

    # -- servers ------------------------------------------------------------------------------------------------------
    async def connect_server(
        self, name: str, root: str, own_servers: str = "", world: str = ""
    ) -> "tuple[McpConnection, Calls]":
        """The connection to a server, started if need be. ToolError if it cannot be had."""
        place = Place(root, own_servers, world)
        connection = await asyncio.shield(self._start_link(await self.get_link(name, *place), place))
        if self._calls is None:
            from treadle.adapters.mcp.calls import Calls

            self._calls = Calls()
        return connection, self._calls

    async def _connect_for_call(self, tool: ListedTool, name: str, place: Place) -> "tuple[McpConnection, Calls]":
        """The connection for a call. ToolError if the tool has changed: the call was judged by the old one."""
        connection, calls = await self.connect_server(name, *place)
        await connection.ensure_client()
        listing = (await self.get_link(name, *place)).known
        if listing is not None and tool not in listing.tools:
            advice = "Look at the tool again (find_tools), then call it again."
            raise ToolError(f"The MCP server {name} has changed its tool {tool.name!r}, so it was not called. {advice}")
        return connection, calls

    async def get_link(self, name: str, root: str = "", own_servers: str = "", world: str = "") -> Link:
        project = await self._refresh_project(Place(root, own_servers, world))
        if name not in project.links:
            raise ToolError(f"There is no MCP server {name!r} for this project any more.")
        return project.links[name]

    async def join(self, place: Place, user: ChatId) -> None:
        """Register a user of the servers of a place, until `release_chat`."""
        (await self._refresh_project(place)).chats.add(user)

    async def list_links(self, root: str = "", own_servers: str = "", world: str = "") -> list[Link]:
        return list((await self._refresh_project(Place(root, own_servers, world))).links.values())

    async def _refresh_project(self, place: Place) -> Project:
        """Return the project as its files declare it now: servers no longer trusted are ended, new ones are added."""
        declarations, warnings = await asyncio.to_thread(self._declared_for, place.root, place.own_servers)
        shared = await self._find_shared_links(place, declarations)
        project = self._projects.setdefault(place, Project({}))
        project.warnings = tuple(warnings)
        enabled = {declared.name: declared for declared in declarations if not declared.server.disabled}
        if {name: link.declared for name, link in project.links.items()} == enabled:
            return project
        stale_links = [link for name, link in project.links.items() if enabled.get(name) != link.declared]
        existing_links = [*shared.values(), *project.links.values()]
        listings: dict[str, Listing] = {}
        with suppress(ConfigError):
            listings = self._listings.read().servers
        project.links = {
            name: next((link for link in existing_links if link.declared == declared), None)
            or Link(declared, listings.get(declared.mark))
            for name, declared in enabled.items()
        }
        project.offered_tools = None
        for link in stale_links:
            if link not in shared.values():
                await _close(link)
        return project

    async def _find_shared_links(self, place: Place, declarations: Sequence[Declared]) -> dict[str, Link]:
        """Chats with servers of their own share those of their project; those of a world share what is elsewhere."""
        if place.world:
            outside = (await self._refresh_project(place._replace(world=""))).links
            return {name: link for name, link in outside.items() if not link.declared.server.command}
        if place.own_servers and any(each.source for each in declarations):
            return (await self._refresh_project(Place(place.root))).links
        return {}

    def release_chat(self, chat: ChatId) -> None:
        """Release the servers of an idle chat. Those of its world end unless other chats need them."""
        parked = self._calls is not None and self._calls.has_parked_calls(chat)
        for place, project in self._projects.items() if not parked else ():
            if chat in project.chats:
                project.chats.discard(chat)
                if place.world and not project.chats:
                    task = asyncio.create_task(self._end_programs(project))
                    self._ending.add(task)
                    task.add_done_callback(self._ending.discard)

    async def _end_programs(self, project: Project) -> None:
        """End the servers of a project that are programs. The next use starts them again."""
        links = [link for link in project.links.values() if link.declared.server.command]
        project.links |= {link.declared.name: Link(link.declared, link.known) for link in links}
        await asyncio.gather(*map(_close, links))

    async def leave(self, own_servers: str) -> None:
        """End the servers that chats have under this name, except those that others use."""
        places = [place for place in self._projects if place.own_servers == own_servers]
        links = [link for place in places for link in self._projects.pop(place).links.values()]
        used_links = [link for project in self._projects.values() for link in project.links.values()]
        await asyncio.gather(*(_close(link) for link in links if link not in used_links))

    def _start_link(self, link: Link, place: Place) -> "asyncio.Task[McpConnection]":
        if link.connecting is None:
            link.connecting = asyncio.create_task(self._open_connection(link, place))
        return link.connecting

    async def _open_connection(self, link: Link, place: Place) -> "McpConnection":
        """The SDK is large: it is loaded in a thread, beside the first model call."""
        try:
            await asyncio.to_thread(__import__, "treadle.adapters.mcp.calls")
        except ModuleNotFoundError as error:
            text = f"MCP servers need a package that is missing ({error.name}): install treadle[mcp]"
            raise ToolError(text) from error

        def store_listing(listing: Listing) -> None:
            if listing != link.known:
                link.known = listing
                with suppress(ConfigError):  # a home that cannot be written: it is asked for again next time
                    self._listings.change(lambda book: remember(book, link.declared.mark, listing))

        return self._connect(link.declared, place, store_listing)

    async def _await_unknown(self, project: Project) -> None:
        async def wait_until_started(link: Link) -> None:
            if link.connecting is not None:
                await (await asyncio.shield(link.connecting)).wait_until_started()

        links = [link for link in project.links.values() if link.known is None]
        waiting = [asyncio.create_task(wait_until_started(link)) for link in links]
        if waiting:
            await asyncio.wait(waiting, timeout=WAIT_S)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # -- the end ------------------------------------------------------------------------------------------------------
    async def tidy(self, chat: ChatId, open_calls: Collection[CallKey]) -> None:
        if self._calls is not None:
            await self._calls.tidy(chat, open_calls)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.tidy()
        links = {id(link): link for each in self._projects.values() for link in each.links.values()}
        await asyncio.gather(*map(_close, links.values()), *self._ending)
        self._projects.clear()


def _decode_tool_request(request: ToolRequest) -> tuple[str, Any]:
    """The name of the tool that a call is for, seen through `call_tool`, and the arguments for it."""
    if request.name != CALL:
        return request.name, request.arguments
    try:
        arguments = msgspec.json.decode(request.arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return "", {}
    name = arguments.get("name")
    return name if isinstance(name, str) else "", arguments.get("arguments", {})


def _make_place(options: ChatOptions) -> Place:
    return Place(options.root, options.own_servers, options.world)


async def _close(link: Link) -> None:
    if link.connecting is not None:
        if not link.connecting.done():
            link.connecting.cancel()
        connection = (await asyncio.gather(link.connecting, return_exceptions=True))[0]
        if not isinstance(connection, BaseException):
            await connection.close()


def describe_failure(link: Link) -> str:
    connection, task, name = link.connection, link.connecting, link.declared.name
    if task is not None and task.done() and not task.cancelled() and (error := task.exception()) is not None:
        return f"The MCP server {name} cannot be used: {error}"
    if connection is None or connection.state == "ready" or not connection.why:
        return ""
    return f"The MCP server {name} did not start: {connection.why}"
