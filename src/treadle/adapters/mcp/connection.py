"""One server for one project, from its start to its end: a task that holds the session, starts it anew with growing
pauses when it is lost, and lists its tools again when they change. Calls come in from other tasks."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import mcp_types as types
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.auth import OAuthFlowError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace
from pydantic import TypeAdapter

from treadle._version import __version__
from treadle.adapters.mcp.listing import ListedPrompt, ListedTool, Listing, Sampling
from treadle.adapters.mcp.transport import SESSION_UNKNOWN, SIGN_IN_REQUIRED, Errors
from treadle.base.inert import make_inert_line
from treadle.errors import ConfigError, SandboxError, ToolError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
ATTEMPTS = 5  # The number of consecutive failures after which reconnecting stops until the server is needed again
STEADY_S = 20.0  # A server that ends sooner after its start has failed
RELIST_S = 0.2  # The pause between two listings of what a server offers, however often it says that this has changed
CURRENT_S = 2.0  # how long a result waits for a listing under way: the next call may look for a new tool
_CHANGED = (types.ToolListChangedNotification, types.PromptListChangedNotification)
_PAGES = 100
_MOST_TOOLS = 2_000
_MOST_PROMPTS = 500

_NO_CALL = types.ErrorData(code=types.INVALID_REQUEST, message="No call is under way that this belongs to.")

State = Literal["starting", "ready", "failed", "closed"]
Result = types.CallToolResult | types.InputRequiredResult
_RESULT: TypeAdapter[Result] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)

Open = Callable[[Errors, asyncio.Event], AbstractAsyncContextManager[TransportStreams]]
"""Opens the way to the server; the event is set when it is lost."""

logging.getLogger("mcp").setLevel(logging.CRITICAL)  # callers report the errors of the SDK
logging.getLogger("client").setLevel(logging.CRITICAL)


class SessionUnknown(Exception):
    """The server does not know the session of a request, and has not carried the request out."""


class ServerLost(Exception):
    """The server went away during a call: it is unknown whether the call took effect."""


Wish = types.ElicitRequestParams | types.CreateMessageRequestParams  # a server's question to a person or the model
Reply = types.ElicitResult | types.CreateMessageResult | types.ErrorData


class Asker(Protocol):
    async def ask(self, wish: Wish, *, of_person: bool) -> Reply: ...


class McpConnection:
    def __init__(
        self,
        name: str,
        root: str,
        opens: Open,
        start_s: float,
        *,
        listed: Callable[[Listing], None] = lambda _listing: None,
        sampling: Sampling = "refuse",
    ) -> None:
        self.name, self.sampling = name, sampling
        self.state: State = "starting"
        self.why = ""  # Why it failed, in one line
        self.listing: Listing | None = None
        self.restarts = 0
        self._root, self._opens, self._start_s, self._listed = root, opens, start_s, listed
        self._client: Client | None = None
        self._errors = Errors()
        self._gone = asyncio.Event()
        self._outdated = asyncio.Event()  # Set when the server has said that its last listing no longer holds
        self._current = asyncio.Event()  # Set while the listing holds, as far as the server has told
        self._current.set()
        self._changed = asyncio.Event()  # That the state is another than it was: replaced each time
        self._wanted = asyncio.Event()
        self._askers: dict[object, Asker] = {}
        self._task = asyncio.create_task(self._keep_session())

    # -- for others ---------------------------------------------------------------------------------------------------
    async def ensure_client(self) -> Client:
        """The session, started anew if need be. ToolError if it cannot be had."""
        if self.state == "failed":
            self._become("starting", "")
        self._wanted.set()
        try:
            async with asyncio.timeout(self._start_s):
                while (client := self._client) is None or self._gone.is_set():
                    if self.state in ("failed", "closed"):
                        raise ToolError(f"The MCP server {self.name} is not there: {self.why}")
                    await self._changed.wait()
        except TimeoutError:
            text = f"The MCP server {self.name} does not start in time; its tools can be tried again later."
            raise ToolError(text) from None
        return client

    async def wait_until_started(self) -> None:
        while self.state == "starting" and not self.why:
            await self._changed.wait()

    async def renew_listing(self) -> None:
        self._expire_listing()
        await self._await_listing()

    async def _await_listing(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CURRENT_S):
                await self._current.wait()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        emit: Callable[[str], None],
        asker: Asker,
        resume: tuple[types.InputResponses | None, str | None] = (None, None),
        meta: dict[str, Any] | None = None,
    ) -> Result:
        """One call of a tool; `meta` is sent beside the arguments. ServerLost: it went away. ToolError: it refused."""
        params = types.CallToolRequestParams(
            name=tool,
            arguments=arguments,
            input_responses=resume[0],
            request_state=resume[1],
            _meta=cast("types.RequestParamsMeta | None", meta),
        )
        request = types.CallToolRequest(params=params)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            emit(f"{share}: {message}\n" if message else f"{share}\n")

        key = object()
        self._askers[key] = asker
        try:
            result: Result = await self.use(
                lambda client: client.session.send_request(request, _RESULT, progress_callback=report)
            )
            await self._await_listing()
            return result
        finally:
            del self._askers[key]

    async def use(self, work: Callable[[Client], Awaitable[Any]]) -> Any:
        """Use the session. A restarted server gets a new one, and the request once more: it was not carried out."""
        client = await self.ensure_client()
        with suppress(SessionUnknown):
            return await self._send_request(client, work(client))
        client = await self.ensure_client()
        try:
            return await self._send_request(client, work(client))
        except SessionUnknown as error:
            raise ToolError(f"{self.name}: the server forgets its sessions at once") from error

    async def _send_request(self, client: Client, request: Awaitable[Any]) -> Any:
        try:
            return await request
        except MCPError as error:
            replaced = self._client is not client
            if error.code in (CONNECTION_CLOSED, SESSION_UNKNOWN) and not replaced:
                self._gone.set()
            if error.code == SESSION_UNKNOWN:
                raise SessionUnknown from error
            if error.code == CONNECTION_CLOSED or replaced:
                raise ServerLost(f"the MCP server {self.name} went away") from error
            raise ToolError(f"{self.name}: {error}") from error
        except ValueError as error:  # the reply is not a valid result, but the call took effect
            reason = make_inert_line(str(error), 200)
            raise ServerLost(f"the MCP server {self.name} sent an invalid result: {reason}") from error

    async def close(self) -> None:
        self._become("closed", "it was closed")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # -- its life -----------------------------------------------------------------------------------------------------
    async def _keep_session(self) -> None:
        failures = 0
        while self.state != "closed":
            self._gone = asyncio.Event()
            self._errors.clear()
            steady_at = math.inf
            try:
                async with self._open_session() as client:
                    steady_at = asyncio.get_running_loop().time() + STEADY_S
                    self._client = client
                    self._become("ready", "")
                    await self._attend(client)
                reason = self._format_reason("it ended")
                failures = failures + 1 if asyncio.get_running_loop().time() < steady_at else 0
            except Exception as error:
                leaf = error
                while isinstance(leaf, ExceptionGroup):
                    leaf = leaf.exceptions[0]
                reason = self._format_reason(_describe_error(leaf))
                failures = failures + 1 if asyncio.get_running_loop().time() < steady_at else 1
                failures = ATTEMPTS if _is_final(leaf) else failures
            finally:
                self._client = None
            self.restarts += 1
            if failures >= ATTEMPTS:
                self._wanted.clear()
                self._become("failed", reason)
                await self._wanted.wait()
                failures = 0
            else:
                self._become("starting", reason)
                pause_s = min(FIRST_PAUSE_S * 2 ** max(0, failures - 1), LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s if failures else 0.1)

    @asynccontextmanager
    async def _open_session(self) -> AsyncIterator[Client]:
        client = Client(
            self._opens(self._errors, self._gone),
            client_info=types.Implementation(name="treadle", version=__version__),
            elicitation_callback=self._elicit,
            list_roots_callback=self._list_roots,
            sampling_callback=self._sample if self.sampling != "refuse" else None,
            message_handler=self._handle_message,
            cache=None,
        )
        async with asyncio.timeout(self._start_s) as limit, client:
            await self._read_listing(client)
            limit.reschedule(None)
            yield client

    async def _attend(self, client: Client) -> None:
        tasks = [asyncio.create_task(each(client)) for each in (self._listen, self._list_again)]
        try:
            await self._gone.wait()
        finally:
            self._current.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, client: Client) -> None:
        """Listen until the server refuses it. Changes between two subscriptions are lost, so all is listed anew."""
        pause_s = FIRST_PAUSE_S
        while client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with client.listen(tools_list_changed=True, prompts_list_changed=True) as events:
                    async for _event in events:
                        self._expire_listing()
            except MCPError:
                return
            except (SubscriptionLost, TimeoutError):
                pass
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            self._expire_listing()

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, _CHANGED):
            self._expire_listing()

    def _expire_listing(self) -> None:
        self._outdated.set()
        self._current.clear()

    async def _list_again(self, client: Client) -> None:
        """One listing at a time, however many notices come."""
        while True:
            await self._outdated.wait()
            self._outdated.clear()
            with suppress(SessionUnknown, ServerLost, ToolError):
                await self._send_request(client, self._read_listing(client))
            if not self._outdated.is_set():
                self._current.set()
            await asyncio.sleep(RELIST_S)

    async def _read_listing(self, client: Client) -> None:
        has = client.server_capabilities
        tools = await _list_pages(client.list_tools, "tools", _MOST_TOOLS, []) if has.tools is not None else []
        server_info = client.server_info
        listing = Listing(
            tuple(map(_build_listed_tool, tools)),
            f"{server_info.name} {server_info.version}" if server_info is not None else "",
            client.instructions or "",
            has.resources is not None,
            self.listing.commands if self.listing is not None else (),
        )
        self._know(listing)  # tools first: a call may look for a new one at once
        if has.prompts is not None:
            self._know(replace(listing, commands=tuple(await _list_prompts(client))))

    def _know(self, listing: Listing) -> None:
        if listing != self.listing:
            self.listing = listing
            self._listed(listing)

    def _become(self, state: State, reason: str) -> None:
        self.state, self.why = state, reason
        self._changed.set()
        self._changed = asyncio.Event()

    def _format_reason(self, reason: str) -> str:
        last_line = self._errors.text.rpartition("\n")[2]
        note = f"; its message: {last_line}" if last_line and last_line not in reason else ""
        return make_inert_line(reason + note, 300)

    # -- requests from the server -------------------------------------------------------------------------------------
    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        return types.ListRootsResult.model_validate({"roots": self.roots})

    @property
    def roots(self) -> list[dict[str, str]]:
        return [{"uri": Path(self._root).as_uri(), "name": Path(self._root).name}] if self._root else []

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        reply = await self._ask(params, of_person=True)
        return reply if isinstance(reply, types.ElicitResult) else types.ElicitResult(action="cancel")

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        reply = await self._ask(params, of_person=self.sampling == "ask")
        return reply if not isinstance(reply, types.ElicitResult) else _NO_CALL

    async def _ask(self, wish: Wish, *, of_person: bool) -> Reply:
        """The protocol does not say which call a question belongs to: to the one that has been under way longest."""
        for asker in self._askers.values():
            return await asker.ask(wish, of_person=of_person)
        return _NO_CALL


async def _list_pages(list_page: Callable[..., Awaitable[Any]], field: str, most: int, items: list[Any]) -> list[Any]:
    """Append the items of all pages; those before a failure stay."""
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await list_page(cursor=cursor)
        items += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or len(items) >= most:
            break
    return items[:most]


def _build_listed_tool(tool: types.Tool) -> ListedTool:
    hints = tool.annotations or types.ToolAnnotations()
    text = tool.description or tool.title or hints.title or ""
    read_only = bool(hints.read_only_hint)
    idempotent, destructive = bool(hints.idempotent_hint) or read_only, hints.destructive_hint is not False
    return ListedTool(tool.name, text, dict(tool.input_schema), read_only, idempotent, destructive and not read_only)


async def _list_prompts(client: Client) -> list[ListedPrompt]:
    """List the server's prompts. A server that cannot list them has none; its tools stay usable."""
    prompts: list[types.Prompt] = []
    with suppress(MCPError):
        await _list_pages(client.list_prompts, "prompts", _MOST_PROMPTS, prompts)
    return [
        ListedPrompt(
            each.name,
            each.description or "",
            tuple(argument.name for argument in each.arguments or ()),
            tuple(argument.name for argument in each.arguments or () if argument.required),
        )
        for each in prompts[:_MOST_PROMPTS]
    ]


FINAL = (FileNotFoundError, PermissionError, ConfigError, SandboxError, OAuthFlowError)  # a retry cannot fix them


def _is_final(error: Exception) -> bool:
    return isinstance(error, FINAL) or (isinstance(error, MCPError) and error.code == SIGN_IN_REQUIRED)


def _describe_error(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not start in time"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename}"
    if isinstance(error, ConfigError | SandboxError) or (isinstance(error, MCPError) and _is_final(error)):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
