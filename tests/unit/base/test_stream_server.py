"""A connection is closed however its task ends (L-07)."""

import asyncio
import gc
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from treadle.base.stream_server import close_server, start_stream_server


@pytest.mark.parametrize("delay_s", [0.0, 0.05], ids=["before its first step", "later"])
async def test_a_connection_is_closed_when_its_task_is_cancelled(delay_s: float) -> None:
    loop = asyncio.get_running_loop()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
        coroutine = serve_for_ever()

        def cancel() -> None:
            [task] = [task for task in asyncio.all_tasks() if task.get_coro() is coroutine]
            task.cancel()

        if delay_s:
            loop.call_later(delay_s, cancel)
        else:
            loop.call_soon(cancel)  # this comes before the first step, which is scheduled after it
        return coroutine

    async def serve_for_ever() -> None:
        await asyncio.Event().wait()

    server = await start_stream_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    server.close()


async def test_a_client_that_reads_nothing_keeps_no_connection_open() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b"x" * 50_000_000)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await writer.drain()

    server = await start_stream_server(serve, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        async with asyncio.timeout(60):
            while not writers:  # noqa: ASYNC110 - the server's own task
                await asyncio.sleep(0.01)
            await writers[0].wait_closed()
    server.close()


async def test_a_connection_that_is_accepted_as_the_server_closes_is_not_lost() -> None:
    """Served or refused, the client hears of it."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")

    answers = []
    gc.disable()  # the garbage collector would close a lost connection
    try:
        for steps in range(8):
            server = await start_stream_server(serve, "127.0.0.1", 0)
            with socket.create_connection(server.sockets[0].getsockname()) as client:
                client.setblocking(False)
                for _ in range(steps):
                    await asyncio.sleep(0)
                await close_server(server)
                async with asyncio.timeout(30):
                    try:
                        answers.append(await asyncio.get_running_loop().sock_recv(client, 1))
                    except ConnectionError:
                        answers.append(b"refused")
    finally:
        gc.enable()
    assert set(answers) == {b"x", b"refused"}
