"""Servers of asyncio streams that close every connection.

`asyncio.start_server` leaves a connection open if the task that serves it is cancelled: always before Python 3.12, and
in every version if the task is cancelled before its first step, since then no `finally` of it runs. `Server.close`
loses a connection that was accepted in the same step of the loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def start_stream_server(
    serve: Serve, host: str | None = None, port: int | None = None, **settings: Any
) -> asyncio.Server:
    """As `asyncio.start_server`, with the same settings. `serve` runs in a task for each connection, which is closed
    when the task ends."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def finish(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if task.cancelled():
                writer.transport.abort()  # `close` would wait until the other side has read everything
            else:
                writer.close()

        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(finish)

    return await asyncio.start_server(accept, host, port, **settings)


async def close_server(server: asyncio.Server) -> None:
    """Close a server of asyncio that may be accepting a connection at this moment. `server.close()` alone would lose
    that connection: its client would wait until the garbage collector closes the socket."""
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(2):  # accepted connections get their transports, then their protocols are told of them
        await asyncio.sleep(0)
    server.close()
