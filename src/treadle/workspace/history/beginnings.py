"""What files were before a world of layers first changed them (W-13): so a rebase knows what both sides began with, and
a file that was changed beneath and put back byte for byte is told from one that was changed."""

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from treadle.file_system import replace_file
from treadle.protocol.content import Value
from treadle.protocol.files import FileState

_FILE = "beginnings"


class _Beginning(Value, frozen=True):
    path: str
    state: FileState | None = None


_decoder = msgspec.json.Decoder(_Beginning)


class Beginnings:
    """What files were before a world of layers first changed them: one line of JSON each, the first of a path counts.
    `view` is the world's."""

    def __init__(self, view: str) -> None:
        self._file = f"{view}/{_FILE}"

    def all(self) -> dict[str, FileState | None]:
        found: dict[str, FileState | None] = {}
        with suppress(FileNotFoundError), open(self._file, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):  # cut off by a power cut: then it is not known
                    read = _decoder.decode(line)
                    found.setdefault(read.path, read.state)
        return found

    def add(self, states: Mapping[str, FileState | None]) -> None:
        known = self.all()
        lines = [
            msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items() if path not in known
        ]
        if lines:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(fd, "ab", buffering=0) as file:
                file.write(b"".join(lines))

    def replace(self, states: Mapping[str, FileState | None]) -> None:
        lines = (msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items())
        replace_file(self._file, b"".join(lines))
