"""Records and summaries to rows and back; large bodies as files by their SHA-256, `blobs/ab/abcd…`, beside the
database. A file appears under its name only when all its bytes are on disk: temporary file, fsync, rename, fsync of the
folder."""

import os
import sqlite3
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from treadle.adapters.stores.packing import BLOB, Packed, check_sum, compress, decompress, fold_case
from treadle.base.file_system import reach_faultpoint, replace_file, sync_folder
from treadle.base.types import ChatId, make_id
from treadle.errors import Damaged, NotFound
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record


class BlobFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def put(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        path = self.get_path(digest)
        # A file that is there but is not these bytes was damaged; it is written anew.
        if not (path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(str(path), data, sync=True, fault="store.blob_before_rename")
            self._sync_folders(path)
        return digest

    def put_parts(self, parts: Iterable[bytes]) -> str:
        """Bounded memory: the bytes are on disk before their hash is known."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / make_id(".new")
        hashed = sha256()
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for part in parts:
                    hashed.update(part)
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            path = self.get_path(hashed.hexdigest())
            path.parent.mkdir(mode=0o700, exist_ok=True)
            reach_faultpoint("store.blob_before_rename")
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._sync_folders(path)
        return path.name

    def get(self, digest: str) -> bytes:
        if len(digest) != 64 or not digest.isalnum():
            raise NotFound(f"{digest!r} is no blob's hash")
        try:
            data = self.get_path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no blob {digest}") from None
        if sha256(data).hexdigest() != digest:
            raise Damaged(f"blob {digest} is damaged: its bytes have another hash")
        return data

    def _sync_folders(self, path: Path) -> None:
        sync_folder(str(path.parent))
        sync_folder(str(path.parent.parent))
        reach_faultpoint("store.blob_written")


BLOB_OVER = 64 * 1024

_encode = msgspec.json.Encoder().encode


def pack(record: Record, blobs: BlobFiles) -> Packed:
    """Writes a blob if the body needs one: call it before the transaction that refers to it."""
    r, body = record, record.body
    if len(body) > BLOB_OVER:
        packing, stored = BLOB, bytes.fromhex(blobs.put(body))
    else:
        packing, stored = compress(body)
    return Packed(r.seq, r.time_ms, r.type, r.version, r.epoch, packing, zlib.crc32(body), stored)


def restore(packed: Packed, blobs: BlobFiles) -> bytes:
    """The body as it was given. Damaged, with the reason, when it cannot be had."""
    if packed.packing != BLOB:
        return check_sum(decompress(packed.packing, packed.body), packed.crc)
    try:
        return check_sum(blobs.get(packed.body.hex()), packed.crc)
    except (NotFound, Damaged, OSError) as error:
        raise Damaged(str(error)) from error


def read_row(connection: sqlite3.Connection, query: str, chat: ChatId) -> tuple[Any, ...]:
    """The one row that a query finds by the id of a chat. NotFound if there is no such chat."""
    row: tuple[Any, ...] | None = connection.execute(query, (chat,)).fetchone()
    if row is None:
        raise NotFound(f"there is no chat {chat}")
    return row


class Types:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def ensure_number(self, name: str) -> int:
        if (number := self._numbers.get(name)) is None:
            self._connection.execute("INSERT OR IGNORE INTO types (name) VALUES (?)", (name,))
            self._load()
            number = self._numbers[name]
        return number

    def get_name(self, number: int) -> str:
        if number not in self._names:
            self._load()
        return self._names.get(number, f"type.{number}")

    def forget(self) -> None:
        """After a rollback, numbers given in it are void."""
        self._numbers.clear()
        self._names.clear()

    def _load(self) -> None:
        for number, name in self._connection.execute("SELECT no, name FROM types"):
            self._numbers[name] = number
            self._names[number] = name


def make_chat_columns(head: int, summary: ChatSummary) -> tuple[Any, ...]:
    s = summary
    labels = _encode(s.labels).decode() if s.labels else ""
    # Numbers, not bools: sqlite3 would first look for an adapter for each.
    basics = (head, s.status, int(s.runnable), s.wake_ms, int(s.archived), s.owner, s.updated_ms)
    return *basics, _encode(summary), fold_case(s.title), labels
