"""A server of the newest revision, written with the SDK, on streamable HTTP in this process."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel


class Name(BaseModel):
    name: str


async def ask_name() -> Elicit[Name]:
    return Elicit("Whom shall I greet?", Name)


class Modern:
    def __init__(self, notes: Path, port: int = 0) -> None:
        self._port = port
        self._notes = notes
        self._server = MCPServer("modern", version="2")
        self._tools()
        self._serving: asyncio.Task[None] | None = None
        self._uvicorn: uvicorn.Server | None = None
        self.port = 0
        self.url = ""

    @property
    def greeted(self) -> list[str]:
        return self._notes.read_text().split()

    def _tools(self) -> None:
        server = self._server

        @server.tool()
        async def greet(greeting: str, name: Annotated[Name, Resolve(ask_name)]) -> str:
            """Greet a person."""
            with self._notes.open("a") as file:
                file.write(f"{name.name}\n")
            return f"{greeting}, {name.name}!"

        @server.tool()
        async def count(to: int, ctx: Context) -> str:
            """Count."""
            for n in range(to):
                await ctx.report_progress(n + 1, to, "counting")
            return f"counted to {to}"

        @server.tool()
        async def learn(ctx: Context) -> str:
            """Learn something new."""

            async def tell_sentence() -> str:
                """Return the learned sentence."""
                return "now I know"

            server.add_tool(tell_sentence, name="learned")
            await ctx.notify_tools_changed()
            return "yes"

        @server.tool()
        async def fail() -> str:
            """Fail."""
            raise ValueError("no")

        @server.prompt()
        def review(what: str) -> str:
            """Review something."""
            return f"Please review {what}."

        @server.resource("notes://today")
        def today() -> str:
            """The notes of today."""
            return "Buy milk."

        @server.resource("notes://{day}")
        def day(day: str) -> str:
            """The notes of a day."""
            return day

    async def __aenter__(self) -> Self:
        app = self._server.streamable_http_app()
        config = uvicorn.Config(app, port=self._port, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        self._uvicorn = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._uvicorn.serve())
        async with asyncio.timeout(60):
            while not self._uvicorn.started:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.02)
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._uvicorn is not None
        assert self._serving is not None
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        await asyncio.gather(self._serving, return_exceptions=True)
