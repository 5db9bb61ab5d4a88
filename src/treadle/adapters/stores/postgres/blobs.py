"""Large payloads by their SHA-256, in parts of a megabyte: neither side ever holds more than one of them. A blob exists
when all its parts do; parts of an unfinished upload are invisible. Knows nothing of records."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

from treadle.adapters.stores.postgres.connections import Connections
from treadle.base.faultpoint import faultpoint
from treadle.errors import Damaged, NotFound

PART = 1 << 20

_FIRST = (
    "SELECT b.upload, b.size, p.data FROM blobs AS b LEFT JOIN blob_parts AS p ON p.upload = b.upload AND p.part = 0 "
    "WHERE b.digest = $1"
)


class BlobRows:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def put(self, data: bytes) -> str:
        if len(data) > PART:
            view = memoryview(data)
            return await self.put_parts(bytes(view[at : at + PART]) for at in range(0, len(data), PART))
        digest = sha256(data).digest()
        query = "SELECT EXISTS (SELECT 1 FROM blobs WHERE digest = $1)"
        if not await self._connections.run(lambda c, _: c.fetchval(query, digest)):
            faultpoint("store.before_commit")
            await self._execute("SELECT treadle_put_small($1, $2)", digest, data)
            faultpoint("store.blob_written")
        return digest.hex()

    async def put_parts(self, parts: Iterable[bytes]) -> str:
        upload = await self._connections.run(lambda c, _: c.fetchval("SELECT nextval('blob_uploads')"))
        hashed, size = sha256(), 0
        coming = _in_parts(parts)
        number = 0
        while (part := await asyncio.to_thread(_next, coming, hashed.update)) is not None:
            await self._execute("SELECT treadle_put_part($1, $2, $3)", upload, number, part)
            size += len(part)
            number += 1
        faultpoint("store.before_commit")
        await self._execute("SELECT treadle_put_blob($1, $2, $3)", hashed.digest(), upload, size)
        faultpoint("store.blob_written")
        return hashed.hexdigest()

    async def get(self, digest: str) -> bytes:
        try:
            key = bytes.fromhex(digest)
        except ValueError:
            key = b""
        row = await self._connections.run(lambda c, _: c.fetchrow(_FIRST, key)) if len(key) == 32 else None
        if row is None:
            raise NotFound(f"there is no blob {digest!r}")
        upload, size, data = row
        parts = [data or b""]
        missing = size - len(parts[0])
        while missing > 0:
            part = await self._part(upload, len(parts))
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        blob = b"".join(parts)
        if (await asyncio.to_thread(sha256, blob)).digest() != key:
            raise Damaged(f"blob {digest} is damaged: its bytes have another hash")
        return blob

    async def _part(self, upload: int, number: int) -> bytes | None:
        query = "SELECT data FROM blob_parts WHERE upload = $1 AND part = $2"
        part: bytes | None = await self._connections.run(lambda c, _: c.fetchval(query, upload, number))
        return part

    async def _execute(self, query: str, *values: object) -> None:
        await self._connections.run(lambda connection, _: connection.execute(query, *values))


def _in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in parts of one size, the last one smaller."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= PART:
            yield bytes(buffer[:PART])
            del buffer[:PART]
    if buffer:
        yield bytes(buffer)


def _next(parts: Iterator[bytes], on_part: Callable[[bytes], None]) -> bytes | None:
    part = next(parts, None)
    if part is not None:
        on_part(part)
    return part
