"""A database that can be read but not written: it is on a read-only file system, or belongs to another user. SQLite
opens one in WAL mode only if it can make files beside it, or finds them there; this is for when it cannot."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from treadle.adapters.stores.sqlite import schema
from treadle.base.process_folders import process_folder_prefix


def may_write(path: Path) -> bool:
    """True if a database can be made, or changed, at this path."""
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


class ReadOnly:
    """Connections to a database that does not change meanwhile: to the file itself if it is complete and up to date,
    else to a copy, which exists until `close`."""

    def __init__(self, path: Path, busy_s: float, migrations: Path) -> None:
        self._path = path
        self._busy_s = busy_s
        self._migrations = migrations
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def connect(self) -> sqlite3.Connection:
        if self._folder is None and not _size(_log_of(self._path)):
            name = f"file:{quote(str(self._path.absolute()))}?immutable=1"
            connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
            if schema.version_of(connection) == len(schema.numbered(self._migrations)):
                return connection
            connection.close()
        return schema.connect(self._copy(), busy_s=self._busy_s)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _copy(self) -> Path:
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix=process_folder_prefix(), ignore_cleanup_errors=True)
            for file in (self._path, _log_of(self._path)):
                if file.exists():
                    shutil.copyfile(file, Path(folder.name, file.name))
            schema.prepare(Path(folder.name, self._path.name), busy_s=self._busy_s, migrations=self._migrations)
            self._folder = folder
        return Path(self._folder.name, self._path.name)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
