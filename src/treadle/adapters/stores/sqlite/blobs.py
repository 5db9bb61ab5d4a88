"""Large payloads as files by their SHA-256, `blobs/ab/abcd…`, beside the database. Knows nothing of records.

A file appears under its name only when all its bytes are on disk: temporary file, fsync, rename, fsync of the folder.
"""

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from treadle.base.file_system import faultpoint, replace_file, sync_folder
from treadle.base.types import new_id
from treadle.errors import Damaged, NotFound


class BlobFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def put(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        path = self.path(digest)
        # A file that is there but is not these bytes was damaged; it is written anew.
        if not (path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(str(path), data, sync=True, fault="store.blob_before_rename")
            self._sync_folders(path)
        return digest

    def put_parts(self, parts: Iterable[bytes]) -> str:
        """Bounded memory: the bytes are on disk before their hash is known."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / new_id(".new")
        hashed = sha256()
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for part in parts:
                    hashed.update(part)
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            path = self.path(hashed.hexdigest())
            path.parent.mkdir(mode=0o700, exist_ok=True)
            faultpoint("store.blob_before_rename")
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
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no blob {digest}") from None
        if sha256(data).hexdigest() != digest:
            raise Damaged(f"blob {digest} is damaged: its bytes have another hash")
        return data

    def _sync_folders(self, path: Path) -> None:
        sync_folder(str(path.parent))
        sync_folder(str(path.parent.parent))
        faultpoint("store.blob_written")
