"""A program that speaks to `treadle copilot` by hand: JSON-RPC as the Copilot SDKs frame it, with none of our code."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.forked import forking
from tests.scenario.command_line import CommandLine

PATIENCE_S = 60
Event = dict[str, Any]


class ErrorAnswer(Exception):
    """The runtime answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error
        self.code = error["code"]
        self.data = error.get("data")


class Program:
    """Answers what it is asked with `answers`, by method; an answer may be a function of the parameters, which may be
    asynchronous, or an error (`ErrorAnswer`)."""

    def __init__(self, reader: asyncio.StreamReader, writer: Any, process: asyncio.subprocess.Process | None) -> None:
        self._reader = reader
        self._writer = writer
        self.process = process
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.lifecycle: list[str] = []
        self.refusals: list[dict[str, Any]] = []
        """Errors that answer what was no request."""
        self._news = asyncio.Condition()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self.number = 0  # Of the last request.
        self._replies: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read_on())

    @classmethod
    async def start(cls, cli: CommandLine, model: str) -> "Program":
        pipe = asyncio.subprocess.PIPE
        command = cli.words("copilot", "--headless", "--log-level", "info", "--model", model)
        with forking():
            process = await asyncio.create_subprocess_exec(
                *command, "--stdio", cwd=cli.project, env=cli.environment, stdin=pipe, stdout=pipe
            )
        assert process.stdout is not None
        program = cls(process.stdout, process.stdin, process)
        await program.call("connect", {})
        return program

    @classmethod
    async def reach(cls, port: int) -> "Program":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, None)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        self.number += 1
        future = self._open[self.number] = asyncio.get_running_loop().create_future()
        self.write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return await asyncio.wait_for(future, PATIENCE_S)

    def write(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def write_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def wait_for_event(self, condition: Callable[[Event], bool] | str, since: int = 0) -> Event:
        """The first event that is wanted, now or later."""
        test = (lambda event: event["type"] == condition) if isinstance(condition, str) else condition

        def find_event() -> Event | None:
            return next((event for event in self.events[since:] if test(event)), None)

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: find_event() is not None), PATIENCE_S)
        event = find_event()
        assert event is not None
        return event

    async def was_asked(self, method: str, **parameters: Any) -> None:
        """Wait until it was asked this, with these parameters among others."""

        def has_request() -> bool:
            return any(name == method and parameters.items() <= params.items() for name, params in self.asked)

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(has_request), PATIENCE_S)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events if not event.get("ephemeral")]

    async def _read_on(self) -> None:
        while header := await self._reader.readline():
            length = int(header.split(b":")[1])
            await self._reader.readline()
            await self._take(json.loads(await self._reader.readexactly(length)))

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "session.event":
            async with self._news:
                self.events.append(message["params"]["event"])
                self._news.notify_all()
        elif method == "session.lifecycle":
            self.lifecycle.append(message["params"]["type"])
        elif method is not None:
            async with self._news:
                self.asked.append((method, message["params"]))
                self._news.notify_all()
            answer = self.answers.get(method)
            result = answer(message["params"]) if callable(answer) else answer
            self._replies.add(asyncio.create_task(self._reply(message["id"], result)))
        elif message["id"] is None:
            async with self._news:
                self.refusals.append(message["error"])
                self._news.notify_all()
        elif "error" in message:
            self._open.pop(message["id"]).set_exception(ErrorAnswer(message["error"]))
        else:
            self._open.pop(message["id"]).set_result(message["result"])

    async def _reply(self, number: int, result: Any) -> None:
        if asyncio.iscoroutine(result):
            result = await result
        reply = {"error": result.error} if isinstance(result, ErrorAnswer) else {"result": result}
        self.write({"jsonrpc": "2.0", "id": number, **reply})

    def hang_up(self) -> None:
        """Abort the connection in the middle of its work. Only over TCP."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """As a program that ends: the pipe is closed, and the runtime ends by itself."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        if self.process is not None:
            await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await asyncio.wait_for(self._reading, PATIENCE_S)


Start = Callable[[str], Awaitable[Program]]


def turns(*calls: tuple[str, dict[str, Any]], last: str = "Done.") -> str:
    """A script: one turn a call, then a last word."""
    call_turns = [
        f'[[turn]]\n[[turn.call]]\nname = "{name}"\nraw = {json.dumps(json.dumps(args))}\n' for name, args in calls
    ]
    return "\n".join([*call_turns, f'[[turn]]\ntext = "{last}"\n'])


async def talk(program: Program, session: str = "s1", **config: Any) -> dict[str, Any]:
    """Make a session, send a message, wait until it is idle; the answer."""
    await program.call("session.create", {"sessionId": session, "requestPermission": True, **config})
    reply: dict[str, Any] = await program.call("session.sendAndWait", {"sessionId": session, "prompt": "Go."})
    return reply
