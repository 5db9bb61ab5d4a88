"""Where programs come from: the two ends of this process's own pipe, or a socket of this machine. Standard output is
the protocol's alone; what is for people goes to standard error."""

import asyncio
import contextlib
import os
import signal

from treadle.copilot_sdk.server import Runtime
from treadle.errors import InvalidInput
from treadle.jsonrpc.connection import Connection


async def serve_stdio(runtime: Runtime) -> None:
    """Until the program closes its end, or asks the runtime to end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    theirs, ours = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    try:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ours)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), theirs)
    except ValueError as error:
        raise InvalidInput("--stdio needs a program at both ends, not files; let an SDK start it") from error
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    connection = Connection(reader, writer, runtime.handle)
    await _until_ended(runtime, asyncio.create_task(runtime.converse(connection)))


async def serve_tcp(runtime: Runtime, host: str, port: int) -> None:
    """Until it is told to stop, or a program asks for it."""

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await runtime.converse(Connection(reader, writer, runtime.handle))

    server = await asyncio.start_server(welcome, host, port)
    async with server:
        bound = server.sockets[0].getsockname()[1]
        print(f"Treadle listening on port {bound}", flush=True)
        await _until_ended(runtime, asyncio.create_task(server.serve_forever()))


async def _until_ended(runtime: Runtime, serving: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, runtime.ended.set)
    ended = asyncio.create_task(runtime.ended.wait())
    await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        await asyncio.sleep(0.05)  # the answer to whoever asked for the end
    await runtime.close()
    for task in (serving, ended):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
