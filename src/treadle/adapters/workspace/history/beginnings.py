"""The states of files before a world of layers first changed them (W-13): so a rebase knows what both sides began with,
and a file that was changed beneath and put back byte for byte is told from one that was changed."""

import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, suppress

import msgspec

from treadle.base.file_locks import lock_file
from treadle.base.file_system import replace_file
from treadle.protocol.content import Value
from treadle.protocol.files import FileState

_FILE = "beginnings"
_PATIENCE_S = 30.0
States = Mapping[str, FileState | None]


class _Beginning(Value, frozen=True):
    path: str
    state: FileState | None = None


_decoder = msgspec.json.Decoder(_Beginning)


class Beginnings:
    """The states of files before a world of layers first changed them: one line of JSON each, the first of a path
    counts. `view` is the world's."""

    def __init__(self, view: str) -> None:
        self._file = f"{view}/{_FILE}"

    def all(self) -> dict[str, FileState | None]:
        states: dict[str, FileState | None] = {}
        with suppress(FileNotFoundError), open(self._file, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):  # cut off by a power cut: then it is not known
                    read = _decoder.decode(line)
                    states.setdefault(read.path, read.state)
        return states

    def add(self, states: States) -> None:
        """Paths that are known stay as they are."""
        with self._lock():
            known_states = self.all()
            if lines := _lines({path: state for path, state in states.items() if path not in known_states}):
                fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                with open(fd, "ab", buffering=0) as file:
                    file.write(lines)

    def update(self, states: States) -> None:
        with self._lock():
            replace_file(self._file, _lines({**self.all(), **states}))

    def forget(self, paths: Collection[str]) -> None:
        with self._lock():
            replace_file(self._file, _lines({path: state for path, state in self.all().items() if path not in paths}))

    def _lock(self) -> AbstractContextManager[None]:
        """Chats add lines while others rebase or commit."""
        return lock_file(f"{self._file}.lock", _PATIENCE_S)


def _lines(states: States) -> bytes:
    return b"".join(msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items())
