"""Connections to the server: opened when they are needed, lent for one piece of work, discarded when they have become
useless. Work that failed because of a lost connection or a restarting server is repeated for a while.

It is unknown if the lost attempt took effect. The work gets a flag that it is a repetition (`again`) and finds out by
itself: every operation of this store can tell its own effect from that of others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores.address import redact_address
from treadle.adapters.stores.postgres.failures import explained, passing
from treadle.errors import TreadleError

CONNECTIONS = 10
PATIENCE_S = 20.0
FIRST_PATIENCE_S = 3.0
CONNECT_S = 10.0
STATEMENT_S = 60.0
"""A server that has not answered by then is taken for gone: a network that is cut says nothing."""
_LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


class PgConnection(Protocol):
    """The part of a connection's interface that the store uses."""

    async def fetch(self, query: str, *values: object) -> Sequence[Any]: ...
    async def fetchrow(self, query: str, *values: object) -> Any: ...
    async def fetchval(self, query: str, *values: object) -> Any: ...
    async def execute(self, query: str, *values: object) -> str: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> Any: ...
    def cursor(self, query: str, *values: object, prefetch: int | None = None) -> Any: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...  # noqa: ASYNC109  # the driver's word


Work = Callable[[PgConnection, bool], Awaitable[T]]
"""Gets a connection, and whether it was tried before without an answer."""


class Connections:
    def __init__(
        self,
        url: str,
        prepare: Callable[[PgConnection], Awaitable[None]],
        *,
        most: int = CONNECTIONS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.where = redact_address(url)
        self._url = url
        self._prepare = prepare
        self._patience_s = patience_s
        self._slots = asyncio.Semaphore(most)
        self._preparing = asyncio.Lock()
        self._prepared = False
        self._idle: list[PgConnection] = []
        self._lent: set[PgConnection] = set()

    async def run(self, work: Work[T], *, timeout_s: float = STATEMENT_S) -> T:
        """Do a piece of work, again if it must be. StoreError when the server cannot be reached for too long."""
        again = False
        pause = 0.0
        now = asyncio.get_running_loop().time
        # An address that never worked is more likely wrong than away.
        until = now() + (self._patience_s if self._prepared else min(self._patience_s, FIRST_PATIENCE_S))
        while True:
            try:
                return await self._try(work, again, timeout_s)
            except Exception as error:
                if not passing(error) or now() + pause > until:
                    raise explained(error, self.where) from error
            again = True
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause or 0.02)

    async def _try(self, work: Work[T], again: bool, timeout_s: float) -> T:
        async with self._slots:
            connection = self._take() or await self.open()
            self._lent.add(connection)
            try:
                async with asyncio.timeout(timeout_s):
                    result = await work(connection, again)
            except BaseException as error:
                # After a refused statement the connection is as before; after any other error its state is unknown.
                if not isinstance(error, asyncpg.PostgresError | TreadleError) or passing(error):
                    connection.terminate()
                raise
            finally:
                self._lent.discard(connection)
                if not connection.is_closed():
                    self._idle.append(connection)
            return result

    async def open(self) -> PgConnection:
        """Open a separate connection; the caller closes it."""
        connection: PgConnection = await asyncpg.connect(
            self._url, timeout=CONNECT_S, server_settings={"application_name": "treadle"}
        )
        try:
            async with self._preparing:
                if not self._prepared:
                    await self._prepare(connection)
                    self._prepared = True
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=5)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()
        for connection in self._lent:
            connection.terminate()

    def _take(self) -> PgConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None
