"""One program that is connected: its requests are answered, and it can be asked and told things. Requests run beside
each other; what is told keeps its order. Knows nothing of sessions."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from treadle.errors import TreadleError
from treadle.inert import inert_line, print_note
from treadle.jsonrpc.framing import BadMessage, frame, read_message

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603
MAX_BACKLOG = 64 * 1024 * 1024
"""Bytes that a program may leave unread. It has everything in the log, and may come again."""

Handler = Callable[["Connection", str, dict[str, Any]], Awaitable[Any]]


class RpcError(Exception):
    """An answer that says no; also what a program answered with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Gone(Exception):
    """The program that was asked has left."""


class Writer(Protocol):
    """As of `asyncio.StreamWriter`."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: Writer, handle: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handle = handle
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._under_way: dict[Any, asyncio.Task[None]] = {}
        self._waiting: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.closed = False
        self.admitted = False
        """Whether it has shown what it must show."""

    async def serve(self) -> None:
        """Until the program leaves, or sends what cannot be understood."""
        writing = asyncio.create_task(self._write_on())
        self._reading = asyncio.create_task(self._read_on())
        try:
            await asyncio.wait([self._reading])
        finally:
            self.close()
            await self._end(writing)

    async def _read_on(self) -> None:
        try:
            while not self.closed and (message := await read_message(self._reader)) is not None:
                self._take(message)
        except BadMessage as error:
            print_note(f"treadle: a program was disconnected: {inert_line(str(error))}")

    async def _end(self, writing: asyncio.Task[None]) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Gone())
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError, Exception):
            await asyncio.wait_for(writing, 5)
        self._writer.close()

    def close(self) -> None:
        """What was told before is still sent."""
        self.closed = True
        self._news.set()
        if self._reading is not None:
            self._reading.cancel()

    # -- to the program -----------------------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Its answer; RpcError if that is an error, Gone if it leaves."""
        if self.closed:
            raise Gone
        self._number += 1
        number = self._number
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await future
        finally:
            self._asked.pop(number, None)

    def _send(self, message: dict[str, Any]) -> None:
        if self.closed:
            return
        data = frame(message)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MAX_BACKLOG:
            print_note("treadle: a program was disconnected: it does not read what it is told")
            self._waiting.clear()
            self.close()
        self._news.set()

    async def _write_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            waiting, self._waiting = b"".join(self._waiting), []
            try:
                if waiting:
                    self._writer.write(waiting)
                    await self._writer.drain()
            except (ConnectionError, OSError):
                self.closed = True
            self._size -= len(waiting)
            if self.closed and not self._waiting:
                return

    # -- from the program ---------------------------------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise BadMessage("a message is no object")
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params[0] if isinstance(params, list) and len(params) == 1 else params
        if isinstance(method, str) and number is None:
            if method == "$/cancelRequest" and isinstance(params, dict) and params.get("id") in self._under_way:
                self._under_way[params["id"]].cancel()
        elif isinstance(method, str):
            given = params if isinstance(params, dict) else {}
            task = asyncio.create_task(self._answer(number, method, given), name=f"answer {method}")
            self._under_way[number] = task
            task.add_done_callback(lambda _task: self._under_way.pop(number, None))
        elif isinstance(number, int) and (future := self._asked.get(number)) is not None and not future.done():
            error = message.get("error")
            if isinstance(error, dict):
                future.set_exception(RpcError(int(error.get("code", 0)), str(error.get("message")), error.get("data")))
            else:
                future.set_result(message.get("result"))

    async def _answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        try:
            answer = {"result": await self._handle(self, method, params)}
        except RpcError as error:
            answer = _error(error.code, str(error), error.data)
        except TreadleError as error:
            answer = _error(INVALID_PARAMS, str(error), {"code": getattr(error, "reason", error.code)})
        except asyncio.CancelledError:
            answer = _error(-32800, "the request was cancelled")
            if self.closed:
                raise
        except Exception as error:
            answer = _error(INTERNAL_ERROR, f"internal error, {type(error).__name__}: {error}")
            print_note(f"treadle: {inert_line(f'{method}: {type(error).__name__}: {error}')}")
        self._send({"jsonrpc": "2.0", "id": number, **answer})


def _error(code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **({} if data is None else {"data": data})}}
