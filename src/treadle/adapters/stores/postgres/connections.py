"""Connections to the server: opened when they are needed, lent for one piece of work, discarded when they have become
useless. Work that failed because of a lost connection or a restarting server is repeated for a while. The schema comes
from the numbered migrations in `migrations/`. No error message contains a password.

It is unknown if the lost attempt took effect. The work gets a flag that it is a repetition (`again`) and finds out by
itself: every operation of this store can tell its own effect from that of others."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores import number_migrations, redact_address
from treadle.adapters.stores.watch import Heads
from treadle.base.file_system import reach_faultpoint
from treadle.base.logs import log_debug
from treadle.base.types import ChatId
from treadle.errors import InvalidInput, NewerSchema, StoreBusy, StoreError, TreadleError

CONNECTIONS = 10
PATIENCE_S = 20.0
FIRST_PATIENCE_S = 3.0
CONNECT_S = 10.0
STATEMENT_S = 60.0  # A server that has not answered by then is taken for gone: a network that is cut says nothing.
_LONGEST_PAUSE_S = 1.0
PAUSE_S = 0.02  # So long one message gathers what comes after the one before.
_LOOK_S = 5.0
_LONGEST = 7_000  # A payload may have 8,000 bytes.

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
        self._url, self._prepare, self._patience_s = url, prepare, patience_s
        self._slots, self._preparing, self._prepared = asyncio.Semaphore(most), asyncio.Lock(), False
        self._idle: list[PgConnection] = []
        self._lent: set[PgConnection] = set()

    async def run(self, work: Work[T], *, timeout_s: float = STATEMENT_S) -> T:
        """Do a piece of work, again if it must be. StoreError when the server cannot be reached for too long."""
        again, pause, now = False, 0.0, asyncio.get_running_loop().time
        # An address that never worked is more likely wrong than away.
        until = now() + (self._patience_s if self._prepared else min(self._patience_s, FIRST_PATIENCE_S))
        while True:
            try:
                return await self._try(work, again, timeout_s)
            except Exception as error:
                if not is_passing(error) or now() + pause > until:
                    raise translate_error(error, self.where) from error
            again = True
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause or 0.02)

    async def fetchval(self, query: str, *values: object) -> Any:
        return await self.run(lambda connection, _: connection.fetchval(query, *values))

    async def execute(self, query: str, *values: object) -> None:
        await self.run(lambda connection, _: connection.execute(query, *values))

    async def _try(self, work: Work[T], again: bool, timeout_s: float) -> T:
        async with self._slots:
            while self._idle and self._idle[-1].is_closed():
                self._idle.pop()
            connection = self._idle.pop() if self._idle else await self.open()
            self._lent.add(connection)
            try:
                async with asyncio.timeout(timeout_s):
                    result = await work(connection, again)
            except BaseException as error:
                # After a refused statement the connection is as before; after any other error its state is unknown.
                if not isinstance(error, asyncpg.PostgresError | TreadleError) or is_passing(error):
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


class Notices:
    """Hints from process to process that chats have news, by NOTIFY on a connection of its own: after the commits, and
    many of them at once. Inside the transactions of appends they would take turns (three to four times slower,
    measured). A lost hint costs only time: waiting processes also poll."""

    def __init__(self, connections: Connections, on_heads: Callable[[Heads], None]) -> None:
        self._connections, self._heard = connections, on_heads
        self._pending: Heads = {}
        self._listening, self._stirred = False, asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tell(self, chat: ChatId, head: int) -> None:
        self._pending[chat] = head
        self._start()

    def listen(self) -> None:
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
                await connection.add_listener(channel, self._receive_notification)
            pending, self._pending = self._pending, {}
            for payload in _iterate_payloads(pending):
                await connection.execute("SELECT pg_notify($1, $2)", channel, payload)
            if pending:
                await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stirred.wait()
            self._stirred.clear()

    def _receive_notification(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        heads: Heads = {}
        for line in payload.splitlines():
            chat, _, head = line.rpartition(" ")
            if head.isdecimal():
                heads[ChatId(chat)] = int(head)
        self._heard(heads)


def _iterate_payloads(heads: Heads) -> Iterator[str]:
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


# -- errors: whether trying again may help, and their explanation -----------------------------------------------------

ALREADY_ANSWERED = "TR001"

_PASSING_CLASSES = ("08", "40", "57P")
"""SQLSTATEs, by their beginnings: the connection, a transaction that another stood in the way of, the server's end."""
_PASSING = {"25006", "53300", "55P03"}
"""Not (or no longer) the server that takes writes; too many connections; a lock that was not to be had."""

_SENTENCES = {
    "28": "the database {where} does not let Treadle in ({error}); check user and password",
    "3D": "there is no database {where} ({error}); create it, or name another",
    "42501": "Treadle may not do this in the database {where} ({error}); give its user the right to",
    "53100": "there is no space left for the database {where}; nothing was changed, free some space and try again",
    "53200": "the database {where} is out of memory; nothing was changed, try again",
    "57014": "the database {where} gave a statement up ({error}); nothing was changed, try again",
}


def get_sqlstate(error: BaseException) -> str:
    """The SQLSTATE, if PostgreSQL said anything."""
    return getattr(error, "sqlstate", None) or ""


def is_passing(error: BaseException) -> bool:
    """True if the same may work on another connection, or a moment later."""
    if isinstance(error, TreadleError | ssl.SSLError):
        return False
    if code := get_sqlstate(error):
        return code in _PASSING or code.startswith(_PASSING_CLASSES)
    # The driver's own errors about a lost connection have no SQLSTATE, nor do those about a protocol that got out of
    # step with the server's last messages. A ValueError is a wrong address.
    broken = OSError | EOFError | asyncpg.InterfaceError | asyncpg.InternalClientError
    return isinstance(error, broken) and not isinstance(error, ValueError)


def translate_error(error: BaseException, address: str) -> BaseException:
    """The error to raise in its place; one that is not the database's or the network's stays what it is."""
    if isinstance(error, TreadleError) or get_sqlstate(error) == ALREADY_ANSWERED:
        return error
    failure: BaseException
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if isinstance(error, asyncpg.DataError | UnicodeEncodeError) or get_sqlstate(error).startswith("22"):
        # The database rejected the values themselves: a NUL in a text, a number that is too large.
        failure = InvalidInput(f"the database cannot keep this value: {error}; nothing was changed")
    elif is_passing(error):
        failure = StoreBusy(
            f"the database {address} cannot be reached ({text}); acknowledged changes are safe, try again later"
        )
    elif isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError | ValueError):
        code = get_sqlstate(error)
        sentence = next((text for begin, text in _SENTENCES.items() if code.startswith(begin) and code), None)
        sentence = sentence or "the database {where} refused: {error}"
        failure = StoreError(sentence.format(where=address, error=text))
    else:
        return error
    failure.__cause__ = error
    return failure


# -- migrations: each once, even if many processes on many machines start at the same moment --------------------------
# They queue at an advisory lock, and the later ones find the new number.

MIGRATIONS = Path(__file__).with_name("migrations")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('treadle ' || current_schema(), 0))"
# A real look at the catalogue: `to_regclass` remembers, while one waits for the lock, that there was no such table.
_EXISTS = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'treadle_meta')"
# A database that was dumped and loaded elsewhere has changes of numbers that this server's transactions are yet to get.
_RENUMBER = """
UPDATE treadle_meta SET change_base = newest + 1 FROM (
  SELECT coalesce(max(changed), 0) AS newest
  FROM (SELECT changed FROM chats UNION ALL SELECT changed FROM deleted_chats) AS changes
) AS numbers
WHERE newest > change_base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""


async def prepare_schema(connection: PgConnection, address: str, migrations: Path = MIGRATIONS) -> None:
    """Make the tables, or bring them up to date. NewerSchema when a newer Treadle made them."""
    steps = number_migrations(migrations)
    if await _read_version(connection, address, steps) < len(steps):
        async with connection.transaction():
            await connection.execute(_LOCK)
            version = await _read_version(connection, address, steps)
            for number in range(version + 1, len(steps) + 1):
                try:
                    await connection.execute(steps[number].read_text(encoding="utf-8"))
                except asyncpg.DuplicateTableError as error:
                    text = f"the database {address} is in use, but not Treadle's ({error}); choose another"
                    raise StoreError(text) from error
                reach_faultpoint("store.migrating")
            if version < len(steps):
                await connection.execute("UPDATE treadle_meta SET version = $1", len(steps))
            reach_faultpoint("store.before_commit")
        reach_faultpoint("store.migrated")
    await connection.execute(_RENUMBER)


async def _read_version(connection: PgConnection, address: str, steps: dict[int, Path]) -> int:
    if not await connection.fetchval(_EXISTS):
        return 0
    if (version := int(await connection.fetchval("SELECT version FROM treadle_meta"))) > len(steps):
        raise NewerSchema(
            f"the database {address} was made by a newer Treadle (its schema is {version}, this one knows "
            f"{len(steps)}); upgrade Treadle, or use another database"
        )
    return version
