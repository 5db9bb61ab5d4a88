"""The transports for JSON-RPC clients: standard input and output of this process, or a socket of this machine. Standard
output carries only the protocol; messages for people go to standard error."""

import asyncio
import contextlib
import os
import signal
from typing import Protocol

from treadle.base.inert import print_line
from treadle.base.jsonrpc.connection import Connection, Handler
from treadle.errors import InvalidInput


class Served(Protocol):
    """A server that answers connected programs. `end_requested` is set when a program asks the server to end."""

    end_requested: asyncio.Event

    @property
    def handle(self) -> Handler: ...
    async def converse(self, connection: Connection) -> None: ...
    async def close(self) -> None: ...


async def serve_stdio(served: Served) -> None:
    """Until the program closes its end, or asks for the end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    theirs, ours = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ours)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), theirs)
    except ValueError as error:
        raise InvalidInput("--stdio needs a program at both ends, not files; let an SDK start it") from error
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    connection = Connection(reader, writer, served.handle)
    await _until_ended(served, asyncio.create_task(served.converse(connection)))


async def serve_tcp(served: Served, host: str, port: int) -> None:
    """Until it is told to stop, or a program asks for it."""

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await served.converse(Connection(reader, writer, served.handle))

    server = await asyncio.start_server(welcome, host, port)
    async with server:
        bound_port = server.sockets[0].getsockname()[1]
        print_line(f"Treadle listening on port {bound_port}")
        await _until_ended(served, asyncio.create_task(server.serve_forever()))


async def _until_ended(served: Served, serving: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, served.end_requested.set)
    ending = asyncio.create_task(served.end_requested.wait())
    await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        await asyncio.sleep(0.05)  # time to send the answer to the request to end
    await served.close()
    for task in (serving, ending):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
