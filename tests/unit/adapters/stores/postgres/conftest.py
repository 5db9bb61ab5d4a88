"""A store in a database of the test's own, a look at that database behind its back, and a line that can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg  # type: ignore[import-untyped]
import pytest

from treadle.adapters.stores.postgres import PostgresStore
from treadle.base.stream_server import close_server, start_stream_server


@pytest.fixture
async def store(postgres: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres)
    yield store
    await store.close()


@pytest.fixture
async def connection(postgres: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test itself."""
    connection = await asyncpg.connect(postgres)
    yield connection
    await connection.close()


class Line:
    """A TCP proxy on loopback before the database. It breaks once when a statement with the words `break_at` is
    executed: the server carries it out, the client never gets the answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._search_path = parse_qs(urlsplit(url).query).get("search_path", ["public"])[0]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.break_at = b""
        self.cuts = 0
        self.deaf = False
        """True while the line lets no connection through."""

    async def start(self) -> str:
        self._server = await start_stream_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._url)
        user = parts.netloc.rpartition("@")[0] or "postgres"
        return f"postgresql://{user}@127.0.0.1:{port}{parts.path}?sslmode=disable&search_path={self._search_path}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.deaf:
            writer.close()
            return
        to_reader, to_writer = await self._connect()
        self._open |= {writer, to_writer}
        broken = asyncio.Event()
        tasks = [
            asyncio.create_task(self._forth(reader, to_writer, broken)),
            asyncio.create_task(self._back(to_reader, writer, broken)),
        ]
        self._tasks |= set(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, to_writer):
            one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._url)
        if folder := parse_qs(parts.query).get("host"):
            return await asyncio.open_unix_connection(str(Path(folder[0]) / ".s.PGSQL.5432"))
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broken: asyncio.Event) -> None:
        statements: dict[bytes, bytes] = {}
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._executes(data, statements):
                    self.cuts += 1
                    self.break_at = b""
                    broken.set()
                writer.write(data)
                await writer.drain()

    def _executes(self, data: bytes, statements: dict[bytes, bytes]) -> bool:
        """A prepared statement gets its name in a Parse message and is executed by a Bind message with that name."""
        if data[:1] == b"P":
            name, words = data[5:].split(b"\0", 2)[:2]
            statements[name] = words
        if data[:1] != b"B" or not self.break_at:
            return False
        return self.break_at in statements.get(data[5:].split(b"\0", 2)[1], b"")

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broken: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if broken.is_set():
                    return  # the answer has come, so it was carried out; the client only sees the line break
                writer.write(data)
                await writer.drain()

    async def stop(self) -> None:
        if self._server is not None:
            await close_server(self._server)
        for writer in self._open:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def line(postgres: str) -> AsyncIterator[Line]:
    line = Line(postgres)
    yield line
    await line.stop()
