"""A small file in Treadle's home that several processes change: read as a whole, replaced in one step under a lock, for
its owner alone. Knows nothing of what is in it."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from treadle.base.file_system import reach_faultpoint, replace_file, sync_folder
from treadle.errors import ConfigError

T = TypeVar("T", bound=msgspec.Struct)

_OTHERS_WRITE = 0o022


class HomeFile(Generic[T]):
    """The decoded content is cached until the file changes."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._name = str(path)
        self._kind, self._decoder = kind, msgspec.json.Decoder(kind)
        self._seen: tuple[int, int, int] | None = None
        self._kept: T = kind()

    def read(self) -> T:
        """Return the content, or the Struct's defaults if the file does not exist. ConfigError if the file cannot be
        used: it grants permissions, so a file that is damaged, or that other users may write, is not trusted."""
        try:
            version = os.stat(self._name)
            if (version.st_ino, version.st_mtime_ns, version.st_size) == self._seen:
                return self._kept
            with open(self._name, "rb") as file:
                file_stat = os.fstat(file.fileno())
                if file_stat.st_mode & _OTHERS_WRITE or file_stat.st_uid not in (os.geteuid(), 0):
                    raise ConfigError(f"{self.path} can be written by others; give it to yourself alone: chmod 600")
                data = file.read()
        except FileNotFoundError:
            return self._kind()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror or error}") from error
        try:
            self._kept = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is damaged ({error}); mend it, or move it away") from error
        self._seen = (file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size)
        return self._kept

    def change(self, change: Callable[[T], T]) -> T:
        """Replace the content by what `change` makes of it. Of several processes each sees what the last one wrote."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(f"{self._name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror or error}") from error
        with open(lock, "r+b", 0):
            fcntl.flock(lock, fcntl.LOCK_EX)
            new_content = change(self.read())
            data = msgspec.json.format(msgspec.json.encode(new_content), indent=2) + b"\n"
            try:
                replace_file(self._name, data, sync=True, fault=f"home.before_replace:{self.path.name}")
                sync_folder(str(self.path.parent))
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written: {error.strerror or error}") from error
            reach_faultpoint(f"home.after_replace:{self.path.name}")
            return new_content
