"""Hints from process to process that chats have news, by NOTIFY on a connection of its own: after the commits, and many
of them at once. Inside the transactions of appends they would take turns (three to four times slower, measured).

A lost hint costs only time: waiting processes also poll.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from treadle.adapters.stores.postgres.connections import Connections, PgConnection
from treadle.adapters.stores.watch import Heads
from treadle.base.logs import log_debug
from treadle.base.types import ChatId

PAUSE_S = 0.02
"""So long one message gathers what comes after the one before."""
_LOOK_S = 5.0
_LONGEST = 7_000
"""A payload may have 8,000 bytes."""


class Notices:
    def __init__(self, connections: Connections, on_heads: Callable[[Heads], None]) -> None:
        self._connections = connections
        self._heard = on_heads
        self._pending: Heads = {}
        self._listening = False
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tell(self, chat: ChatId, head: int) -> None:
        """Let others know, soon."""
        self._pending[chat] = head
        self._start()

    def listen(self) -> None:
        """Hear what others tell, from now on."""
        if not self._listening:
            self._listening = True
            self._start()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start(self) -> None:
        self._stirred.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="treadle notices")

    async def _run(self) -> None:
        while True:
            connection: PgConnection | None = None
            try:
                connection = await self._connections.open()
                await self._serve(connection)
            except Exception as error:  # any error: without hints everything works, only later
                log_debug("hints to other processes stopped: %s", error)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(1)

    async def _serve(self, connection: PgConnection) -> None:
        """Until the connection is lost."""
        await connection.execute("SET synchronous_commit = off")
        channel = "treadle_" + str(await connection.fetchval("SELECT current_schema()"))
        is_listening = False
        while not connection.is_closed():
            if self._listening and not is_listening:
                is_listening = True
                await connection.add_listener(channel, self._received)
            pending, self._pending = self._pending, {}
            for payload in _payloads(pending):
                await connection.execute("SELECT pg_notify($1, $2)", channel, payload)
            if pending:
                await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stirred.wait()
            self._stirred.clear()

    def _received(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        heads: Heads = {}
        for line in payload.splitlines():
            chat, _, head = line.rpartition(" ")
            if head.isdecimal():
                heads[ChatId(chat)] = int(head)
        self._heard(heads)


def _payloads(heads: Heads) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for chat, head in heads.items():
        line = f"{chat} {head}"
        if size + len(line.encode()) > _LONGEST and lines:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line.encode()) + 1
    if lines:
        yield "\n".join(lines)
