"""The JSON-RPC 2.0 connection to one program, with the header that language servers use: answers its requests, and
sends requests and notifications to it. Requests run concurrently; notifications keep their order. Knows nothing of
sessions. The transports are standard input and output of this process, which carry only the protocol (messages for
people go to standard error), or a local socket."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from treadle.base.inert import make_inert_line, print_line, print_note
from treadle.base.stream_server import close_server, start_stream_server
from treadle.errors import InvalidInput, TreadleError

MAX_BYTES = 64 * 1024 * 1024  # the largest message in bytes. A longer one is refused.
_MAX_HEADER = 64
_MAX_DIGITS = 18


class BadMessage(Exception):
    """The received bytes are no message."""

    def __init__(self, text: str, *, readable: bool = False) -> None:
        super().__init__(text)
        self.readable = readable  # True if the messages behind it can be read


async def read_message(reader: asyncio.StreamReader, most: int = MAX_BYTES) -> Any:
    """The next message, of at most this many bytes; None at the end of the stream."""
    length = await _read_header(reader)
    if length is None:
        return None
    if not 0 <= length <= most:
        raise BadMessage(f"a message has no Content-Length from 0 to {most}")
    try:
        message = msgspec.json.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"a message is no JSON: {error}", readable=True) from error
    except RecursionError as error:
        raise BadMessage("a message is nested too deep", readable=True) from error
    if message is None:
        raise BadMessage("a message is null", readable=True)
    return message


async def _read_header(reader: asyncio.StreamReader) -> int | None:
    """The length of the next message, -1 if none was given; None at the end of the stream."""
    length = -1
    for _ in range(_MAX_HEADER):
        try:
            line = (await reader.readuntil(b"\n")).strip()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise BadMessage("a header has no end") from error
        if not line:
            return length
        name, _, value = line.partition(b":")
        value = value.strip()
        if name.strip().lower() == b"content-length":
            length = int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else -1
    raise BadMessage("a header has too many lines")


def encode_message(message: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REQUEST_CANCELLED = -32800
MAX_BACKLOG = 64 * 1024 * 1024  # bytes that a program may leave unread; it has all in the log, and may come again
CLOSING_S = 5.0  # how long a program may take to read the last of what it is told
MAX_UNADMITTED = 64 * 1024  # bytes in one message of a program that has not yet shown what it must show
MAX_UNDER_WAY = 1_000  # requests of one program that are answered at the same time

Handler = Callable[["Connection", str, dict[str, Any]], Awaitable[Any]]


class RpcError(Exception):
    """An answer that says no; also what a program answered with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class PeerDisconnected(Exception):
    """The program that was asked has left."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler) -> None:
        self._reader, self._writer, self._handle = reader, writer, handle
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._under_way: dict[str | float, asyncio.Task[None]] = {}
        self._waiting: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.closed = False
        self.admitted = False  # True once the program has authenticated; until then only short messages are accepted

    async def serve(self) -> None:
        """Until the program leaves, or sends what cannot be understood."""
        writing = asyncio.create_task(self._write_on())
        self._reading = asyncio.create_task(self._read_on())
        try:
            await asyncio.wait([self._reading])
            if not self._reading.cancelled() and (failure := self._reading.exception()) is not None:
                _print_failure(failure)
        finally:
            self.close()
            await self._end(writing)

    async def _read_on(self) -> None:
        while not self.closed:
            try:
                message = await read_message(self._reader, MAX_BYTES if self.admitted else MAX_UNADMITTED)
                if message is None:
                    return
                self._take(message)
            except BadMessage as error:
                self._refuse(PARSE_ERROR, str(error))
                if not error.readable:
                    print_note(f"treadle: a program was disconnected: {make_inert_line(str(error))}")
                    return

    async def _end(self, writing: asyncio.Task[None]) -> None:
        for future in self._asked.values():
            if not future.done():
                future.set_exception(PeerDisconnected())
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await asyncio.wait_for(writing, CLOSING_S)
        except TimeoutError:
            self._writer.transport.abort()  # closing it would wait until it has read everything
        except Exception as error:
            _print_failure(error)
        self._writer.close()

    def close(self) -> None:
        """Close the connection. Notifications that are already queued are still sent."""
        self.closed = True
        self._news.set()
        if self._reading is not None:
            self._reading.cancel()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Its answer; RpcError if that is an error, Gone if it leaves."""
        if self.closed:
            raise PeerDisconnected
        self._number = number = self._number + 1
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await future
        finally:
            self._asked.pop(number, None)

    def _send(self, message: dict[str, Any]) -> None:
        if self.closed:
            return
        try:
            data = encode_message(message)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            reason = f"internal error: the message cannot be written as JSON: {type(error).__name__}"
            print_note(f"treadle: {make_inert_line(f'{reason}: {error}')}")
            if "id" not in message:
                return  # the event of this notification is in the log
            if "method" in message:
                raise RpcError(INTERNAL_ERROR, reason) from error
            data = encode_message({"jsonrpc": "2.0", "id": message["id"], **_make_error(INTERNAL_ERROR, reason)})
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MAX_BACKLOG:
            print_note("treadle: a program was disconnected: it does not read its messages")
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
            except OSError:
                self.close()
            self._size -= len(waiting)
            if self.closed and not self._waiting:
                return

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            return self._refuse(INVALID_REQUEST, "a message is no object; batches are not supported")
        number = message.get("id")
        if number is not None and (isinstance(number, bool) or not isinstance(number, str | int | float)):
            return self._refuse(INVALID_REQUEST, "the id of a message is neither text nor a number")
        if "method" not in message:
            return self._take_answer(number, message)
        method, params = message["method"], message.get("params")
        if not isinstance(method, str):
            return self._refuse(INVALID_REQUEST, "the method of a request is no text", number)
        params = params[0] if isinstance(params, list) and len(params) == 1 else params or {}
        if number is None:
            cancelled = params.get("id") if method == "$/cancelRequest" and isinstance(params, dict) else None
            if isinstance(cancelled, str | int | float) and cancelled in self._under_way:
                self._under_way[cancelled].cancel()
        elif not isinstance(params, dict):
            self._refuse(INVALID_PARAMS, "the parameters of a request are no object", number)
        elif number in self._under_way:
            self._refuse(INVALID_REQUEST, "a request with this id is still being answered", number)
        elif len(self._under_way) >= MAX_UNDER_WAY:
            self._refuse(INTERNAL_ERROR, f"{MAX_UNDER_WAY} requests are being answered; wait for some of them", number)
        else:
            task = asyncio.create_task(self._answer_request(number, method, params), name=f"answer {method[:80]}")
            self._under_way[number] = task
            task.add_done_callback(lambda task: self._finish(number, task))

    def _take_answer(self, number: Any, message: dict[str, Any]) -> None:
        """Ignored if no caller waits for it."""
        future = self._asked.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return
        error = message.get("error")
        if error is None and "result" in message:
            future.set_result(message["result"])
            return
        failure = error if isinstance(error, dict) else {"message": error or "the answer has neither result nor error"}
        code, text = failure.get("code"), str(failure.get("message") or "")
        future.set_exception(RpcError(code if isinstance(code, int) else INTERNAL_ERROR, text, failure.get("data")))

    def _refuse(self, code: int, text: str, number: str | float | None = None) -> None:
        self._send({"jsonrpc": "2.0", "id": number, **_make_error(code, text)})

    async def _answer_request(self, number: str | float, method: str, params: dict[str, Any]) -> None:
        try:
            answer = {"result": await self._handle(self, method, params)}
        except RpcError as error:
            answer = _make_error(error.code, str(error), error.data)
        except TreadleError as error:
            answer = _make_error(INVALID_PARAMS, str(error), {"code": getattr(error, "reason", error.code)})
        except msgspec.ValidationError as error:
            answer = _make_error(INVALID_PARAMS, str(error))
        except Exception as error:
            answer = _make_error(INTERNAL_ERROR, f"internal error, {type(error).__name__}: {error}")
            _print_failure(error, f"{method}: ")
        self._send({"jsonrpc": "2.0", "id": number, **answer})

    def _finish(self, number: str | float, task: asyncio.Task[None]) -> None:
        """Answer a cancelled request here: its task may have been cancelled before its first step."""
        del self._under_way[number]
        if task.cancelled():
            self._refuse(REQUEST_CANCELLED, "the request was cancelled", number)


def _make_error(code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **({} if data is None else {"data": data})}}


def _print_failure(error: BaseException, place: str = "") -> None:
    print_note(f"treadle: {make_inert_line(f'{place}{type(error).__name__}: {error}')}")


class Served(Protocol):
    """A server that answers connected programs. `end_requested` is set when a program asks the server to end."""

    end_requested: asyncio.Event

    @property
    def handle(self) -> Handler: ...
    async def converse(self, connection: Connection) -> None: ...
    async def close(self) -> None: ...


async def serve_stdio(served: Served) -> None:
    """Until the program closes its end, or asks for the end."""
    connection = Connection(*await open_stdio(), served.handle)
    await _wait_until_ended(served, asyncio.create_task(served.converse(connection)))


async def open_stdio(longest_line: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output of this process as streams. Closing them leaves `sys.stdin` and `sys.stdout` open."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(longest_line)
    theirs, ours = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ours)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), theirs)
    except ValueError as error:
        text = "a program is needed at both ends, not files; let an editor or an SDK start it"
        raise InvalidInput(text) from error
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def serve_tcp(served: Served, host: str, port: int) -> None:
    """Until it is told to stop, or a program asks for it."""

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await served.converse(Connection(reader, writer, served.handle))

    server = await start_stream_server(welcome, host, port)
    try:
        print_line(f"Treadle listening on port {server.sockets[0].getsockname()[1]}")
        await _wait_until_ended(served, asyncio.create_task(asyncio.Event().wait()))
    finally:
        await close_server(server)


async def _wait_until_ended(served: Served, serving: asyncio.Task[Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, served.end_requested.set)
    ending = asyncio.create_task(served.end_requested.wait())
    await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        await asyncio.sleep(0.05)  # time to send the answer to the request to end
    await served.close()
    for task in (serving, ending):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
