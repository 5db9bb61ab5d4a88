"""An editor for tests: the client of the protocol's own SDK, which starts the real `treadle acp` as its agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.forked import forking
from tests.lazily import Lazy, lazily
from tests.scenario.command_line import CommandLine

acp, a = lazily("acp"), Lazy("acp.schema")
WAIT_S = 60


class Editor:
    """Notes every update; answers what it is asked by `choose`; has `buffers` that are not saved."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[tuple[a.ToolCallUpdate, list[a.PermissionOption]]] = []
        self.choose: Callable[[list[a.PermissionOption]], str | None] = lambda _options: None
        self.buffers: dict[str, str] = {}
        self.read: list[str] = []
        self._news = asyncio.Event()
        self.agent: acp.Agent
        self.process: asyncio.subprocess.Process

    # -- what the agent asks of it ------------------------------------------------------------------------------------

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._news.set()

    async def request_permission(
        self, session_id: str, tool_call: a.ToolCallUpdate, options: list[a.PermissionOption], **_: Any
    ) -> a.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self._news.set()
        option_id = self.choose(options)
        if option_id == "wait":
            await asyncio.Event().wait()
        if option_id is None:
            return a.RequestPermissionResponse(outcome=a.DeniedOutcome(outcome="cancelled"))
        return a.RequestPermissionResponse(outcome=a.AllowedOutcome(outcome="selected", option_id=option_id))

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> a.ReadTextFileResponse:
        self.read.append(path)
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return a.ReadTextFileResponse(content=self.buffers[path])

    def on_connect(self, conn: acp.Agent) -> None:
        self.agent = conn

    # -- what a test sees ---------------------------------------------------------------------------------------------

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    def calls(self) -> dict[str, dict[str, Any]]:
        """By call: the last that was said of each of its fields."""
        fields_by_call: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                fields = {key: value for key, value in dict(update).items() if value is not None}
                fields_by_call.setdefault(update.tool_call_id, {}).update(fields)
        return fields_by_call

    async def until(self, fact: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not fact():
                self._news.clear()
                await self._news.wait()

    async def say(self, session: str, *blocks: str | Any) -> a.PromptResponse:
        content_blocks = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        async with asyncio.timeout(WAIT_S):
            return await self.agent.prompt(session_id=session, prompt=content_blocks)


@asynccontextmanager
async def editing(
    cli: CommandLine, *arguments: str, env: dict[str, str] | None = None, meta: dict[str, Any] | None = None
) -> AsyncIterator[Editor]:
    """An editor whose agent is a process of its own, and is initialized."""
    editor = Editor()
    agent = acp.spawn_agent_process(
        editor,  # type: ignore[arg-type]
        *cli.words("acp", *arguments),
        env=cli.environment | (env or {}),
        cwd=cli.project,
        transport_kwargs={"stderr": None},
        use_unstable_protocol=True,
    )
    async with AsyncExitStack() as stack:
        with forking():
            _, process = await stack.enter_async_context(agent)
        editor.process = process
        capabilities = a.ClientCapabilities(fs=a.FileSystemCapabilities(read_text_file=True), field_meta=meta)
        async with asyncio.timeout(WAIT_S):
            await editor.agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        yield editor


async def begin(editor: Editor, cli: CommandLine, servers: Sequence[Any] = ()) -> str:
    new_session = await editor.agent.new_session(cwd=str(cli.project), mcp_servers=list(servers))
    return new_session.session_id
